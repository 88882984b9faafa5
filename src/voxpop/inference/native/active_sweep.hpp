// One sweep, and posteriors, of tasks whose workers have mostly settled.
#pragma once

#include "active_posterior.hpp"
#include "enumerate_sweep.hpp"
#include "waiting.hpp"

namespace voxpop::VOXPOP_VARIANT {

// One sweep over some blocks: settled tasks at once, the others together with their like, in
// blocks of tasks with as many free workers, or of tasks to enumerate.
template <int D, int LEVELS>
static double active_blocks(
    const Active& a, const Messages& m, int64_t first_block, int64_t last_block,
    int64_t* new_sums, Workspace& workspace) {
    const int64_t K = LEVELS ? LEVELS : m.n_levels, d = D ? D : a.dense.dimension;
    ActiveArrays s = carve(a, m.degree, K, workspace);
    Change change;
    Waiting waiting(a.most_free, m.degree, workspace);
    auto open = [&](const Block& block) {
        listen<LEVELS>(m, K, block, s.old, s.incoming);
        gather(a.dense.value, m.degree * d, block, (double*)s.value);
        if (a.prior_precision > 0.0) gather(a.dense.prior_mean, d, block, (double*)s.prior_mean);
        return doubt_workers<D, LEVELS>(a, m.degree, K, s);
    };
    auto enumerate = [&](const Block& block) {
        EnumerationArrays dense = carve(a.dense, m, workspace);
        enumerate_block<D, LEVELS>(
            a.dense, m, block, Factor::recompute, nullptr, dense, workspace);
        speak<LEVELS>(m, K, block, dense.old, dense.out, new_sums, change, dense.scratch);
    };
    auto say = [&](Block& block) {
        const vec open_question = contradicts<LEVELS>(m.degree, K, s);
        for (int lane = 0; lane < block.n_rows; ++lane)
            if (block.wanted[lane] && open_question[lane] > 0.5) {
                waiting.add(-1, block.row[lane]);
                block.drop(lane);
            }
        speak<LEVELS>(m, K, block, s.old, s.out, new_sums, change, s.scratch);
    };
    auto answer = [&](int64_t n_free, const Block& chosen) {
        if (n_free < 0) return enumerate(chosen);
        Block block = chosen;
        open(block);
        for (int lane = 0; lane < lanes; ++lane) {
            int64_t* mine = waiting.order + lane * m.degree;
            choose_free(a, m.degree, s, lane, mine);
            reorder(s.value, d, m.degree, lane, mine, false, s.top);
            reorder(s.incoming, K, m.degree, lane, mine, false, s.top);
        }
        expand<D, LEVELS, true>(a, m.degree, K, n_free, s);
        for (int lane = 0; lane < lanes; ++lane) {
            const int64_t* mine = waiting.order + lane * m.degree;
            reorder(s.out, K, m.degree, lane, mine, true, s.top);
            reorder(s.incoming, K, m.degree, lane, mine, true, s.top);
        }
        say(block);
    };
    for (int64_t number = first_block; number < last_block; ++number) {
        Block block(number, m.n_tasks);
        const vec left_out = open(block);
        bool any = false;
        for (int lane = 0; lane < block.n_rows; ++lane) {
            if (left_out[lane] <= a.accuracy) {
                any = true;
                continue;
            }
            waiting.add(choose_free(a, m.degree, s, lane, waiting.order), block.row[lane]);
            block.drop(lane);
        }
        if (any) {
            expand<D, LEVELS, false>(a, m.degree, K, 0, s);
            say(block);
        }
        waiting.answer_full(answer);
    }
    waiting.answer_rest(answer);
    return change.largest;
}

static double active(
    const Active& a, const Messages& m, int64_t first_block, int64_t last_block,
    int64_t* new_sums, Workspace& workspace) {
    return unrolled(a.dense.dimension, m.n_levels, [&]<int D, int LEVELS> {
        return active_blocks<D, LEVELS>(a, m, first_block, last_block, new_sums, workspace);
    });
}

// The change of a guess is of no use to anybody: none is larger than 1.
template <int D, int LEVELS>
static double guess_blocks(
    const Active& a, const Messages& m, int64_t first_block, int64_t last_block,
    int64_t* new_sums, Workspace& workspace) {
    const int64_t K = LEVELS ? LEVELS : m.n_levels, d = D ? D : a.dense.dimension;
    ActiveArrays s = carve(a, m.degree, K, workspace);
    Change change;
    change.raise(1.0, K);
    for (int64_t number = first_block; number < last_block; ++number) {
        const Block block(number, m.n_tasks);
        listen<LEVELS>(m, K, block, s.old, s.incoming);
        gather(a.dense.value, m.degree * d, block, (double*)s.value);
        if (a.prior_precision > 0.0) gather(a.dense.prior_mean, d, block, (double*)s.prior_mean);
        guess<D, LEVELS>(a, m.degree, K, s);
        speak<LEVELS>(m, K, block, s.old, s.out, new_sums, change, s.scratch);
    }
    return change.largest;
}

static double guess(
    const Active& a, const Messages& m, int64_t first_block, int64_t last_block,
    int64_t* new_sums, Workspace& workspace) {
    return unrolled(a.dense.dimension, m.n_levels, [&]<int D, int LEVELS> {
        return guess_blocks<D, LEVELS>(a, m, first_block, last_block, new_sums, workspace);
    });
}

template <int D, int LEVELS>
static void active_truths(
    const Active& a, const Truths& t, int64_t first_block, int64_t last_block,
    Workspace& workspace) {
    const Messages& m = t.heard;
    const int64_t K = LEVELS ? LEVELS : m.n_levels, d = D ? D : a.dense.dimension;
    const int64_t degree = m.degree;
    ActiveArrays s = carve(a, degree, K, workspace);
    Waiting waiting(a.most_free, degree, workspace);
    auto open = [&](const Block& block) {
        listen<LEVELS>(m, K, block, s.old, s.incoming);
        gather(a.dense.value, degree * d, block, (double*)s.value);
        if (a.prior_precision > 0.0) gather(a.dense.prior_mean, d, block, (double*)s.prior_mean);
        return doubt_workers<D, LEVELS>(a, degree, K, s);
    };
    auto tell_all = [&](const Components& c, const Block& block) {
        for (int64_t j = 0; j < d; ++j) take_moments(c, d, j, s.away[2 * j], s.away[2 * j + 1]);
        for (int lane = 0; lane < block.n_rows; ++lane) {
            if (!block.wanted[lane]) continue;
            const Mixture mixture = t.n_probabilities ? mixture_of(c, d, lane) : Mixture{0, d};
            for (int64_t j = 0; j < d; ++j)
                tell(t, mixture, block.row[lane], j, s.away[2 * j][lane], s.away[2 * j + 1][lane]);
        }
    };
    auto answer = [&](int64_t n_free, const Block& block) {
        if (n_free < 0) return enumerate_posterior_of(a.dense, t, block, workspace);
        open(block);
        for (int lane = 0; lane < lanes; ++lane) {
            choose_free(a, degree, s, lane, waiting.order);
            reorder(s.value, d, degree, lane, waiting.order, false, s.top);
            reorder(s.incoming, K, degree, lane, waiting.order, false, s.top);
        }
        tell_all(find_components<D, LEVELS, true>(a, degree, K, n_free, s, workspace), block);
    };
    for (int64_t number = first_block; number < last_block; ++number) {
        Block block(number, m.n_tasks);
        const vec left_out = open(block);
        for (int lane = 0; lane < block.n_rows; ++lane) {
            if (left_out[lane] <= a.accuracy) continue;
            waiting.add(choose_free(a, degree, s, lane, waiting.order), block.row[lane]);
            block.drop(lane);
        }
        tell_all(find_components<D, LEVELS, false>(a, degree, K, 0, s, workspace), block);
        waiting.answer_full(answer);
    }
    waiting.answer_rest(answer);
}

static void active_posterior(
    const Active& a, const Truths& t, int64_t first_block, int64_t last_block,
    Workspace& workspace) {
    unrolled(a.dense.dimension, t.heard.n_levels, [&]<int D, int LEVELS> {
        active_truths<D, LEVELS>(a, t, first_block, last_block, workspace);
        return 0.0;
    });
}

}  // namespace voxpop::VOXPOP_VARIANT
