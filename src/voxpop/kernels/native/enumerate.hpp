// Joint enumeration of a block of tasks, one per lane: linear inside a task, halves contracted.
//
// The workers of a task are two halves, a configuration of levels is a pair (a, b). The prior
// counts as one more member of the left half. With W the precision, m the weighted mean and Q the
// weighted sum of squares about it of each half, the factor (M2) of the task is
//
//     log2 C[a, b] = offset[a, b] - (log2 e)/2 (Q[a] + Q[b] + W_a W_b / (W_a + W_b) |m_a - m_b|²)
//
// in which nothing cancels, and whose exponential is all that is done K^l times.
#pragma once

#include "messages.hpp"

namespace voxpop::VOXPOP_VARIANT {

// Linear sums below this may have lost terms: exp(-460), while float64 ends near exp(-700).
constexpr double unsafe = 1e-200;

// Rows of the factor that are worked out together; three is the best measured for K = 3.
#ifndef VOXPOP_ROWS
#define VOXPOP_ROWS 3
#endif
constexpr int rows_at_once = VOXPOP_ROWS;

// Scratch arrays of one block; "tree" arrays hold K^t vectors for t = 0 .. number of workers.
struct EnumerationArrays {
    vec *value, *prior_mean, *incoming, *message, *out;
    ivec* old;
    vec *left_mean, *right_mean, *left_log, *right_log, *left_joint, *right_joint;
    vec *seen_by_left, *seen_by_right, *scratch;
};

inline EnumerationArrays carve(const Enumeration& e, const Messages& m, Workspace& workspace) {
    const int64_t d = e.dimension, n_messages = m.degree * m.n_levels;
    const int64_t n_values = (m.degree + 1) * d;
    const int64_t trees = (d + 2) * (e.left.tree_size + e.right.tree_size);
    const int64_t seen = e.left.n_configurations + e.right.n_configurations;
    vec* next = (vec*)workspace.slot(0, lanes * (n_values + 4 * n_messages + trees + seen + 2 * m.n_levels));
    auto take = [&next](int64_t n) {
        vec* taken = next;
        next += n;
        return taken;
    };
    EnumerationArrays s;
    s.value = take(m.degree * d), s.prior_mean = take(d);
    s.incoming = take(n_messages), s.message = take(n_messages), s.out = take(n_messages);
    s.old = (ivec*)take(n_messages);
    s.left_mean = take(e.left.tree_size * d), s.right_mean = take(e.right.tree_size * d);
    s.left_log = take(e.left.tree_size), s.right_log = take(e.right.tree_size);
    s.left_joint = take(e.left.tree_size), s.right_joint = take(e.right.tree_size);
    s.seen_by_left = take(e.left.n_configurations);
    s.seen_by_right = take(e.right.n_configurations), s.scratch = take(2 * m.n_levels);
    return s;
}

// Let the workers of a half join one by one, in every configuration of their levels.
//
//     m' = m + w/W' (A - m),   Q' = Q + w W/W' |A - m|²
//
// `mean` and `log_half` (which is -Q/2 in powers of two) are trees; their leaves are last.
template <int D>
[[gnu::always_inline]] inline void grow(
    const Half& half, int64_t K, int64_t dimension, const vec* value, vec* __restrict mean,
    vec* __restrict log_half) {
    const int64_t d = D ? D : dimension;
    const double *gain = half.gain, *cost = half.cost;
    int64_t n = 1;
    for (int64_t u = 0; u < half.n_workers; ++u, value += d) {
        vec *next_mean = mean + n * d, *next_log = log_half + n;
        for (int64_t p = 0; p < n; ++p)
            for (int64_t k = 0; k < K; ++k) {
                vec squared = all(0.0), share = all(*gain++);
                vec* joined = next_mean + (p * K + k) * d;
                for (int64_t j = 0; j < d; ++j) {
                    vec move = value[j] - mean[p * d + j];
                    squared = fma(move, move, squared);
                    joined[j] = fma(move, share, mean[p * d + j]);
                }
                next_log[p * K + k] = fma(squared, all(*cost++), log_half[p]);
            }
        mean = next_mean, log_half = next_log, n *= K;
    }
}

inline vec squared_distance(const vec* a, const vec* b, int64_t d) {
    vec squared = (a[0] - b[0]) * (a[0] - b[0]);
    for (int64_t j = 1; j < d; ++j) squared = fma(a[j] - b[j], a[j] - b[j], squared);
    return squared;
}

// Factors of the squared distance and offsets for one configuration of the left half.
inline const double* cross_row(const Enumeration& e, int64_t a) {
    return e.cross + 2 * (int64_t)e.row[a] * e.right.n_configurations;
}

// Work out means and log factors of both halves. The widest levels have the smallest sum of
// squares; it is taken off, so that no exponent
// but its offset is above 0, and that one is 0.
template <int D>
[[gnu::always_inline]] inline void grow_halves(const Enumeration& e, int64_t K, EnumerationArrays& s) {
    const int64_t d = D ? D : e.dimension;
    for (int64_t j = 0; j < d; ++j) {
        s.left_mean[j] = e.has_prior ? s.prior_mean[j] : all(0.0);
        s.right_mean[j] = all(0.0);
    }
    s.left_log[0] = s.right_log[0] = all(0.0);
    grow<D>(e.left, K, d, s.value, s.left_mean, s.left_log);
    grow<D>(e.right, K, d, s.value + e.left.n_workers * d, s.right_mean, s.right_log);
    int64_t a = e.left.tree_size - e.left.n_configurations + e.left.widest;
    int64_t b = e.right.tree_size - e.right.n_configurations + e.right.widest;
    double factor = cross_row(e, e.left.widest)[2 * e.right.widest];
    vec squared = squared_distance(s.left_mean + a * d, s.right_mean + b * d, d);
    vec highest = s.left_log[a] + s.right_log[b] + squared * all(factor);
    vec* left_log = s.left_log + e.left.tree_size - e.left.n_configurations;
    for (int64_t c = 0; c < e.left.n_configurations; ++c) left_log[c] = left_log[c] - highest;
}

// Outer products of the messages of the last workers of a half: of none, of one, ... of all.
[[gnu::always_inline]] inline void grow_joint(const Half& half, int64_t K, const vec* message, vec* joint) {
    int64_t n = 1;
    joint[0] = all(1.0);
    for (int64_t u = half.n_workers - 1; u >= 0; --u, n *= K) {
        vec* next = joint + n;
        for (int64_t k = 0; k < K; ++k)
            for (int64_t r = 0; r < n; ++r) next[k * n + r] = message[u * K + k] * joint[r];
        joint = next;
    }
}

// Leaves of the trees of both halves: one number (d for means) per configuration.
struct Leaves {
    const vec *mean_a, *mean_b, *log_a, *log_b, *joint_a, *joint_b;

