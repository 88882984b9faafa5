// The same messages in logs: slower, and safe for any finite input.
#pragma once

#include "enumerate.hpp"

namespace voxpop::VOXPOP_VARIANT {

// Call visit(a, b, log2 of the factor) for every pair of configurations, as in the linear form.
template <class Visit>
inline void visit_factors(
    const Enumeration& e, int64_t K, const EnumerationArrays& s, Visit visit) {
    for (int64_t a = 0; a < e.left.n_configurations; ++a)
        meet<1, 0, 0>(e, K, s, a, [&](int64_t b, const vec* exponent) {
            visit(a, b, max(exponent[0], all(log_nothing)));
        });
}

// Sum of the log2 messages of a half's workers in one configuration.
inline vec log_joint(const Half& half, int64_t K, const vec* message, int64_t configuration) {
    vec total = all(0.0);
    for (int64_t u = half.n_workers - 1; u >= 0; --u, configuration /= K)
        total = total + message[u * K + configuration % K];
    return total;
}

// One half of a task in logs: its messages and their sums by configuration, and what each of these
// sees of the other half, as 2^top times a sum.
struct LogHalf {
    const Half& half;
    const vec* message;
    vec *joint, *top, *sum;

    LogHalf(const Half& half, int64_t K, const vec* message, vec* room)
        : half(half), message(message), joint(room), top(joint + half.n_configurations),
          sum(top + half.n_configurations) {
        for (int64_t c = 0; c < half.n_configurations; ++c) {
            joint[c] = log_joint(half, K, message, c);
            top[c] = all(log_nothing), sum[c] = all(0.0);
        }
    }

    // Sum all workers but one out of the belief, log2(seen) + Σ_v log2 message[v].
    //
    // A worker's own message is constant on a slice, so subtracting its log is exact.
    void leave_one_out(int64_t K, vec* out) {
        vec* belief = sum;
        int64_t n = half.n_configurations;
        for (int64_t c = 0; c < n; ++c) belief[c] = top[c] + log2(sum[c]) + joint[c];
        for (int64_t u = 0; u < half.n_workers; ++u) {
            n /= K;
            for (int64_t k = 0; k < K; ++k) {
                vec highest = all(log_nothing), total = all(0.0);
                for (int64_t c = 0; c < half.n_configurations; ++c)
                    if (c / n % K == k) highest = max(highest, belief[c]);
                for (int64_t c = 0; c < half.n_configurations; ++c)
                    if (c / n % K == k) total = total + exp2(belief[c] - highest);
                out[u * K + k] = (highest + log2(total) - message[u * K + k]) * all(ln_2);
            }
        }
    }
};

// Write log messages (natural, not normalised) of a block to `out`; needs grow_halves.
//
//     seen_by_left[a] = log2 Σ_b 2^(log2 C[a, b] + Σ_v log2 message[v, b]), and so for the right
inline void send_in_logs(
    const Enumeration& e, const Messages& m, const EnumerationArrays& s, Workspace& workspace,
    vec* out) {
    const int64_t K = m.n_levels, n_messages = m.degree * K, of_left = e.left.n_workers * K;
    const int64_t n_left = e.left.n_configurations, n_right = e.right.n_configurations;
    vec* message = (vec*)workspace.slot(1, lanes * (n_messages + 3 * (n_left + n_right)));
    for (int64_t j = 0; j < n_messages; ++j) message[j] = s.incoming[j] * all(log2_e);
    LogHalf left(e.left, K, message, message + n_messages);
    LogHalf right(e.right, K, message + of_left, message + n_messages + 3 * n_left);
    visit_factors(e, K, s, [&](int64_t a, int64_t b, vec log_c) {
        left.top[a] = max(left.top[a], log_c + right.joint[b]);
        right.top[b] = max(right.top[b], log_c + left.joint[a]);
    });
    visit_factors(e, K, s, [&](int64_t a, int64_t b, vec log_c) {
        left.sum[a] = left.sum[a] + exp2(log_c + right.joint[b] - left.top[a]);
        right.sum[b] = right.sum[b] + exp2(log_c + left.joint[a] - right.top[b]);
    });
    left.leave_one_out(K, out);
    right.leave_one_out(K, out + of_left);
}

}  // namespace voxpop::VOXPOP_VARIANT
