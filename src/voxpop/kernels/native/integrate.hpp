// Integration over the truth of one-dimensional tasks: lanes are nodes of one task's integral.
#pragma once

#include "messages.hpp"

namespace voxpop::VOXPOP_VARIANT {

// Terms below 2^this of the largest one are left out of a sum; thousands of them do not show.
constexpr double negligible = -64.0;
// Most nodes to spend on the empty space between answers that no level reaches across.
constexpr double most_wide_nodes = 6000.0;
// Least sd that nodes try to resolve, as a share of the range of a task's answers.
constexpr double finest_share = 1e-12;

// Constants of the rule that places the nodes (M14), the same as in integrate.py.
struct NodeRule {
    double alpha, padding, reach, narrow, prior_precision, pull, margin, flattest;

    NodeRule(const Integration& g, int64_t degree, int64_t K) {
        alpha = 3.14159265358979323846 * __builtin_sqrt(2.0 / __builtin_log(2.0 / g.accuracy));
        padding = __builtin_sqrt(2.0 * __builtin_log(1.0 / g.accuracy));
        reach = 1.5 * padding;
        double wide = narrow = g.levels[0];
        for (int64_t k = 1; k < K; ++k) {
            narrow = g.levels[k] < narrow ? g.levels[k] : narrow;
            wide = g.levels[k] > wide ? g.levels[k] : wide;
        }
        const double l = (double)degree, others = l > 2.0 ? l - 1.0 : 1.0;
        prior_precision = 1.0 / g.prior_variance;
        // However precise the workers, their mean is drawn to the prior's.
        pull = (l / narrow) / (l / narrow + prior_precision);
        margin = padding / __builtin_sqrt(others / wide + prior_precision);
        flattest = l / wide + prior_precision;
    }
};

// Nodes of a block, one task per lane: x and weight of node q are x[q], weight[q].
struct Nodes {
    vec *x, *weight;
    int64_t n[lanes];
};

// Walk from the lowest answer to the highest in steps that follow the local scale (M14).
//
//     W(x) = Σ_u 1 / (s_min + ((x - A_u) / reach)²) + l / s_max + 1 / tau²
//     x' = x + alpha / sqrt(W(x)),   weight' = weight dx'/dx
inline Nodes place_nodes(
    const NodeRule& rule, const vec* value, vec prior_mean, int64_t degree, Workspace& workspace) {
    vec low = value[0], high = value[0];
    for (int64_t u = 1; u < degree; ++u) low = min(low, value[u]), high = max(high, value[u]);
    if (rule.prior_precision > 0.0) {
        low = prior_mean + min(all(rule.pull) * (low - prior_mean), all(0.0));
        high = prior_mean + max(all(rule.pull) * (high - prior_mean), all(0.0));
    }
    low = low - all(rule.margin), high = high + all(rule.margin);
    vec fewest = all(rule.alpha * most_wide_nodes) / (high - low);
    const vec flattest = min(all(rule.flattest), fewest * fewest);
    // A step that the spacing of floating-point numbers would swallow leads nowhere.
    const vec finest_sd = all(finest_share) * (high - low);
    const vec finest = max(all(rule.narrow), finest_sd * finest_sd);
    const vec per_reach = all(1.0 / (rule.reach * rule.reach));
    Nodes nodes;
    int64_t capacity = 0, q = 0;
    vec x = low, weight = all(1.0), count = all(0.0);
    for (;; ++q) {
        vec inside = where_above(x, high, all(0.0), all(1.0));
        if (!any_above(inside, all(0.5))) break;
        if (q == capacity) {
            capacity = capacity ? 2 * capacity : 512;
            nodes.x = (vec*)workspace.slot(1, lanes * capacity);
            nodes.weight = (vec*)workspace.slot(2, lanes * capacity);
        }
        nodes.x[q] = x, nodes.weight[q] = weight;
        count = count + inside;
        vec total = flattest, slope = all(0.0);
        for (int64_t u = 0; u < degree; ++u) {
            vec distance = x - value[u];
            vec precision = all(1.0) / fma(distance * distance, per_reach, finest);
            total = total + precision;
            slope = fma(distance * precision, precision, slope);
        }
        vec step = all(rule.alpha) / sqrt(total);
        weight = weight * (all(1.0) + step * slope * per_reach / total);
        x = x + step;
    }
    for (int lane = 0; lane < lanes; ++lane) nodes.n[lane] = (int64_t)count[lane];
    return nodes;
}

// Scratch arrays of the integral of one task, in vectors of nodes.
struct IntegralArrays {
    int64_t n;             // vectors of nodes
    vec *x, *total;        // nodes; log2 of P(x) times the weight
    vec *log_f;            // (degree, n): log2 F_u(x)
    vec *cavity, *squared;  // log2 P/F_u, (x - A_u)²
};

// M12: log2 of each worker's function, and of the product of all with the prior.
//
//     F_u(x) = Σ_k m_u(k) N(A_u | x, s_k),   P(x) = weight(x) prior(x) Π_u F_u(x)
//
// `height[u, k]` is log2 of m_u(k) / sqrt(s_k), `rate[k]` is (log2 e) / (2 s_k); every `lanes`th
// number of height and value is this task's.
inline void multiply_workers(
    IntegralArrays& s, int64_t degree, int64_t K, const double* value, const double* height,
    const double* rate) {
    for (int64_t u = 0; u < degree; ++u) {
        const vec answer = all(value[u * lanes]);
        const double* mine = height + u * K * lanes;
        for (int64_t q = 0; q < s.n; ++q) {
            vec distance = s.x[q] - answer, squared = distance * distance;
            vec top = fma(squared, all(-rate[0]), all(mine[0]));
            for (int64_t k = 1; k < K; ++k)
                top = max(top, fma(squared, all(-rate[k]), all(mine[k * lanes])));
            vec total = all(0.0);
            for (int64_t k = 0; k < K; ++k) {
                vec exponent = fma(squared, all(-rate[k]), all(mine[k * lanes])) - top;
                if (any_above(exponent, all(negligible))) total = total + exp2(exponent);
            }
            vec log_f = top + log2(total);
            s.log_f[u * s.n + q] = log_f;
            s.total[q] = s.total[q] + log_f;
        }
    }
}

// M13: log2 of the message to one worker, by the trapezoid rule in logs.
//
//     m_{i→u}(k) ∝ ∫ P(x) / F_u(x) N(A_u | x, s_k) dx
inline void integrate_cavity(
    IntegralArrays& s, int64_t u, int64_t K, double value, const double* rate,
    const double* log_scale, double* out) {
    const vec answer = all(value);
    for (int64_t q = 0; q < s.n; ++q) {
        vec distance = s.x[q] - answer;
        s.squared[q] = distance * distance;
        s.cavity[q] = s.total[q] - s.log_f[u * s.n + q];
    }
    for (int64_t k = 0; k < K; ++k) {
        const vec minus_rate = all(-rate[k]);
        vec highest = all(-1e300);
        for (int64_t q = 0; q < s.n; ++q)
            highest = max(highest, fma(s.squared[q], minus_rate, s.cavity[q]));
        const double top = largest(highest);
        vec total = all(0.0);
        for (int64_t q = 0; q < s.n; ++q) {
            vec exponent = fma(s.squared[q], minus_rate, s.cavity[q]) - all(top);
            if (any_above(exponent, all(negligible))) total = total + exp2(exponent);
        }
        out[k * lanes] = top + log2(all(sum(total)))[0] - log_scale[k];
    }
}

}  // namespace voxpop::VOXPOP_VARIANT
