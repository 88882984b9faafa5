// The same messages in logs: slower, and safe for any finite input.
#pragma once

#include "enumerate.hpp"

namespace voxpop::VOXPOP_VARIANT {

// Stands for the log of nothing; finite, so that differences stay numbers.
constexpr double log_of_nothing = -1e300;

// Call visit(a, b, log2 of the factor) for every pair of configurations, as in the linear form.
template <class Visit>
inline void visit_factors(
    const Enumeration& e, int64_t K, const EnumerationArrays& s, Visit visit) {
    for (int64_t a = 0; a < e.left.n_configurations; ++a)
        meet<1, 0, 0>(e, K, s, a, [&](int64_t b, const vec* exponent) {
            visit(a, b, max(exponent[0], all(log_of_nothing)));
        });
}

// Sum of the log2 messages of a half's workers in one configuration.
inline vec log_joint(const Half& half, int64_t K, const vec* message, int64_t configuration) {
    vec total = all(0.0);
    for (int64_t u = half.n_workers - 1; u >= 0; --u, configuration /= K)
        total = total + message[u * K + configuration % K];
    return total;
}

// Leave-one-out of a half in logs, from belief = log2(seen) + Σ_v log2 message[v].
//
// The own message is one constant on a slice, so taking it off its log is exact.
inline void leave_one_out_in_logs(
    const Half& half, int64_t K, const vec* message, const vec* belief, vec* out) {
    int64_t n = half.n_configurations;
    for (int64_t u = 0; u < half.n_workers; ++u) {
        n /= K;
        for (int64_t k = 0; k < K; ++k) {
            vec top = all(log_of_nothing), total = all(0.0);
            for (int64_t c = 0; c < half.n_configurations; ++c)
                if (c / n % K == k) top = max(top, belief[c]);
            for (int64_t c = 0; c < half.n_configurations; ++c)
                if (c / n % K == k) total = total + exp2(belief[c] - top);
            out[u * K + k] = top + log2(total) - message[u * K + k];
        }
    }
}

// Write log messages (natural, not normalised) of a block to `out`; needs grow_halves.
//
//     seen_by_left[a] = log2 Σ_b 2^(log2 C[a, b] + Σ_v log2 message[v, b]), and so for the right
inline void send_in_logs(
    const Enumeration& e, const Messages& m, const EnumerationArrays& s, Workspace& workspace,
    vec* out) {
    const int64_t K = m.n_levels, n_left = e.left.n_configurations;
    const int64_t n_right = e.right.n_configurations, n_messages = m.degree * K;
    vec* message = (vec*)workspace.slot(1, lanes * (n_messages + 3 * (n_left + n_right)));
    vec *left_joint = message + n_messages, *right_joint = left_joint + n_left;
    vec *left_top = right_joint + n_right, *right_top = left_top + n_left;
    vec *left_sum = right_top + n_right, *right_sum = left_sum + n_left;
    const vec* right_message = message + e.left.n_workers * K;
    for (int64_t j = 0; j < n_messages; ++j) message[j] = s.incoming[j] * all(log2_e);
    for (int64_t a = 0; a < n_left; ++a) {
        left_joint[a] = log_joint(e.left, K, message, a);
        left_top[a] = all(log_of_nothing), left_sum[a] = all(0.0);
    }
    for (int64_t b = 0; b < n_right; ++b) {
        right_joint[b] = log_joint(e.right, K, right_message, b);
        right_top[b] = all(log_of_nothing), right_sum[b] = all(0.0);
    }
    visit_factors(e, K, s, [&](int64_t a, int64_t b, vec log_c) {
        left_top[a] = max(left_top[a], log_c + right_joint[b]);
        right_top[b] = max(right_top[b], log_c + left_joint[a]);
    });
    visit_factors(e, K, s, [&](int64_t a, int64_t b, vec log_c) {
        left_sum[a] = left_sum[a] + exp2(log_c + right_joint[b] - left_top[a]);
        right_sum[b] = right_sum[b] + exp2(log_c + left_joint[a] - right_top[b]);
    });
    for (int64_t a = 0; a < n_left; ++a)
        left_sum[a] = left_top[a] + log2(left_sum[a]) + left_joint[a];
    for (int64_t b = 0; b < n_right; ++b)
        right_sum[b] = right_top[b] + log2(right_sum[b]) + right_joint[b];
    leave_one_out_in_logs(e.left, K, message, left_sum, out);
    leave_one_out_in_logs(e.right, K, right_message, right_sum, out + e.left.n_workers * K);
    for (int64_t j = 0; j < n_messages; ++j) out[j] = out[j] * all(ln_2);
}

}  // namespace voxpop::VOXPOP_VARIANT
