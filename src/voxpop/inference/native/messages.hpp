// Incoming and outgoing messages of a block of tasks; one task per lane.
#pragma once

#include "elementary.hpp"
#include "lanes.hpp"
#include "sweeps.hpp"

namespace voxpop::VOXPOP_VARIANT {

// The tasks of a block. Past the end the last task is repeated; its messages there are dropped, as
// are those of tasks that are not wanted.
struct Block {
    int64_t row[lanes];
    int n_rows;
    bool wanted[lanes];
    bool all_wanted = true;

    Block(int64_t number, int64_t n_tasks) {
        const int64_t first = number * lanes;
        n_rows = (int)(n_tasks - first < lanes ? n_tasks - first : lanes);
        for (int lane = 0; lane < lanes; ++lane) {
            row[lane] = first + (lane < n_rows ? lane : n_rows - 1);
            wanted[lane] = lane < n_rows;
        }
    }
    Block(const int64_t* rows, int n) : n_rows(n) {
        for (int lane = 0; lane < lanes; ++lane) {
            row[lane] = rows[lane < n ? lane : n - 1];
            wanted[lane] = lane < n;
        }
    }
    void drop(int lane) { wanted[lane] = false, all_wanted = false; }
};

// Ask memory for the rows of a later block: rows are short and of several arrays, and the processor
// does not always see by itself that they follow each other. (Unless it is inlined, the compiler
// takes a function that returns nothing and writes nothing for one that does nothing.)
template <typename T>
[[gnu::always_inline]] inline void fetch(
    const T* from, int64_t width, int64_t number, int64_t n_tasks) {
    if ((number + 1) * lanes > n_tasks) return;
    const char* first = (const char*)(from + number * lanes * width);
    for (int64_t i = 0; i < (int64_t)sizeof(T) * lanes * width; i += 64)
        __builtin_prefetch(first + i, 0, 2);
}

// Copy `width` numbers of each task of a block, so that equal ones of all tasks are neighbours.
template <typename T>
[[gnu::always_inline]] inline void gather(
    const T* from, int64_t width, const Block& block, T* to) {
    for_few(width, [&](auto n, int64_t first) VOXPOP_INLINE {
        const int64_t* row[lanes];
        for (int lane = 0; lane < lanes; ++lane)
            row[lane] = (const int64_t*)from + block.row[lane] * width + first;
        to_lanes<n.value>(row, (ivec*)to + first);
    });
}

// Copy the sums of the workers of a block, one column per lane. LEVELS is n_levels, or 0 for any.
template <int LEVELS>
[[gnu::always_inline]] inline void gather_sums(const Messages& m, const Block& block, ivec* to) {
    const int64_t n_levels = LEVELS ? LEVELS : m.n_levels;
    const int32_t* worker[lanes];
    for (int lane = 0; lane < lanes; ++lane) worker[lane] = m.worker + block.row[lane] * m.degree;
    for (int64_t u = 0; u < m.degree; ++u)
        for_few(n_levels, [&](auto n, int64_t first) VOXPOP_INLINE {
            const int64_t* sum[lanes];
            for (int lane = 0; lane < lanes; ++lane)
                sum[lane] = m.sums + worker[lane][u] * n_levels + first;
            to_lanes<n.value>(sum, to + u * n_levels + first);
        });
}

// Store the new messages of a block, one task per lane, and add them to the workers' sums.
template <int LEVELS>
[[gnu::always_inline]] inline void scatter(
    const Messages& m, const Block& block, const ivec* rounded, int64_t* sums) {
    const int64_t n_levels = LEVELS ? LEVELS : m.n_levels;
    const int32_t* worker[lanes];
    int64_t* message[lanes];
    for (int lane = 0; lane < lanes; ++lane) {
        worker[lane] = m.worker + block.row[lane] * m.degree;
        message[lane] = m.message + block.row[lane] * m.degree * n_levels;
    }
    for (int64_t u = 0; u < m.degree; ++u)
        for_few(n_levels, [&](auto n, int64_t first) VOXPOP_INLINE {
            const int64_t column = u * n_levels + first;
            to_rows<n.value>(rounded + column, [&](int lane, few mine) VOXPOP_INLINE {
                if (!block.wanted[lane]) return;
                store_few<n.value>(message[lane] + column, mine);
                add_few<n.value>(sums + worker[lane][u] * n_levels + first, mine);
            });
        });
}

// M4: log of the workers' beliefs without the task's own message, largest entry 0.
//
//     incoming[u, k] = (sums[worker u, k] - message[u, k]) quantum + log weight[k] - max over k
template <int LEVELS>
[[gnu::noinline]] inline void receive(
    const Messages& m, const Block& block, ivec* old, vec* incoming) {
    const int64_t K = LEVELS ? LEVELS : m.n_levels;
    gather(m.message, m.degree * K, block, (int64_t*)old);
    gather_sums<LEVELS>(m, block, (ivec*)incoming);
    for (int64_t u = 0; u < m.degree; ++u) {
        vec* mine = incoming + u * K;
        vec top = all(log_nothing);
        for (int64_t k = 0; k < K; ++k) {
            mine[k] = to_double((ivec)mine[k] - old[u * K + k]) * all(m.quantum) +
                      all(m.log_weights[k]);
            top = max(top, mine[k]);
        }
        for (int64_t k = 0; k < K; ++k) mine[k] = mine[k] - top;
    }
}

// The largest change of a message so far, as a probability, and logs of it for changes_less.
struct Change {
    double largest = 0.0;
    double log_of_others = log_nothing;  // log(largest / (K - 1))
    double log_of_rest = 1e300;     // log(K (1 - largest))

