// One sweep of tasks whose workers have mostly settled.
#pragma once

#include "active.hpp"
#include "enumerate_sweep.hpp"
#include "lane_queue.hpp"

namespace voxpop::VOXPOP_VARIANT {

// The steps of a block of tasks, for their numbers of dimensions and levels.
struct ActiveSteps {
    decltype(&open_block<0>) open;
    decltype(&doubt_workers<0>) doubt;
    decltype(&expand<0, false>) expand;
    decltype(&add_pairs<0, 0, false>) add_pairs, add_free_pairs;
    decltype(&contradicts<0>) contradicts;
    decltype(&guess_block<0>) guess;
    EnumerationSteps dense;
};

template <int D, int LEVELS>
inline ActiveSteps active_steps() {
    return {open_block<LEVELS>, doubt_workers<LEVELS>, expand<LEVELS, false>,
            add_pairs<D, LEVELS, false>, add_pairs<D, 0, true>,
            contradicts<LEVELS>, guess_block<LEVELS>, enumeration_steps<D, LEVELS>()};
}

inline ActiveSteps active_steps(const Enumeration& e, const Messages& m) {
    return unrolled(e.dimension, m.n_levels,
                    []<int D, int LEVELS>() { return active_steps<D, LEVELS>(); });
}

// Call settled(block, n_free, queue) for tasks with equally many free workers, these first in their
// arrays, and dense(block) for tasks to be enumerated: tasks without free workers at once, the
// others together with their like.
template <class Settled, class Dense>
static void for_settled(
    const Enumeration& e, const Messages& m, int64_t first_block, int64_t last_block,
    const ActiveSteps& step, ActiveArrays& s, Workspace& workspace, Settled settled, Dense dense) {
    const int64_t K = m.n_levels;
    LaneQueue queue(e.most_free, m.degree, workspace);
    auto open = [&](const Block& block) {
        step.open(e, m, block, s);
        return step.doubt(e, m.degree, K, s);
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
    const ActiveSteps step = active_steps(e, m);
    const int64_t K = m.n_levels;
    Change change;
    auto settled = [&](Block& block, int64_t n_free, LaneQueue& queue) {
        if (n_free == 0)
            step.expand(e, m.degree, K, 0, step.add_pairs, s);
        else
            expand<0, true>(e, m.degree, K, n_free, step.add_free_pairs, s);
        for (int lane = 0; lane < lanes && n_free > 0; ++lane) {
            reorder(s.out, K, m.degree, lane, queue.order(lane), true, s.top);
            reorder(s.incoming, K, m.degree, lane, queue.order(lane), true, s.top);
        }
        const vec is_contradicted = step.contradicts(m.degree, K, s);
        for (int lane = 0; lane < block.n_rows; ++lane)
            if (block.wanted[lane] && is_contradicted[lane] > 0.5) {
                queue.add(-1, block.row[lane]);
                block.drop(lane);
            }
        step.dense.send(m, block, s.old, s.out, new_sums, change, s.scratch);
    };
    auto dense = [&](const Block& block) {
        EnumerationArrays a = carve(e, m, workspace);
        step.dense.enumerate_block(
            e, m, block, Factor::recompute, nullptr, step.dense.factor, a, workspace);
        step.dense.send(m, block, a.old, a.out, new_sums, change, a.scratch);
    };
    for_settled(e, m, first_block, last_block, step, s, workspace, settled, dense);
    return change.largest;
}

// The change of a guess means nothing: it counts as 1, the largest, so that none is computed.
static double guess(
    const Enumeration& e, const Messages& m, int64_t first_block, int64_t last_block,
    int64_t* new_sums, Workspace& workspace) {
    ActiveArrays s = carve_active(e, m, workspace);
    const ActiveSteps step = active_steps(e, m);
    Change change;
    change.raise(1.0, m.n_levels);
    for (int64_t number = first_block; number < last_block; ++number) {
        const Block block(number, m.n_tasks);
        step.open(e, m, block, s);
        step.guess(e, m.degree, m.n_levels, s);
        step.dense.send(m, block, s.old, s.out, new_sums, change, s.scratch);
    }
    return change.largest;
}

}  // namespace voxpop::VOXPOP_VARIANT
