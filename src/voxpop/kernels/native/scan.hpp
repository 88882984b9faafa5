// Zoom in on the part of a task's range where some message can have mass; see kernels/nodes.py.
#pragma once

#include "workers.hpp"

namespace voxpop::VOXPOP_VARIANT {

// Points of one scan, how few nodes are not worth one, and most scans; as in nodes.py.
constexpr int n_points = 32, most_scans = 12;
constexpr double few_nodes = 64.0;

// Points x of a scan, padded so that neighbours can be loaded, and what is known there.
struct Scan {
    static constexpr int n_vectors = n_points / lanes;
    alignas(64) double x[n_points + lanes], total[n_points + lanes], q[n_points + lanes];
    alignas(64) double precision[n_points + lanes];
    vec curvature[n_vectors], score[n_vectors];  // between point i and point i + 1
    double *log_f, *top;                         // (degree, points), (degree, levels)
    vec *half_bend, *per_bend;                   // (levels, n_vectors)

    Scan(const Law& law, Workspace& workspace) {
        const int64_t l = law.degree, K = law.n_levels;
        log_f = workspace.slot(4, (l + 2 * K) * n_points + l * K);
        half_bend = (vec*)(log_f + l * n_points), per_bend = half_bend + K * n_vectors;
        top = (double*)(per_bend + K * n_vectors);
        for (int64_t j = 0; j < l * K; ++j) top[j] = -1e300;
        for (int i = n_points; i < n_points + lanes; ++i) q[i] = precision[i] = 0.0;
    }

    // M12 at all points, and the sum κ of the curvatures between them.
    void look(const Workers& workers, const double* peak) {
        const Law& law = workers.law;
        for (int i = 0; i < n_vectors; ++i) {
            at(total, i) = law.prior_precision > 0.0 ? workers.log_prior(at(x, i)) : all(0.0);
            curvature[i] = all(law.prior_precision);
        }
        for (int64_t u = 0; u < law.degree; ++u) {
            const vec answer = all(workers.answer(u));
            for (int i = 0; i < n_vectors; ++i) {
                const vec away = at(x, i) - answer;
                const vec found =
                    workers.log_function<true>(u, away * away, &at(precision, i));
                at(log_f + u * n_points, i) = found;
                at(total, i) = at(total, i) + found;
            }
            for (int i = 0; i < n_vectors; ++i) {
                const vec from = at(x, i) - answer, to = load(x + i * lanes + 1) - answer;
                const vec nearest = max(at(precision, i), load(precision + i * lanes + 1));
                curvature[i] = curvature[i] +
                    where_above(from * to, all(0.0), nearest, all(peak[u * lanes]));
            }
        }
    }

    // M14a: the most that any message's integrand can be between two points, over its largest.
    //
    //     q <= max(q_a, q_b) + (κh²/2 - |q_a - q_b|)₊² / (2κh²)
    void bound(const Workers& workers, double step) {
        const Law& law = workers.law;
        for (int i = 0; i < n_vectors; ++i) score[i] = all(-1e300);
        for (int64_t k = 0; k < law.n_levels; ++k)
            for (int i = 0; i < n_vectors; ++i) {
                const vec bend = (curvature[i] + all(1.0 / law.levels[k])) *
                                 all(step * step * log2_e);
                half_bend[k * n_vectors + i] = all(0.5) * bend;
                per_bend[k * n_vectors + i] = all(0.5) / bend;
            }
        for (int64_t u = 0; u < law.degree; ++u) {
            const vec answer = all(workers.answer(u));
            vec squared[n_vectors], cavity[n_vectors];
            for (int i = 0; i < n_vectors; ++i) {
                const vec away = at(x, i) - answer;
                squared[i] = away * away, cavity[i] = at(total, i) - at(log_f + u * n_points, i);
            }
            for (int64_t k = 0; k < law.n_levels; ++k) {
                double& highest = top[u * law.n_levels + k];
                vec higher = all(highest);
                for (int i = 0; i < n_vectors; ++i) {
                    at(q, i) = fma(squared[i], all(-law.rate[k]), cavity[i]);
                    higher = max(higher, at(q, i));
                }
                highest = largest(higher);
                for (int i = 0; i < n_vectors; ++i) {
                    const vec a = at(q, i), b = load(q + i * lanes + 1);
                    const vec excess =
                        max(half_bend[k * n_vectors + i] - absolute(a - b), all(0.0));
                    const vec claim =
                        fma(excess * excess, per_bend[k * n_vectors + i], max(a, b));
                    score[i] = max(score[i], claim - all(highest));
                }
            }
        }
    }

    static vec& at(double* array, int i) { return ((vec*)array)[i]; }
};

// Narrow the range of one task down; give up where that gains little.
inline void zoom(
    const Workers& workers, const double* peak, double& low, double& high, Workspace& workspace) {
    const Law& law = workers.law;
    const double l = (double)law.degree, spare = law.spare * ln_2;
    const double reach = 1.5 * __builtin_sqrt(2.0 * spare);
    const double most = __builtin_sqrt(l / law.narrow + law.prior_precision);
    const double per_width = 0.5 / (reach * __builtin_sqrt(law.narrow));
    const double nodes = 2.0 * reach * __builtin_sqrt(l) / law.alpha;
    if (!(nodes * __builtin_asinh((high - low) * per_width) > few_nodes)) return;
    Scan scan(law, workspace);
    for (int n = 0; n < most_scans; ++n) {
        const double width = high - low;
        if (!(nodes * __builtin_asinh(width * per_width) > few_nodes)) return;
        for (int i = 0; i < n_points + lanes; ++i) {
            const double share = (double)(i < n_points ? i : n_points - 1) / (n_points - 1.0);
            scan.x[i] = low + width * share;
        }
        scan.look(workers, peak);
        scan.bound(workers, scan.x[1] - scan.x[0]);
        const double least = -law.spare - log2_e * __builtin_log1p(width * most);
        const double* score = (const double*)scan.score;
        int first = 0, last = n_points - 2;
        while (first < last && !(score[first] > least)) ++first;
        while (last > first && !(score[last] > least)) --last;
        low = scan.x[first], high = scan.x[last + 1];
        if (high - low > 0.5 * width) return;
    }
}

}  // namespace voxpop::VOXPOP_VARIANT
