// Leave out nodes that cannot matter to any message of a task, by bounds that hold for certain.
//
// With many answers the nodes are many and the product of the workers' functions is narrow. A
// worker's function falls with the distance from the answer, so between two points it is nowhere
// above the larger of its values there, or above its peak where the answer lies between them.
// Functions are worked out at a few points only; what the bound says is negligible is dropped.
#pragma once

#include "integrate.hpp"

namespace voxpop::VOXPOP_VARIANT {

// With fewer vectors of nodes than this there is nothing to gain.
constexpr int64_t fewest_to_prune = 16;
// Intervals are wider where nodes are many: one vector of nodes, and one more for each so many.
constexpr int64_t vectors_per_width = 48;

// Points between intervals of nodes, interval i from point i to point i + 1; padded arrays.
struct Points {
    int64_t n, n_vectors;      // intervals, and vectors of them
    double *x, *total, *log_f;  // points; log2 of P there; log2 F_u there, (degree, stride)
    vec *bound, *score;        // of intervals: log2 bound of P, and the best claim of any message
    int64_t stride;
};

// Bounds over the intervals from point i on: of log2 F_u, and of the squared distance from A_u.
inline vec bound_function(
    const Points& p, const Workers& workers, int64_t u, double peak, int64_t i, vec& squared) {
    const vec answer = all(workers.answer(u)), zero = all(0.0);
    vec from = load(p.x + i) - answer, to = load(p.x + i + 1) - answer;
    vec higher = max(load(p.log_f + u * p.stride + i), load(p.log_f + u * p.stride + i + 1));
    // The answer lies between the points where the signs of the distances differ.
    vec nearest = min(from * from, to * to);
    squared = where_above(from * to, zero, nearest, zero);
    return where_above(from * to, zero, higher, all(peak));
}

inline double bound_peak(const Workers& workers, int64_t u) {
    double top = workers.heights(u)[0];
    for (int64_t k = 1; k < workers.n_levels; ++k)
        top = workers.heights(u)[k * lanes] > top ? workers.heights(u)[k * lanes] : top;
    return top + log2(all((double)workers.n_levels))[0];
}

inline Points open_points(
    const IntegralArrays& s, int64_t width, const Workers& workers, Workspace& workspace) {
    Points p;
    p.n = (s.n + width - 1) / width;
    p.n_vectors = (p.n + lanes - 1) / lanes;
    p.stride = (p.n_vectors + 1) * lanes;
    double* memory = workspace.slot(4, p.stride * (4 + workers.degree));
    p.x = memory, p.total = p.x + p.stride;
    p.bound = (vec*)(p.total + p.stride), p.score = (vec*)((double*)p.bound + p.stride);
    p.log_f = (double*)p.score + p.stride;
    const double *x = (double*)s.x, *total = (double*)s.total;
    for (int64_t i = 0; i < p.stride; ++i) {
        int64_t q = i * width * lanes;
        q = q < s.n_nodes ? q : s.n_nodes - 1;
        p.x[i] = x[q], p.total[i] = total[q];
    }
    for (int64_t i = 0; i < p.n_vectors * lanes; ++i) {
        vec highest = all(-1e300);
        for (int64_t q = i * width; q < (i + 1) * width && q < s.n; ++q)
            highest = max(highest, s.total[q]);
        ((double*)p.bound)[i] = largest(highest);
        ((double*)p.score)[i] = -1e300;
    }
    return p;
}

// Keep the nodes of those intervals in which some message may have a term that matters:
//
//     bound of P / F_u N(A_u | x, s_k) on the interval > 2^negligible its value at some point
inline void leave_out_nodes(IntegralArrays& s, const Workers& workers, Workspace& workspace) {
    if (s.n < fewest_to_prune) return;
    const int64_t width = 1 + s.n / vectors_per_width;
    Points p = open_points(s, width, workers, workspace);
    vec squared;
    for (int64_t u = 0; u < workers.degree; ++u) {
        const double peak = bound_peak(workers, u);
        for (int64_t i = 0; i < p.stride; i += lanes) {
            vec distance = load(p.x + i) - all(workers.answer(u));
            vec log_f = workers.log_function(u, distance * distance);
            *(vec*)(p.log_f + u * p.stride + i) = log_f;
            *(vec*)(p.total + i) = load(p.total + i) + log_f;
        }
        for (int64_t i = 0; i < p.n_vectors; ++i)
            p.bound[i] = p.bound[i] + bound_function(p, workers, u, peak, i * lanes, squared);
    }
    for (int64_t u = 0; u < workers.degree; ++u) {
        const double peak = bound_peak(workers, u);
        for (int64_t k = 0; k < workers.n_levels; ++k) {
            const vec minus_rate = all(-workers.rate[k]);
            vec highest = all(-1e300);
            for (int64_t i = 0; i < p.stride; i += lanes) {
                vec distance = load(p.x + i) - all(workers.answer(u));
                vec cavity = load(p.total + i) - load(p.log_f + u * p.stride + i);
                highest = max(highest, fma(distance * distance, minus_rate, cavity));
            }
            const vec top = all(largest(highest));
            for (int64_t i = 0; i < p.n_vectors; ++i) {
                vec own = bound_function(p, workers, u, peak, i * lanes, squared);
                vec claim = fma(squared, minus_rate, p.bound[i] - own) - top;
                p.score[i] = max(p.score[i], claim);
            }
        }
    }
    int64_t kept = 0;
    for (int64_t i = 0; i < p.n; ++i)
        for (int64_t q = i * width; q < (i + 1) * width && q < s.n; ++q)
            if (((double*)p.score)[i] > negligible) {
                s.x[kept] = s.x[q], s.total[kept] = s.total[q];
                ++kept;
            }
    s.n = kept;
}

}  // namespace voxpop::VOXPOP_VARIANT