    Leaves(const Enumeration& e, const EnumerationArrays& s) {
        const int64_t a = e.left.tree_size - e.left.n_configurations;
        const int64_t b = e.right.tree_size - e.right.n_configurations;
        mean_a = s.left_mean + a * e.dimension, mean_b = s.right_mean + b * e.dimension;
        log_a = s.left_log + a, log_b = s.right_log + b;
        joint_a = s.left_joint + a, joint_b = s.right_joint + b;
    }
};

// M10, for ROWS configurations a of the left half at once, so that what belongs to b is loaded
// only once for them: what each half sees once the other half is summed out.
//
//     seen_by_left[a] = Σ_b C[a, b] joint_right[b],   seen_by_right[b] = Σ_a C[a, b] joint_left[a]
template <int ROWS, int D, Factor USE>
inline void contract_rows(
    const Enumeration& e, const Leaves& leaves, int64_t a, vec* seen_by_left,
    vec* __restrict seen_by_right, vec* __restrict factor) {
    const int64_t d = D ? D : e.dimension, n_right = e.right.n_configurations;
    const vec *log_b = leaves.log_b, *joint_b = leaves.joint_b, *mean_b = leaves.mean_b;
    const double* cross[ROWS];
    vec seen[ROWS], joint[ROWS], log_half[ROWS], mean[ROWS][D ? D : 1];
    for (int row = 0; row < ROWS; ++row) {
        seen[row] = all(0.0), joint[row] = leaves.joint_a[a + row];
        cross[row] = cross_row(e, a + row);
        if constexpr (USE != Factor::read) {
            log_half[row] = leaves.log_a[a + row];
            for (int j = 0; j < D; ++j) mean[row][j] = leaves.mean_a[(a + row) * d + j];
        }
    }
    for (int64_t b = 0; b < n_right; ++b) {
        vec seen_b = seen_by_right[b];
        for (int row = 0; row < ROWS; ++row) {
            vec c;
            if constexpr (USE == Factor::read) {
                c = factor[row * n_right + b];
            } else {
                const vec* mean_row = D ? mean[row] : leaves.mean_a + (a + row) * d;
                vec squared = squared_distance(mean_row, mean_b + b * d, d);
                const double* at = cross[row] + 2 * b;
                c = exp2_nearly(fma(squared, all(at[0]), all(at[1]) + log_half[row]) + log_b[b]);
                if constexpr (USE == Factor::fill) factor[row * n_right + b] = c;
            }
            seen[row] = fma(c, joint_b[b], seen[row]);
            seen_b = fma(c, joint[row], seen_b);
        }
        seen_by_right[b] = seen_b;
    }
    for (int row = 0; row < ROWS; ++row) seen_by_left[a + row] = seen[row];
}

template <int D, Factor USE>
inline void contract(const Enumeration& e, EnumerationArrays& s, vec* factor) {
    const int64_t n_left = e.left.n_configurations, n_right = e.right.n_configurations;
    const Leaves leaves(e, s);
    for (int64_t b = 0; b < n_right; ++b) s.seen_by_right[b] = all(0.0);
    int64_t a = 0;
    for (; a + rows_at_once <= n_left; a += rows_at_once)
        contract_rows<rows_at_once, D, USE>(
            e, leaves, a, s.seen_by_left, s.seen_by_right, factor + a * n_right);
    for (; a < n_left; ++a)
        contract_rows<1, D, USE>(
            e, leaves, a, s.seen_by_left, s.seen_by_right, factor + a * n_right);
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
