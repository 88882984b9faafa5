// Integration over the truth of one-dimensional tasks: lanes are nodes of one task's integral.
#pragma once

#include "nodes.hpp"

namespace voxpop::VOXPOP_VARIANT {

// The law of a group, and a block of its tasks with room for what they hear and say.
struct IntegralBlocks {
    Law law;
    vec *value, *prior_mean, *height;
    double *rate, *log_scale;  // (log2 e) / (2 s_k); (log2 s_k) / 2

    IntegralBlocks(const Integration& g, int64_t degree, int64_t K, Workspace& workspace) {
        value = (vec*)workspace.slot(0, lanes * (degree + 1 + degree * K) + 2 * K);
        prior_mean = value + degree, height = prior_mean + 1;
        rate = (double*)(height + degree * K), log_scale = rate + K;
        law = Law{degree, K, g.levels, rate, g.levels[0], g.levels[0], 0, 1.0 / g.prior_variance,
                  g.accuracy, -log2_e * __builtin_log(g.accuracy),
                  3.14159265358979323846 * __builtin_sqrt(2.0 / __builtin_log(2.0 / g.accuracy))};
        for (int64_t k = 0; k < K; ++k) {
            rate[k] = 0.5 * log2_e / g.levels[k];
            log_scale[k] = 0.5 * log2_e * __builtin_log(g.levels[k]);
            law.narrow = g.levels[k] < law.narrow ? g.levels[k] : law.narrow;
            if (g.levels[k] > law.wide) law.wide = g.levels[k], law.widest = k;
        }
    }

    // Take the answers of a block; `height` holds the log messages that it hears.
    Tasks open(const Integration& g, const Block& block) {
        gather(g.value, law.degree, block, (double*)value);
        gather(g.prior_mean, 1, block, (double*)prior_mean);
        for (int64_t u = 0; u < law.degree; ++u)
            for (int64_t k = 0; k < law.n_levels; ++k) {
                vec& mine = height[u * law.n_levels + k];
                mine = mine * all(log2_e) - all(log_scale[k]);
            }
        return Tasks{law, value, height, *prior_mean};
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
    const Nodes& nodes, int lane, const Workers& workers, Workspace& workspace) {
    IntegralArrays s;
    s.n_nodes = nodes.n[lane], s.n = (s.n_nodes + lanes - 1) / lanes;
    s.x = (vec*)workspace.slot(3, lanes * s.n * (4 + workers.law.degree));
    s.total = s.x + s.n, s.cavity = s.total + s.n, s.squared = s.cavity + s.n;
    s.log_f = s.squared + s.n;
    double *x = (double*)s.x, *total = (double*)s.total;
    for (int64_t q = 0; q < s.n_nodes; ++q)
        x[q] = nodes.x[q][lane], total[q] = nodes.weight[q][lane];
    for (int64_t q = s.n_nodes; q < s.n * lanes; ++q) x[q] = x[q - 1], total[q] = 1.0;
    for (int64_t q = 0; q < s.n; ++q) {
        s.total[q] = log2(s.total[q]);
        if (workers.law.prior_precision > 0.0)
            s.total[q] = s.total[q] + workers.log_prior(s.x[q]);
    }
    for (int64_t q = s.n_nodes; q < s.n * lanes; ++q) total[q] = -1e300;
    return s;
}

// M12: log2 of each worker's function, and of the product of all with the prior.
//
//     P(x) = weight(x) prior(x) Π_u F_u(x)
inline void multiply_workers(IntegralArrays& s, const Workers& workers) {
    for (int64_t u = 0; u < workers.law.degree; ++u) {
        const vec answer = all(workers.answer(u));
        for (int64_t q = 0; q < s.n; ++q) {
            vec distance = s.x[q] - answer;
            vec log_f = workers.log_function(u, distance * distance);
            s.log_f[u * s.n + q] = log_f;
            s.total[q] = s.total[q] + log_f;
        }
    }
}

// M13: the message to one worker by the trapezoid rule: log2 of the largest term at each level,
// and the sum of all over it. Both are of every `lanes`th number, as in a block.
//
//     m_{i→u}(k) ∝ ∫ P(x) / F_u(x) N(A_u | x, s_k) dx
inline void integrate_cavity(
    IntegralArrays& s, const Workers& workers, int64_t u, double* tops, double* sums) {
    const vec answer = all(workers.answer(u));
    for (int64_t q = 0; q < s.n; ++q) {
        vec distance = s.x[q] - answer;
        s.squared[q] = distance * distance;
        s.cavity[q] = s.total[q] - s.log_f[u * s.n + q];
    }
    for (int64_t k = 0; k < workers.law.n_levels; ++k) {
        const vec minus_rate = all(-workers.law.rate[k]);
        vec highest = all(-1e300), total = all(0.0);
        for (int64_t q = 0; q < s.n; ++q)
            highest = max(highest, fma(s.squared[q], minus_rate, s.cavity[q]));
        const vec top = all(largest(highest));
        for (int64_t q = 0; q < s.n; ++q) {
            vec exponent = fma(s.squared[q], minus_rate, s.cavity[q]) - top;
            if (any_above(exponent, all(negligible))) total = total + exp2(exponent);
        }
        tops[k * lanes] = top[0], sums[k * lanes] = sum(total);
    }
}

}  // namespace voxpop::VOXPOP_VARIANT
