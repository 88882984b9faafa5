// What is known of the truths of tasks whose workers have mostly settled.
#pragma once

#include "active.hpp"
#include "enumerate_posterior.hpp"

namespace voxpop::VOXPOP_VARIANT {

// Components of the mixtures of a block: logs, then shares; 1/W; means (n, dimension).
struct Components {
    int64_t n;
    vec *share, *variance, *mean;
    double *weight, *sd, *centre;  // of one task's mixture
};

// M6: the settled configurations, and those with one settled worker at another level.
template <int D, int LEVELS, bool FREE>
inline Components find_components(
    const Active& a, int64_t degree, int64_t n_levels, int64_t n_free, ActiveArrays& s,
    Workspace& workspace) {
    const int64_t d = D ? D : a.dense.dimension, K = LEVELS ? LEVELS : n_levels;
    Components c;
    c.n = (1 + degree * (K - 1)) << n_free;
    c.share = (vec*)workspace.slot(6, (lanes + 1) * c.n * (2 + d));
    c.variance = c.share + c.n, c.mean = c.variance + c.n;
    c.weight = (double*)(c.mean + c.n * d), c.sd = c.weight + c.n, c.centre = c.sd + c.n;
    line_up<LEVELS>(degree, K, s);
    int64_t at = 0;
    for (int64_t number = 0; number < (FREE ? 1 << n_free : 1); ++number) {
        const vec log_weight = settle<D, LEVELS, FREE, false>(a, degree, K, n_free, number, s);
        vec total = all(a.prior_precision);
        for (int64_t u = 0; u < degree; ++u) total = total + s.precision[u];
        c.share[at] = log_weight, c.variance[at] = all(1.0) / total;
        const vec* mean = c.mean + at * d;
        for (int64_t j = 0; j < d; ++j) c.mean[at * d + j] = s.value[j] - s.away[j];
        ++at;
        for (int64_t u = 0; u < degree; ++u)
            for (int64_t of_u = FREE ? first_change(number, u, n_free, K) : 1; of_u < K;
                 ++of_u, ++at) {
                const int64_t f = u * K + of_u;
                c.share[at] = log_weight + s.said[f] - s.said[u * K] + s.change[f];
                c.variance[at] = s.per_after[f];
                for (int64_t j = 0; j < d; ++j)
                    c.mean[at * d + j] = fma(s.step[f], s.away[u * d + j], mean[j]);
            }
    }
    c.n = at;
    vec top = all(log_of_nothing), sum = all(0.0);
    for (int64_t i = 0; i < c.n; ++i) top = max(top, c.share[i]);
    for (int64_t i = 0; i < c.n; ++i) sum = sum + (c.share[i] = exp2(c.share[i] - top));
    for (int64_t i = 0; i < c.n; ++i) c.share[i] = c.share[i] / sum;
    return c;
}

// M7, M8: mean and variance in one coordinate.
inline void take_moments(const Components& c, int64_t d, int64_t j, vec& mean, vec& variance) {
    mean = variance = all(0.0);
    for (int64_t i = 0; i < c.n; ++i) mean = fma(c.share[i], c.mean[i * d + j], mean);
    for (int64_t i = 0; i < c.n; ++i) {
        const vec away = c.mean[i * d + j] - mean;
        variance = fma(c.share[i], fma(away, away, c.variance[i]), variance);
    }
}

// The components of one task's mixture that matter, with weights that sum to 1.
inline Mixture mixture_of(const Components& c, int64_t d, int lane) {
    int64_t n = 0;
    double total = 0.0;
    for (int64_t i = 0; i < c.n; ++i) {
        const double share = c.share[i][lane];
        if (!(share > dropped_mass / (double)c.n)) continue;
        c.weight[n] = share, total += share;
        c.sd[n] = __builtin_sqrt(c.variance[i][lane]);
        for (int64_t j = 0; j < d; ++j) c.centre[n * d + j] = c.mean[i * d + j][lane];
        ++n;
    }
    for (int64_t i = 0; i < n; ++i) c.weight[i] /= total;
    return Mixture{n, d, c.weight, c.sd, c.centre};
}

}  // namespace voxpop::VOXPOP_VARIANT
