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
        alpha /= g.refinement;
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

// The workers of one task: answers, and messages as heights of their functions. Numbers of a
// block's other tasks lie between: every `lanes`th one is this task's.
struct Workers {
    int64_t degree, n_levels;
    const double* value;   // A_u
    const double* height;  // log2 of m_u(k) / sqrt(s_k)
    const double* rate;    // (log2 e) / (2 s_k)

    double answer(int64_t u) const { return value[u * lanes]; }
    const double* heights(int64_t u) const { return height + u * n_levels * lanes; }

    // M12: log2 of the worker's function at some squared distances from the answer.
    //
    //     F_u(x) = Σ_k m_u(k) N(A_u | x, s_k)
    vec log_function(int64_t u, vec squared) const {
        const double* mine = heights(u);
        vec top = fma(squared, all(-rate[0]), all(mine[0])), total = all(0.0);
        for (int64_t k = 1; k < n_levels; ++k)
            top = max(top, fma(squared, all(-rate[k]), all(mine[k * lanes])));
        for (int64_t k = 0; k < n_levels; ++k) {
            vec exponent = fma(squared, all(-rate[k]), all(mine[k * lanes])) - top;
            if (any_above(exponent, all(negligible))) total = total + exp2(exponent);
        }
        return top + log2(total);
    }
};

// Scratch arrays of the integral of one task, in vectors of nodes.
struct IntegralArrays {
    int64_t n, n_nodes;     // vectors of nodes, and nodes
    vec *x, *total;         // nodes; log2 of weight and prior, in the end of P(x)
    vec *log_f;             // (degree, n): log2 F_u(x)
    vec *cavity, *squared;  // log2 P/F_u, (x - A_u)²
};

// Take one task's nodes out of its block, with the logs of their weights and of the prior.
inline IntegralArrays open_integral(
    const Nodes& nodes, int lane, const NodeRule& rule, double prior_mean, int64_t degree,
    Workspace& workspace) {
    IntegralArrays s;
    s.n_nodes = nodes.n[lane], s.n = (s.n_nodes + lanes - 1) / lanes;
    s.x = (vec*)workspace.slot(3, lanes * s.n * (4 + degree));
    s.total = s.x + s.n, s.cavity = s.total + s.n, s.squared = s.cavity + s.n;
    s.log_f = s.squared + s.n;
    double *x = (double*)s.x, *total = (double*)s.total;
    for (int64_t q = 0; q < s.n_nodes; ++q)
        x[q] = nodes.x[q][lane], total[q] = nodes.weight[q][lane];
    for (int64_t q = s.n_nodes; q < s.n * lanes; ++q) x[q] = x[q - 1], total[q] = 1.0;
    for (int64_t q = 0; q < s.n; ++q) {
        vec distance = s.x[q] - all(prior_mean);
        s.total[q] = log2(s.total[q]);
        if (rule.prior_precision > 0.0)
            s.total[q] = fma(
                distance * distance, all(-0.5 * log2_e * rule.prior_precision), s.total[q]);
    }
    for (int64_t q = s.n_nodes; q < s.n * lanes; ++q) total[q] = -1e300;
    return s;
}

// M12: log2 of each worker's function, and of the product of all with the prior.
//
//     P(x) = weight(x) prior(x) Π_u F_u(x)
inline void multiply_workers(IntegralArrays& s, const Workers& workers) {
    for (int64_t u = 0; u < workers.degree; ++u) {
        const vec answer = all(workers.answer(u));
        for (int64_t q = 0; q < s.n; ++q) {
            vec distance = s.x[q] - answer;
            vec log_f = workers.log_function(u, distance * distance);
            s.log_f[u * s.n + q] = log_f;
            s.total[q] = s.total[q] + log_f;
        }
    }
}

// M13: log2 of the message to one worker, by the trapezoid rule in logs.
//
//     m_{i→u}(k) ∝ ∫ P(x) / F_u(x) N(A_u | x, s_k) dx
inline void integrate_cavity(
    IntegralArrays& s, const Workers& workers, int64_t u, const double* log_scale, double* out) {
    const vec answer = all(workers.answer(u));
    for (int64_t q = 0; q < s.n; ++q) {
        vec distance = s.x[q] - answer;
        s.squared[q] = distance * distance;
        s.cavity[q] = s.total[q] - s.log_f[u * s.n + q];
    }
    for (int64_t k = 0; k < workers.n_levels; ++k) {
        const vec minus_rate = all(-workers.rate[k]);
        vec highest = all(-1e300), total = all(0.0);
        for (int64_t q = 0; q < s.n; ++q)
            highest = max(highest, fma(s.squared[q], minus_rate, s.cavity[q]));
        const double top = largest(highest);
        for (int64_t q = 0; q < s.n; ++q) {
            vec exponent = fma(s.squared[q], minus_rate, s.cavity[q]) - all(top);
            if (any_above(exponent, all(negligible))) total = total + exp2(exponent);
        }
        out[k * lanes] = top + log2(all(sum(total)))[0] - log_scale[k];
    }
}

}  // namespace voxpop::VOXPOP_VARIANT
