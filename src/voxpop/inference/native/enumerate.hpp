// Joint enumeration of a block of tasks, one per lane: linear inside a task, halves contracted.
//
// The workers of a task are two halves, a configuration of levels is a pair (a, b). The prior
// counts as one more member of the left half; b is a configuration p of all workers of the right
// half but the last, and a level of that one. With W the precision, m the weighted mean and Q the
// weighted sum of squares about it, the factor (M2) of the task is
//
//     log2 C[a, b] = offset[a, b] - (log2 e)/2 (Q_a + Q_p + W_a W_p / W_ap |m_a - m_p|²
//                                               + W_ap w / (W_ap + w) |A - m_ap|²)
//
// with A and w the answer and the precision of the last worker, and W_ap, m_ap of a and p together.
// Nothing cancels in it, and only little more than its exponential is computed K^l times.
#pragma once

#include "messages.hpp"

namespace voxpop::VOXPOP_VARIANT {

// Linear sums below this may have lost terms: exp(-460), while float64 ends near exp(-700).
constexpr double unsafe = 1e-200;

// Rows of the factor that are computed together: as many as there are levels leave no row over;
// three is the best measured for K = 3.
template <int LEVELS>
constexpr int rows_at_once = LEVELS == 2 ? 2 : 3;

// Scratch arrays of one block; "tree" arrays hold K^t vectors for t = 0 .. number of workers.
struct EnumerationArrays {
    vec *value, *prior_mean, *incoming, *message, *out;
    ivec* old;
    vec *left_mean, *right_mean, *left_log, *right_log, *left_joint, *right_joint;
    vec* left_away;  // of the last answer from the mean of each configuration of the left half
    vec *seen_by_left, *seen_by_right, *scratch;
};

inline EnumerationArrays carve(const Enumeration& e, const Messages& m, Workspace& workspace) {
    const int64_t d = e.dimension, n_messages = m.degree * m.n_levels;
    const int64_t n_left = e.left.n_configurations, n_right = e.right.n_configurations;
    const int64_t n_values = (m.degree + 1 + n_left) * d;
    const int64_t trees = (d + 2) * (e.left.tree_size + e.right.tree_size);
    vec* next = (vec*)workspace.slot(
        0, lanes * (n_values + 4 * n_messages + trees + n_left + n_right + 2 * m.n_levels));
    auto take = [&next](int64_t n) { return (next += n) - n; };
    EnumerationArrays s;
    s.value = take(m.degree * d), s.prior_mean = take(d);
    s.incoming = take(n_messages), s.message = take(n_messages), s.out = take(n_messages);
    s.old = (ivec*)take(n_messages);
    s.left_mean = take(e.left.tree_size * d), s.right_mean = take(e.right.tree_size * d);
    s.left_log = take(e.left.tree_size), s.right_log = take(e.right.tree_size);
    s.left_joint = take(e.left.tree_size), s.right_joint = take(e.right.tree_size);
    s.left_away = take(n_left * d);
    s.seen_by_left = take(n_left), s.seen_by_right = take(n_right);
    s.scratch = take(2 * m.n_levels);
    return s;
}

// Leaves of the trees: one number (d for means) per configuration of the left half (a), of the
// right half (b), and of the right half without its last worker (p).
struct Leaves {
    const vec *mean_a, *mean_b, *mean_p, *log_a, *log_p, *joint_a, *joint_b;

