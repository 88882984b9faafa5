// The workers of a one-dimensional task as functions of its truth; lanes are points.
#pragma once

#include "messages.hpp"

namespace voxpop::VOXPOP_VARIANT {

// Terms below 2^this of the largest one are left out of a sum; thousands of them do not show.
constexpr double negligible = -64.0;

// What the integrals of a group have in common.
struct Law {
    int64_t degree, n_levels;
    const double *levels, *rate;  // s_k; (log2 e) / (2 s_k)
    double narrow, wide;          // the lowest and the widest level
    int64_t widest;               // its number
    double prior_precision;
    double accuracy, spare;       // what weighs nothing, and minus its log2
    double alpha;                 // step in units of a sd (M14)
};

// One task. Numbers of a block's other tasks lie between: every `lanes`th one is this task's.
struct Workers {
    const Law& law;
    const double* value;   // A_u
    const double* height;  // log2 of m_u(k) / sqrt(s_k)
    double prior_mean;

    double answer(int64_t u) const { return value[u * lanes]; }
    const double* heights(int64_t u) const { return height + u * law.n_levels * lanes; }

    // M12: log2 of the worker's function at some squared distances from the answer, and the mean
    // precision of its levels there if wanted.
    //
    //     F_u(x) = Σ_k m_u(k) N(A_u | x, s_k)
    template <bool PRECISION = false>
    vec log_function(int64_t u, vec squared, vec* precision = nullptr) const {
        const double *mine = heights(u), *rate = law.rate;
        vec top = fma(squared, all(-rate[0]), all(mine[0])), total = all(0.0), sum = all(0.0);
        for (int64_t k = 1; k < law.n_levels; ++k)
            top = max(top, fma(squared, all(-rate[k]), all(mine[k * lanes])));
        for (int64_t k = 0; k < law.n_levels; ++k) {
            vec exponent = fma(squared, all(-rate[k]), all(mine[k * lanes])) - top;
            if (!any_above(exponent, all(negligible))) continue;
            const vec term = exp2(exponent);
            total = total + term;
            if constexpr (PRECISION) sum = fma(term, all(rate[k]), sum);
        }
        if constexpr (PRECISION) *precision = all(2.0 * ln_2) * sum / total;
        return top + log2(total);
    }

    vec log_prior(vec x) const {
        const vec away = x - all(prior_mean);
        return away * away * all(-0.5 * log2_e * law.prior_precision);
    }
};

}  // namespace voxpop::VOXPOP_VARIANT
