// One sweep of tasks whose workers have mostly settled.
#pragma once

#include "active.hpp"
#include "enumerate_sweep.hpp"
#include "lane_queue.hpp"

namespace voxpop::VOXPOP_VARIANT {

// Call settled(block, n_free, queue) for tasks with equally many free workers, these first in their
// arrays, and dense(block) for tasks to be enumerated: tasks without free workers at once, the
// others together with their like.
template <int D, int LEVELS, class Settled, class Dense>
static void for_settled(
    const Enumeration& e, const Messages& m, int64_t first_block, int64_t last_block,
    ActiveArrays& s, Workspace& workspace, Settled settled, Dense dense) {
    const int64_t K = LEVELS ? LEVELS : m.n_levels;
    LaneQueue queue(e.most_free, m.degree, workspace);
    auto open = [&](const Block& block) {
        open_block<LEVELS>(e, m, block, s);
        return doubt_workers<D, LEVELS>(e, m.degree, K, s);
    };
    auto answer = [&](int64_t n_free, Block block) {
        if (n_free < 0) return dense(block);
        open(block);
        for (int lane = 0; lane < lanes; ++lane) {
            choose_free(e, m.degree, s, lane, queue.order(lane));
            reorder(s.value, e.dimension, m.degree, lane, queue.order(lane), false, s.top);
            reorder(s.incoming, K, m.degree, lane, queue.order(lane), false, s.top);
        }
        settled(block, n_free, queue);
    };
    for (int64_t number = first_block; number < last_block; ++number) {
        Block block(number, m.n_tasks);
        const vec left_out = open(block);
        bool any = false;
        for (int lane = 0; lane < block.n_rows; ++lane) {
            if (left_out[lane] <= e.accuracy) {
                any = true;
                continue;
            }
            queue.add(choose_free(e, m.degree, s, lane, queue.order(lane)), block.row[lane]);
            block.drop(lane);
        }
        if (any) settled(block, 0, queue);
        queue.answer(lanes, answer);
    }
    queue.answer(1, answer);
}

static double active(
    const Enumeration& e, const Messages& m, int64_t first_block, int64_t last_block,
    int64_t* new_sums, Workspace& workspace) {
    ActiveArrays s = carve_active(e, m, workspace);
    Change change;
    return unrolled(e.dimension, m.n_levels, [&]<int D, int LEVELS>() {
        const int64_t K = LEVELS ? LEVELS : m.n_levels;
        auto settled = [&](Block& block, int64_t n_free, LaneQueue& queue) {
            if (n_free == 0)
                expand<D, LEVELS, false>(e, m.degree, K, 0, s);
            else
                expand<D, LEVELS, true>(e, m.degree, K, n_free, s);
            for (int lane = 0; lane < lanes && n_free > 0; ++lane) {
                reorder(s.out, K, m.degree, lane, queue.order(lane), true, s.top);
                reorder(s.incoming, K, m.degree, lane, queue.order(lane), true, s.top);
            }
            const vec is_contradicted = contradicts<LEVELS>(m.degree, K, s);
            for (int lane = 0; lane < block.n_rows; ++lane)
                if (block.wanted[lane] && is_contradicted[lane] > 0.5) {
                    queue.add(-1, block.row[lane]);
                    block.drop(lane);
                }
            speak<LEVELS>(m, K, block, s.old, s.out, new_sums, change, s.scratch);
        };
        auto dense = [&](const Block& block) {
            EnumerationArrays a = carve(e, m, workspace);
            enumerate_block<D, LEVELS>(e, m, block, Factor::recompute, nullptr, a, workspace);
            speak<LEVELS>(m, K, block, a.old, a.out, new_sums, change, a.scratch);
        };
        for_settled<D, LEVELS>(e, m, first_block, last_block, s, workspace, settled, dense);
        return change.largest;
    });
}

// The change of a guess is of no use to anybody: none is larger than 1.
static double guess(
    const Enumeration& e, const Messages& m, int64_t first_block, int64_t last_block,
    int64_t* new_sums, Workspace& workspace) {
    ActiveArrays s = carve_active(e, m, workspace);
    Change change;
    change.raise(1.0, m.n_levels);
    return unrolled(e.dimension, m.n_levels, [&]<int D, int LEVELS>() {
        const int64_t K = LEVELS ? LEVELS : m.n_levels;
        for (int64_t number = first_block; number < last_block; ++number) {
            const Block block(number, m.n_tasks);
            open_block<LEVELS>(e, m, block, s);
            guess_block<D, LEVELS>(e, m.degree, K, s);
            speak<LEVELS>(m, K, block, s.old, s.out, new_sums, change, s.scratch);
        }
        return change.largest;
    });
}

}  // namespace voxpop::VOXPOP_VARIANT