    void raise(double found, int64_t K) {
        if (!(found > largest)) return;
        largest = found;
        log_of_others = __builtin_log(found / (K > 1 ? (double)(K - 1) : 1.0));
        log_of_rest = found < 1.0 ? __builtin_log((double)K * (1.0 - found)) : log_nothing;
    }
};

// Largest change over the lanes of one worker's message, as a probability.
//
//     max over k of | softmax(after)[k] - softmax(before)[k] |
[[gnu::always_inline]] inline double exact_change(
    const ivec* before, const ivec* after, int64_t K, double quantum, vec* scratch) {
    vec top_before = all(log_nothing), top_after = top_before;
    for (int64_t k = 0; k < K; ++k) {
        top_before = max(top_before, to_double(before[k]));
        top_after = max(top_after, to_double(after[k]));
    }
    vec sum_before = all(0.0), sum_after = all(0.0), found = all(0.0);
    for (int64_t k = 0; k < K; ++k) {
        scratch[2 * k] = exp((to_double(before[k]) - top_before) * all(quantum));
        scratch[2 * k + 1] = exp((to_double(after[k]) - top_after) * all(quantum));
        sum_before = sum_before + scratch[2 * k];
        sum_after = sum_after + scratch[2 * k + 1];
    }
    for (int64_t k = 0; k < K; ++k)
        found = max(found, absolute(scratch[2 * k + 1] / sum_after - scratch[2 * k] / sum_before));
    return largest(found);
}

// Show without exponentials that no lane of a worker's message changes more than one did before.
//
// Three bounds, with arguments taken from the largest one (which damping leaves below 0):
// - no change is above 1 less what the probabilities before and after have in common, which is at
//   least exp of the smaller of two arguments of the same level, / K;
// - a softmax moves by at most a quarter of the range of the moves of its arguments;
// - no probability is above exp of its argument, so where one level leads before and after, no
//   change is above K - 1 times the exp of the best of the others.
[[gnu::always_inline]] inline bool changes_less(
    const ivec* before, const ivec* after, int64_t K, double quantum, const Change& change) {
    ivec top_before = before[0], top_after = after[0];
    for (int64_t k = 1; k < K; ++k)
        top_before = max(top_before, before[k]), top_after = max(top_after, after[k]);
    ivec common = min(before[0] - top_before, after[0] - top_after);
    for (int64_t k = 1; k < K; ++k)
        common = max(common, min(before[k] - top_before, after[k] - top_after));
    const vec in_common = to_double(common) * all(quantum);
    if (!any_above(all(change.log_of_rest), in_common)) return true;
    ivec highest = after[0] - before[0], lowest = highest;
    ivec first = max(before[0], after[0]), second = first;
    for (int64_t k = 1; k < K; ++k) {
        const ivec move = after[k] - before[k], reached = max(before[k], after[k]);
        highest = max(highest, move), lowest = min(lowest, move);
        second = k == 1 ? min(first, reached) : max(second, min(first, reached));
        first = max(first, reached);
    }
    const vec moves = all(0.25 * quantum) * to_double(highest - lowest);
    const vec others = to_double(second - min(top_before, top_after)) * all(quantum);
    // 1 in the lanes that no bound settles.
    vec open = where_above(moves, all(change.largest), all(1.0), all(0.0));
    if (K > 1) open = where_above(others, all(change.log_of_others), open, all(0.0));
    open = where_above(all(change.log_of_rest), in_common, open, all(0.0));
    return !any_above(open, all(0.5));
}

// Normalise, clip, damp and round the new log messages; store them and add them to the sums.
//
// `scratch` has room for 2 K vectors.
//
//     x = max(log m - max over k, floor),  new = round(((1 - damping) x + damping old) / quantum)
template <int LEVELS>
[[gnu::noinline]] inline void send(
    const Messages& m, const Block& block, const ivec* old, vec* log_message, int64_t* new_sums,
    Change& change, vec* scratch) {
    const int64_t K = LEVELS ? LEVELS : m.n_levels;
    ivec* rounded = (ivec*)log_message;
    for (int64_t u = 0; u < m.degree; ++u) {
        const vec* mine = log_message + u * K;
        const ivec* before = old + u * K;
        ivec* after = rounded + u * K;
        vec top = all(log_nothing);
        for (int64_t k = 0; k < K; ++k) top = max(top, mine[k]);
        for (int64_t k = 0; k < K; ++k) {
            vec x = max(mine[k] - top, all(m.floor));
            if (m.damping != 0.0)
                x = all(1.0 - m.damping) * x + all(m.damping * m.quantum) * to_double(before[k]);
            after[k] = round_to_int(x * all(1.0 / m.quantum));
        }
        if (!block.all_wanted)
            for (int lane = 0; lane < lanes; ++lane)
                for (int64_t k = 0; k < K && !block.wanted[lane]; ++k)
                    after[k][lane] = before[k][lane];
        if (change.largest < 1.0 && !changes_less(before, after, K, m.quantum, change))
            change.raise(exact_change(before, after, K, m.quantum, scratch), K);
    }
    scatter<LEVELS>(m, block, rounded, new_sums);
}

}  // namespace voxpop::VOXPOP_VARIANT
