// What is known of the truths of a block of tasks, from the beliefs in all configurations.
#pragma once

#include "enumerate_logs.hpp"
#include "mixture.hpp"

namespace voxpop::VOXPOP_VARIANT {

// Components below this share of a mixture, divided by their number, are left out of quantiles.
constexpr double dropped_mass = 1e-9;

struct PosteriorArrays {
    vec *belief, *left_joint, *right_joint, *estimate, *variance;
    double *weight, *sd, *mean;  // of one task's mixture
};

inline PosteriorArrays carve_posterior(const Enumeration& e, Workspace& workspace) {
    const int64_t n_left = e.left.n_configurations, n_right = e.right.n_configurations;
    const int64_t d = e.dimension, n = n_left * n_right;
    PosteriorArrays s;
    s.belief = (vec*)workspace.slot(2, lanes * (n + n_left + n_right + 2 * d));
    s.left_joint = s.belief + n, s.right_joint = s.left_joint + n_left;
    s.estimate = s.right_joint + n_right, s.variance = s.estimate + d;
    s.weight = workspace.slot(3, n * (2 + d));
    s.sd = s.weight + n, s.mean = s.sd + n;
    return s;
}

// M5: belief in every configuration, C times all messages, in shares of the sum.
inline void believe(
    const Enumeration& e, int64_t K, const EnumerationArrays& a, PosteriorArrays& s) {
    const int64_t n_left = e.left.n_configurations, n_right = e.right.n_configurations;
    for (int64_t i = 0; i < n_left; ++i) s.left_joint[i] = log_joint(e.left, K, a.message, i);
    for (int64_t i = 0; i < n_right; ++i)
        s.right_joint[i] = log_joint(e.right, K, a.message + e.left.n_workers * K, i);
    vec top = all(log_of_nothing), total = all(0.0);
    visit_factors(e, K, a, [&](int64_t i, int64_t j, vec log_c) {
        const vec log_belief = log_c + s.left_joint[i] + s.right_joint[j];
        s.belief[i * n_right + j] = log_belief;
        top = max(top, log_belief);
    });
    for (int64_t c = 0; c < n_left * n_right; ++c) {
        s.belief[c] = exp2(s.belief[c] - top);
        total = total + s.belief[c];
    }
    for (int64_t c = 0; c < n_left * n_right; ++c) s.belief[c] = s.belief[c] / total;
}

// Mean of the truth in a configuration: that of the halves, by their precisions.
//
//     m = m_a + W_b / W (m_b - m_a)
struct Means {
    const vec *left, *right;
    const double* meet;  // (rows, right, 2): W_b / W and 1 / W
    const Enumeration& e;

    Means(const Enumeration& e, int64_t K, const EnumerationArrays& a)
        : left(Leaves(e, K, a).mean_a), right(Leaves(e, K, a).mean_b), meet(e.meet), e(e) {}

    const double* at(int64_t i, int64_t j) const {
        return meet + 2 * ((int64_t)e.row[i] * e.right.n_configurations + j);
    }
    vec operator()(int64_t i, int64_t j, int64_t coordinate) const {
        const vec a = left[i * e.dimension + coordinate];
        return fma(right[j * e.dimension + coordinate] - a, all(at(i, j)[0]), a);
    }
};

// M6, M7: mean and variance of the truths; variance = mean of 1/W + variance of the means.
inline void take_moments(const Enumeration& e, const Means& means, PosteriorArrays& s) {
    const int64_t n_left = e.left.n_configurations, n_right = e.right.n_configurations;
    for (int64_t k = 0; k < e.dimension; ++k) {
        vec mean = all(0.0), variance = all(0.0);
        for (int64_t i = 0; i < n_left; ++i)
            for (int64_t j = 0; j < n_right; ++j)
                mean = fma(s.belief[i * n_right + j], means(i, j, k), mean);
        for (int64_t i = 0; i < n_left; ++i)
            for (int64_t j = 0; j < n_right; ++j) {
                const vec away = means(i, j, k) - mean;
                const vec square = fma(away, away, all(means.at(i, j)[1]));
                variance = fma(s.belief[i * n_right + j], square, variance);
            }
        s.estimate[k] = mean, s.variance[k] = variance;
    }
}

// The components of one task's mixture that matter, with weights that sum to 1.
inline Mixture mixture_of(
    const Enumeration& e, const Means& means, const PosteriorArrays& s, int lane) {
    const int64_t n_left = e.left.n_configurations, n_right = e.right.n_configurations;
    const int64_t d = e.dimension;
    const double least = dropped_mass / (double)(n_left * n_right);
    int64_t n = 0;
    double total = 0.0;
    for (int64_t i = 0; i < n_left; ++i)
        for (int64_t j = 0; j < n_right; ++j) {
            const double share = s.belief[i * n_right + j][lane];
            if (!(share > least)) continue;
            s.weight[n] = share, total += share;
            s.sd[n] = __builtin_sqrt(means.at(i, j)[1]);
            for (int64_t k = 0; k < d; ++k) s.mean[n * d + k] = means(i, j, k)[lane];
            ++n;
        }
    for (int64_t c = 0; c < n; ++c) s.weight[c] /= total;
    return Mixture{n, d, s.weight, s.sd, s.mean};
}

}  // namespace voxpop::VOXPOP_VARIANT
