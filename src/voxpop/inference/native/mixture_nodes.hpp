// Nodes of rows under a rich noise model; one row per lane.
#pragma once

#include "mixture_integrand.hpp"

namespace voxpop::VOXPOP_VARIANT {

// The same as in mixture.py, where they are explained.
constexpr double bound_reach = 3.0, nearest_share = 1e-5;
constexpr int64_t most_mixture_nodes = 4001;

// Distance from a bound, not below `near` on either side.
inline vec gap_from(vec x, vec bound, vec near) {
    const vec gap = x - bound;
    const vec kept = where_above(all(0.0), gap, -near, near);
    return where_above(near, absolute(gap), kept, gap);
}

// Walk over the range of the truth in steps that follow the local scale (M14), and grow shorter
// towards a bound b within reach.
//
//     W(x) = Σ_u 1 / (narrow_u + ((x - a_u) / reach)²) + l / wide + 1 / tau² + Σ_b (3 / (x - b))²
//
// and, like an answer's, a term of the prior.
//
//     x' = x + alpha / sqrt(W(x)),   log weight' = log weight + log dx'/dx
inline MixtureNodes place_mixture(const MixtureReach& r, int64_t block, Workspace& workspace) {
    const double half_square = __builtin_log(1.0 / r.accuracy);
    const double alpha =
        3.14159265358979323846 * __builtin_sqrt(2.0 / __builtin_log(2.0 / r.accuracy));
    const double padding = __builtin_sqrt(2.0 * half_square), reach = 1.5 * padding;
    const double l = (double)r.degree, others = l > 2.0 ? l - 1.0 : 1.0;
    const double prior_precision = 1.0 / r.prior_variance;
    const bool prior_is_known = r.prior_narrow < infinite;
    vec* centre = (vec*)workspace.slot(0, 2 * lanes * r.degree);
    vec* narrow = centre + r.degree;
    vec wide, prior, low_bound, high_bound;
    for (int lane = 0; lane < lanes; ++lane) {
        // Lanes past the last row repeat it.
        const int64_t row =
            block * lanes + lane < r.n_rows ? block * lanes + lane : r.n_rows - 1;
        for (int64_t u = 0; u < r.degree; ++u) {
            centre[u][lane] = r.centre[row * r.degree + u];
            narrow[u][lane] = r.narrow[row * r.degree + u];
        }
        wide[lane] = r.wide[row], prior[lane] = r.prior_centre[row];
        low_bound[lane] = r.low[row], high_bound[lane] = r.high[row];
    }
    const vec least = all(l) / wide + all(prior_precision);
    const vec margin = all(padding) / sqrt(all(others) / wide + all(prior_precision));
    vec low = centre[0], high = centre[0], narrowest = narrow[0];
    for (int64_t u = 1; u < r.degree; ++u) {
        low = min(low, centre[u]), high = max(high, centre[u]);
        narrowest = min(narrowest, narrow[u]);
    }
    low = low - margin, high = high + margin;
    if (prior_precision > 0.0) low = min(low, prior - margin), high = max(high, prior + margin);
    const vec near = all(nearest_share) / sqrt(all(l) / narrowest + least);
    // A bound out of reach is as good as none.
    low_bound = where_above(low_bound, low, low_bound, all(-infinite));
    high_bound = where_above(high, high_bound, high_bound, all(infinite));
    low = max(low, low_bound + near), high = min(high, high_bound - near);
    high = max(high, low);
    const vec per_reach = all(1.0 / (reach * reach));
    MixtureNodes nodes{0, nullptr, nullptr};
    vec *xs = nullptr, *log_weights = nullptr, x = low, log_weight = all(0.0);
    int64_t capacity = 0;
    for (bool going = true; going; ++nodes.n) {
        if (nodes.n == capacity) {
            capacity = capacity ? 2 * capacity : 512;
            xs = (vec*)workspace.slot(1, lanes * capacity);
            log_weights = (vec*)workspace.slot(2, lanes * capacity);
        }
        const vec inside = where_above(x, high, all(0.0), all(1.0));
        xs[nodes.n] = min(x, high);
        log_weights[nodes.n] = where_above(x, high, all(-infinite), log_weight);
        going = any_above(inside, all(0.5)) && nodes.n + 1 < most_mixture_nodes;
        vec total = least, slope = all(0.0);
        for (int64_t u = 0; u < r.degree; ++u) {
            const vec distance = x - centre[u];
            const vec precision = all(1.0) / fma(distance * distance, per_reach, narrow[u]);
            total = total + precision;
            slope = fma(distance * precision, precision, slope);
        }
        if (prior_is_known) {
            const vec distance = x - prior;
            const vec precision =
                all(1.0) / fma(distance * distance, per_reach, all(r.prior_narrow));
            total = total + precision;
            slope = fma(distance * precision, precision, slope);
        }
        slope = slope * (all(-2.0) * per_reach);
        for (int side = 0; side < 2; ++side) {
            const vec bound = side ? high_bound : low_bound;
            const vec per_gap = all(1.0) / gap_from(x, bound, near);
            const vec square = all(bound_reach * bound_reach) * per_gap * per_gap;
            total = total + square;
            slope = slope - all(2.0) * square * per_gap;
        }
        const vec step = all(alpha) / sqrt(total);
        x = x + step;
        const vec growth = all(1.0) - all(0.5) * step * slope / total;
        log_weight = log_weight + log(max(growth, all(1e-12)));
    }
    nodes.x = (double*)xs, nodes.log_weight = (double*)log_weights;
    return nodes;
}

}  // namespace voxpop::VOXPOP_VARIANT
