// The posterior of the truths of tasks whose workers have mostly settled.
#pragma once

#include "active_sweep.hpp"
#include "enumerate_posterior.hpp"

namespace voxpop::VOXPOP_VARIANT {

// Components of the mixtures of a block: logs, then shares; 1/W; means (n, dimension).
struct Components {
    int64_t n;
    vec *share, *variance, *mean;
};

// M6: the settled configurations, and those with one settled worker at another level.
inline Components find_components(
    const Enumeration& e, const Messages& m, int64_t n_free, ActiveArrays& s,
    Workspace& workspace) {
    const int64_t d = e.dimension, K = m.n_levels, degree = m.degree;
    const int64_t room = (1 + degree * (K - 1)) << n_free;
    Components c{0, (vec*)workspace.slot(6, lanes * room * (2 + d)), nullptr, nullptr};
    c.variance = c.share + room, c.mean = c.variance + room;
    line_up<0>(degree, K, s);
    for (int64_t number = 0; number < 1 << n_free; ++number) {
        const vec log_weight = settle<0, true, false>(e, degree, K, n_free, number, s);
        vec total = all(e.prior_precision);
        for (int64_t u = 0; u < degree; ++u) total = total + s.precision[u];
        c.share[c.n] = log_weight, c.variance[c.n] = all(1.0) / total;
        const vec* mean = c.mean + c.n * d;
        for (int64_t j = 0; j < d; ++j) c.mean[c.n * d + j] = s.value[j] - s.away[j];
        ++c.n;
        for (int64_t u = 0; u < degree; ++u)
            for (int64_t k = first_change(number, u, n_free, K); k < K; ++k, ++c.n) {
                const int64_t f = u * K + k;
                c.share[c.n] = log_weight + s.message[f] - s.message[u * K] + s.change[f];
                c.variance[c.n] = s.per_after[f];
                for (int64_t j = 0; j < d; ++j)
                    c.mean[c.n * d + j] = fma(s.step[f], s.away[u * d + j], mean[j]);
            }
    }
    vec top = all(log_nothing), sum = all(0.0);
    for (int64_t i = 0; i < c.n; ++i) top = max(top, c.share[i]);
    for (int64_t i = 0; i < c.n; ++i) sum = sum + (c.share[i] = exp2(c.share[i] - top));
    for (int64_t i = 0; i < c.n; ++i) c.share[i] = c.share[i] / sum;
    return c;
}

static void active_posterior(
    const Enumeration& e, const Truths& t, int64_t first_block, int64_t last_block,
    Workspace& workspace) {
    const int64_t d = e.dimension;
    ActiveArrays s = carve_active(e, t.messages, workspace);
    auto settled = [&](const Block& block, int64_t n_free, LaneQueue&) {
        const Components c = find_components(e, t.messages, n_free, s, workspace);
        write_posterior(t, block, d, c.n, workspace, [&](auto visit) {
            for (int64_t i = 0; i < c.n; ++i)
                visit(c.share[i], c.variance[i], [&](int64_t j) { return c.mean[i * d + j]; });
        });
    };
    auto dense = [&](const Block& block) { enumerate_posterior_of(e, t, block, workspace); };
    for_settled(e, t.messages, first_block, last_block, active_steps<0, 0>(), s, workspace, settled, dense);
}

}  // namespace voxpop::VOXPOP_VARIANT
