// Zoom in on the part of a task's range where some message can have mass; see kernels/nodes.py.
#pragma once

#include "workers.hpp"

namespace voxpop::VOXPOP_VARIANT {

// Points of one scan below and from its centre on, and at first how many sd apart; how few nodes
// are not worth a scan, and most scans; as in nodes.py.
constexpr int n_below = 11, n_above = 12, n_points = n_below + 1 + n_above, most_scans = 12;
constexpr double points_apart = 2.0, few_nodes = 64.0;

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

    // Points from low to high: about `apart` at the centre, further apart away from it.
    void place(double low, double high, double centre, double apart) {
        centre = centre < low ? low : centre > high ? high : centre;
        x[n_below] = centre;
        for (int side = 0; side < 2; ++side) {
            const int m = side ? n_above : n_below, sign = side ? 1 : -1;
            const double end = side ? high : low, far = sign * (end - centre);
            const double near = apart < far / m ? apart : far / m;
            const double ratio = near > 0.0 ? far / near : 1.0;
            const double growth = __builtin_exp(__builtin_log(ratio) / (m - 1.0));
            double offset = near;
            for (int i = 1; i < m; ++i, offset *= growth)
                x[n_below + sign * i] = centre + sign * offset;
            x[n_below + sign * m] = end;
        }
        for (int i = n_points; i < n_points + lanes; ++i) x[i] = high;
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
    void bound(const Workers& workers) {
        const Law& law = workers.law;
        for (int i = 0; i < n_vectors; ++i) score[i] = all(-1e300);
        for (int64_t k = 0; k < law.n_levels; ++k)
            for (int i = 0; i < n_vectors; ++i) {
                const vec step = load(x + i * lanes + 1) - at(x, i);
                const vec curved = (curvature[i] + all(1.0 / law.levels[k])) * all(log2_e);
                const vec bend = max(curved * step * step, all(1e-300));
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

    double highest() const {
        int best = 0;
        for (int i = 1; i < n_points; ++i) best = total[i] > total[best] ? i : best;
        return x[best];
    }

    static vec& at(double* array, int i) { return ((vec*)array)[i]; }
};

// Narrow the range of one task down; give up where that gains little. The scan is centred at a
// guess of where P is largest, and of its precision there.
inline void zoom(
    const Workers& workers, const double* peak, double centre, double precision, double& low,
    double& high, Workspace& workspace) {
    const Law& law = workers.law;
    const double l = (double)law.degree, reach = 1.5 * __builtin_sqrt(2.0 * ln_2 * law.spare);
    const double most = __builtin_sqrt(l / law.narrow + law.prior_precision);
    const double nearby = 2.0 * reach * __builtin_sqrt(l);
    const double per_width = 0.5 / (reach * __builtin_sqrt(law.narrow));
    const double evenly = __builtin_sqrt(precision + 1.0 / law.narrow);
    // About as many nodes as there would be: fine at the answers, or evenly spread.
    auto is_wide = [&](double width) {
        return width * evenly > law.alpha * few_nodes &&
               nearby * __builtin_asinh(width * per_width) > law.alpha * few_nodes;
    };
    if (!is_wide(high - low)) return;
    Scan scan(law, workspace);
    for (int n = 0; n < most_scans && is_wide(high - low); ++n) {
        const double width = high - low;
        scan.place(low, high, centre, points_apart / __builtin_sqrt(precision));
        scan.look(workers, peak);
        scan.bound(workers);
        const double least = -law.spare - log2_e * __builtin_log1p(width * most);
        const double* score = (const double*)scan.score;
        int first = 0, last = n_points - 2;
        while (first < last && !(score[first] > least)) ++first;
        while (last > first && !(score[last] > least)) --last;
        low = scan.x[first], high = scan.x[last + 1], centre = scan.highest();
        if (high - low > 0.5 * width) return;
    }
}

}  // namespace voxpop::VOXPOP_VARIANT