    Leaves(const Enumeration& e, int64_t K, const EnumerationArrays& s) {
        const int64_t n_right = e.right.n_configurations;
        const int64_t a = e.left.tree_size - e.left.n_configurations;
        const int64_t b = e.right.tree_size - n_right, p = b - n_right / K;
        mean_a = s.left_mean + a * e.dimension, log_a = s.left_log + a, joint_a = s.left_joint + a;
        mean_b = s.right_mean + b * e.dimension, joint_b = s.right_joint + b;
        mean_p = s.right_mean + p * e.dimension, log_p = s.right_log + p;
    }
};

// Let workers of a half join one by one, in every configuration of their levels.
//
//     m' = m + w/W' (A - m),   Q' = Q + w W/W' |A - m|²
//
// `mean` and `log_half` (which is -Q/2 in powers of two) are trees; their leaves are last.
template <int D>
[[gnu::always_inline]] inline void grow(
    const Half& half, int64_t n_workers, int64_t K, int64_t dimension, const vec* value,
    vec* __restrict mean, vec* __restrict log_half) {
    const int64_t d = D ? D : dimension;
    const double *gain = half.gain, *cost = half.cost;
    int64_t n = 1;
    for (int64_t u = 0; u < n_workers; ++u, value += d) {
        vec *next_mean = mean + n * d, *next_log = log_half + n;
        for (int64_t p = 0; p < n; ++p) {
            vec squared = all(0.0), log_before = log_half[p];
            for (int64_t j = 0; j < d; ++j) {
                const vec before = mean[p * d + j], move = value[j] - before;
                squared = fma(move, move, squared);
                for (int64_t k = 0; k < K; ++k)
                    next_mean[(p * K + k) * d + j] = fma(move, all(gain[k]), before);
            }
            for (int64_t k = 0; k < K; ++k)
                next_log[p * K + k] = fma(squared, all(cost[k]), log_before);
            gain += K, cost += K;
        }
        mean = next_mean, log_half = next_log, n *= K;
    }
}

// A configuration of the left half and one of the right half without its last worker, together:
// log2 of their common factor, and the squared distance of the last answer from their mean.
struct Pair {
    vec log_factor, squared;
};

template <int D>
[[gnu::always_inline]] inline Pair pair_up(
    const double* pair, int64_t dimension, const vec* mean_a, const vec* away_a,
    const vec* mean_p, vec log_halves) {
    const int64_t d = D ? D : dimension;
    const vec share = all(pair[1]);
    vec between = all(0.0), squared = all(0.0);
    for (int64_t j = 0; j < d; ++j) {
        const vec apart = mean_a[j] - mean_p[j], away = fma(apart, share, away_a[j]);
        between = j ? fma(apart, apart, between) : apart * apart;
        squared = j ? fma(away, away, squared) : away * away;
    }
    return {fma(between, all(pair[0]), log_halves), squared};
}

// Compute means and log factors of both halves, of the right one for its first `right_workers`
// only. The widest levels have the smallest sum of squares; it is subtracted, so that only an offset
// can put an exponent above 0, and that of the widest levels is 0.
template <int D, int LEVELS>
[[gnu::noinline]] inline void grow_halves(
    const Enumeration& e, int64_t right_workers, int64_t n_levels, EnumerationArrays& s) {
    const int64_t d = D ? D : e.dimension, K = LEVELS ? LEVELS : n_levels;
    const int64_t n_left = e.left.n_configurations;
    for (int64_t j = 0; j < d; ++j) {
        s.left_mean[j] = e.prior_precision > 0.0 ? s.prior_mean[j] : all(0.0);
        s.right_mean[j] = all(0.0);
    }
    s.left_log[0] = s.right_log[0] = all(0.0);
    const vec* right_value = s.value + e.left.n_workers * d;
    const vec* last_value = right_value + (e.right.n_workers - 1) * d;
    grow<D>(e.left, e.left.n_workers, K, d, s.value, s.left_mean, s.left_log);
    grow<D>(e.right, right_workers, K, d, right_value, s.right_mean, s.right_log);
    const Leaves leaves(e, K, s);
    for (int64_t a = 0; a < n_left; ++a)
        for (int64_t j = 0; j < d; ++j)
            s.left_away[a * d + j] = last_value[j] - leaves.mean_a[a * d + j];
    const int64_t a = e.left.widest, b = e.right.widest, p = b / K;
    const int64_t n_right = e.right.n_configurations;
    const Pair widest = pair_up<D>(
        e.pair + 2 * (e.row[a] * (n_right / K) + p), d, leaves.mean_a + a * d, s.left_away + a * d,
        leaves.mean_p + p * d, leaves.log_a[a] + leaves.log_p[p]);
    const vec cost = all(e.join[2 * (e.row[a] * n_right + b)]);
    const vec highest = fma(widest.squared, cost, widest.log_factor);
    vec* log_a = s.left_log + e.left.tree_size - n_left;
    for (int64_t c = 0; c < n_left; ++c) log_a[c] = log_a[c] - highest;
}

// M2, for ROWS configurations of the left half at once, from `first` on: call visit(b, exponents)
// with the log2 factors for every configuration b of the right half. Needs grow_halves.
template <int ROWS, int D, int LEVELS, class Visit>
[[gnu::always_inline]] inline void meet(
    const Enumeration& e, int64_t n_levels, const EnumerationArrays& s, int64_t first,
    Visit visit) {
    const int64_t d = D ? D : e.dimension, K = LEVELS ? LEVELS : n_levels;
    const int64_t n_right = e.right.n_configurations, n_before = n_right / K;
    const Leaves leaves(e, K, s);
    const double *pair[ROWS], *join[ROWS];
    vec log_a[ROWS], mean_a[ROWS][D ? D : 1], away_a[ROWS][D ? D : 1];
    for (int row = 0; row < ROWS; ++row) {
        const int64_t a = first + row;
        pair[row] = e.pair + 2 * e.row[a] * n_before, join[row] = e.join + 2 * e.row[a] * n_right;
        log_a[row] = leaves.log_a[a];
        for (int j = 0; j < D; ++j)
            mean_a[row][j] = leaves.mean_a[a * d + j], away_a[row][j] = s.left_away[a * d + j];
    }
    for (int64_t p = 0; p < n_before; ++p) {
        Pair both[ROWS];
        for (int row = 0; row < ROWS; ++row) {
            const int64_t at = (first + row) * d;
            both[row] = pair_up<D>(
                pair[row] + 2 * p, d, D ? mean_a[row] : leaves.mean_a + at,
                D ? away_a[row] : s.left_away + at, leaves.mean_p + p * d,
                log_a[row] + leaves.log_p[p]);
        }
        auto join_last = [&](int64_t b) {
            vec exponent[ROWS];
            for (int row = 0; row < ROWS; ++row) {
                const double* at = join[row] + 2 * b;
                const vec log_factor = all(at[1]) + both[row].log_factor;
                exponent[row] = fma(both[row].squared, all(at[0]), log_factor);
            }
            visit(b, exponent);
        };
#pragma GCC unroll 3
        for (int64_t k = 0; k < K; ++k) join_last(p * K + k);
    }
}

// Outer products of the messages of the last workers of a half: of none, of one, ... of all.
[[gnu::always_inline]] inline void grow_joint(
    const Half& half, int64_t K, const vec* __restrict message, vec* __restrict joint) {
    int64_t n = 1;
    joint[0] = all(1.0);
    for (int64_t u = half.n_workers - 1; u >= 0; --u, n *= K) {
        vec* next = joint + n;
        for (int64_t k = 0; k < K; ++k)
            for (int64_t r = 0; r < n; ++r) next[k * n + r] = message[u * K + k] * joint[r];
        joint = next;
    }
}

// M10, for ROWS configurations a of the left half at once, so that what belongs to b is loaded
// only once for them: what each half sees once the other half is summed out.
//
//     seen_by_left[a] = Σ_b C[a, b] joint_right[b],   seen_by_right[b] = Σ_a C[a, b] joint_left[a]
template <int ROWS, int D, int LEVELS, Factor USE>
[[gnu::always_inline]] inline void contract_rows(
    const Enumeration& e, int64_t K, const EnumerationArrays& s, int64_t a, vec* factor) {
    const int64_t n_right = e.right.n_configurations;
    const Leaves leaves(e, K, s);
    vec *seen_by_right = s.seen_by_right, seen[ROWS], joint[ROWS];
    for (int row = 0; row < ROWS; ++row) seen[row] = all(0.0), joint[row] = leaves.joint_a[a + row];
    auto add = [&](int64_t b, const vec* c) {
        vec seen_b = seen_by_right[b];
        const vec joint_b = leaves.joint_b[b];
        for (int row = 0; row < ROWS; ++row) {
            seen[row] = fma(c[row], joint_b, seen[row]);
            seen_b = fma(c[row], joint[row], seen_b);
        }
        seen_by_right[b] = seen_b;
    };
    if constexpr (USE == Factor::read) {
        for (int64_t b = 0; b < n_right; ++b) {
            vec c[ROWS];
            for (int row = 0; row < ROWS; ++row) c[row] = factor[row * n_right + b];
            add(b, c);
        }
    } else {
        meet<ROWS, D, LEVELS>(e, K, s, a, [&](int64_t b, const vec* exponent) VOXPOP_INLINE {
            vec c[ROWS];
            for (int row = 0; row < ROWS; ++row) {
                c[row] = exp2_nearly(exponent[row]);
                if constexpr (USE == Factor::fill) factor[row * n_right + b] = c[row];
            }
            add(b, c);
        });
    }
    for (int row = 0; row < ROWS; ++row) s.seen_by_left[a + row] = seen[row];
}

// One row that is left over.
template <Factor USE>
[[gnu::noinline]] inline void contract_row(
    const Enumeration& e, int64_t K, const EnumerationArrays& s, int64_t a, vec* factor) {
    contract_rows<1, 0, 0, USE>(e, K, s, a, factor);
}

template <int D, int LEVELS, Factor USE>
[[gnu::noinline]] inline void contract(
    const Enumeration& e, int64_t K, EnumerationArrays& s, vec* factor) {
    constexpr int rows = rows_at_once<LEVELS>;
    const int64_t n_left = e.left.n_configurations, n_right = e.right.n_configurations;
    for (int64_t b = 0; b < n_right; ++b) s.seen_by_right[b] = all(0.0);
    int64_t a = 0;
    for (; a + rows <= n_left; a += rows)
        contract_rows<rows, D, LEVELS, USE>(e, K, s, a, factor + a * n_right);
    for (; a < n_left; ++a) contract_row<USE>(e, K, s, a, factor + a * n_right);
}

// Sum what a half sees over all its workers but u, with their messages, for every u.
//
//     out[u, k] = Σ over configurations with level k for u of seen Π_{v≠u} message[v]
//
// Workers before u are summed out of `seen` one by one; those after u come as one joint.
[[gnu::always_inline]] inline void leave_one_out(
    const Half& half, int64_t K, const vec* message, const vec* joint, vec* seen, vec* out) {
    int64_t n = half.n_configurations;
    joint += half.tree_size - n;
    for (int64_t u = 0; u < half.n_workers; ++u) {
        n /= K;
        joint -= n;
        for (int64_t k = 0; k < K; ++k) {
            vec total = all(0.0);
            for (int64_t r = 0; r < n; ++r) total = fma(seen[k * n + r], joint[r], total);
            out[u * K + k] = total;
        }
        for (int64_t r = 0; r < n; ++r) {
            vec total = seen[r] * message[u * K];
            for (int64_t k = 1; k < K; ++k)
                total = fma(seen[k * n + r], message[u * K + k], total);
            seen[r] = total;
        }
    }
}

}  // namespace voxpop::VOXPOP_VARIANT
