// Zoom in on the part of a row's range where some message can have mass; see kernels/nodes.py.
#pragma once

#include "functions.hpp"

namespace voxpop::VOXPOP_VARIANT {

// Points of one scan below and from its centre on, and at first how many sd apart; how few nodes
// are not worth a scan, and most scans; as in nodes.py.
constexpr int n_below = 11, n_above = 12, n_points = n_below + 1 + n_above, most_scans = 12;
constexpr double points_apart = 2.0, few_nodes = 64.0;

// Points x of a scan, padded so that neighbours can be loaded, and what is known there.
class Scan {
public:
    alignas(64) double x[n_points + lanes];
    double centre;  // the point where P is largest

    Scan(const RowFunctions& row, Workspace& workspace) : row_(row) {
        const Functions& f = row.f;
        const int64_t C = f.law.C, L = f.L, top = f.degree * (f.law.G + 1);
        const int64_t per_class = L * n_points + n_points + lanes + n_points;
        log_f_ = workspace.slot(4, C * per_class + top);
        total_ = log_f_ + C * L * n_points, curvature_ = (vec*)(total_ + C * (n_points + lanes));
        top_ = (double*)(curvature_ + C * n_vectors);
        for (int64_t j = 0; j < top; ++j) top_[j] = log_nothing;
        for (int i = n_points; i < n_points + lanes; ++i) q_[i] = precision_[i] = 0.0;
    }

    // Points from low to high: about `apart` at the middle, further apart away from it.
    void place(double low, double high, double middle, double apart) {
        middle = middle < low ? low : middle > high ? high : middle;
        x[n_below] = middle;
        for (int side = 0; side < 2; ++side) {
            const int m = side ? n_above : n_below, sign = side ? 1 : -1;
            const double end = side ? high : low, far = sign * (end - middle);
            const double near = apart < far / m ? apart : far / m;
            const double ratio = near > 0.0 ? far / near : 1.0;
            const double growth = __builtin_exp(__builtin_log(ratio) / (m - 1.0));
            double offset = near;
            for (int i = 1; i < m; ++i, offset *= growth)
                x[n_below + sign * i] = middle + sign * offset;
            x[n_below + sign * m] = end;
        }
        for (int i = n_points; i < n_points + lanes; ++i) x[i] = high;
    }

    // M14a: the most that any message's integrand can be between point i and the next, over its
    // largest value at any point.
    //
    //     q <= max(q_a, q_b) + (κh²/2 - |q_a - q_b|)₊² / (2κh²)
    const double* score(const vec* peak) {
        const Functions& f = row_.f;
        double best = -infinite;
        for (int64_t c = 0; c < f.law.C; ++c) look(c, peak, best);
        for (int i = 0; i < n_vectors; ++i) score_[i] = all(log_nothing);
        for (int64_t u = 0; u < f.degree; ++u) {
            vec squared[n_vectors];
            for (int i = 0; i < n_vectors; ++i) {
                const vec away = at(x, i) - all(row_.centre(u));
                squared[i] = away * away;
            }
            // The last is the cavity itself, as if an answer of infinite variance were at stake.
            for (int64_t g = 0; g < f.law.G + f.predicts; ++g) bound(u, g, squared);
        }
        return (const double*)score_;
    }

private:
    static constexpr int n_vectors = n_points / lanes;
    const RowFunctions& row_;
    alignas(64) double q_[n_points + lanes], precision_[n_points + lanes];
    vec score_[n_vectors];
    double *log_f_, *total_, *top_;  // (C, L, points), (C, points and padding), (degree, G + 1)
    vec* curvature_;                 // (C, n_vectors), between a point and the next

    static vec& at(double* array, int i) { return ((vec*)array)[i]; }
    double* log_f(int64_t c, int64_t u) { return log_f_ + (c * row_.f.L + u) * n_points; }
    double* total(int64_t c) { return total_ + c * (n_points + lanes); }

    // M12 at all points for one class, and the sum κ of the curvatures between them.
    void look(int64_t c, const vec* peak, double& best) {
        const Functions& f = row_.f;
        vec* curvature = curvature_ + c * n_vectors;
        for (int i = 0; i < n_vectors; ++i) {
            at(total(c), i) = all(log2_e * row_.at(f.log_class, c));
            curvature[i] = all(0.0);
        }
        for (int64_t u = 0; u < f.L; ++u) {
            const vec centre = all(row_.centre(u));
            for (int i = 0; i < n_vectors; ++i) {
                const vec away = at(x, i) - centre;
                const vec found = row_.log_function(c, u, away * away, at(precision_, i));
                at(log_f(c, u), i) = found;
                at(total(c), i) = at(total(c), i) + found;
            }
            const double at_centre = row_.at(peak, c * f.L + u);
            for (int i = 0; i < n_vectors; ++i) {
                const vec from = at(x, i) - centre, to = load(x + i * lanes + 1) - centre;
                const vec nearest = max(at(precision_, i), load(precision_ + i * lanes + 1));
                curvature[i] = curvature[i] +
                    where_above(from * to, all(0.0), nearest, all(at_centre));
            }
        }
        for (int i = 0; i < n_points; ++i)
            if (total(c)[i] > best) best = total(c)[i], centre = x[i];
    }

    void bound(int64_t u, int64_t g, const vec* squared) {
        const Functions& f = row_.f;
        const double rate = g < f.law.G ? row_.rate(u, g) : 0.0;
        double& highest = top_[u * (f.law.G + 1) + g];
        vec claim[n_vectors];
        for (int i = 0; i < n_vectors; ++i) claim[i] = all(log_nothing);
        for (int64_t c = 0; c < f.law.C; ++c) {
            vec higher = all(highest);
            for (int i = 0; i < n_vectors; ++i) {
                at(q_, i) = fma(squared[i], all(-rate), at(total(c), i) - at(log_f(c, u), i));
                higher = max(higher, at(q_, i));
            }
            highest = largest(higher);
            for (int i = 0; i < n_vectors; ++i) {
                const vec step = load(x + i * lanes + 1) - at(x, i);
                const vec curved =
                    fma(curvature_[c * n_vectors + i], all(log2_e), all(2.0 * rate));
                const vec bend = max(curved * step * step, all(1e-300));
                const vec a = at(q_, i), b = load(q_ + i * lanes + 1);
                const vec excess = max(all(0.5) * bend - absolute(a - b), all(0.0));
                claim[i] = max(claim[i], max(a, b) + excess * (all(0.5) * excess / bend));
            }
        }
        for (int i = 0; i < n_vectors; ++i)
            score_[i] = max(score_[i], claim[i] - all(highest));
    }
};

// Narrow the range of one row down; give up where that gains little. The scan is centred at a
// guess of where P is largest, and of its precision there; `narrow` is the narrowest variance of an
// answer, `most` the largest precision that the product of all functions can have.
inline void zoom(
    const RowFunctions& row, const vec* peak, double narrow, double most, double middle,
    double precision, double& low, double& high, Workspace& workspace) {
    const Law& law = row.f.law;
    const double reach = 1.5 * __builtin_sqrt(2.0 * ln_2 * law.spare);
    const double nearby = 2.0 * reach * __builtin_sqrt((double)row.f.degree);
    const double per_width = 0.5 / (reach * __builtin_sqrt(narrow));
    const double evenly = __builtin_sqrt(precision + 1.0 / narrow);
    // About as many nodes as there would be: fine at the answers, or evenly spread.
    auto is_wide = [&](double width) {
        return width * evenly > law.alpha * few_nodes &&
               nearby * __builtin_asinh(width * per_width) > law.alpha * few_nodes;
    };
    if (!is_wide(high - low)) return;
    Scan scan(row, workspace);
    for (int n = 0; n < most_scans && is_wide(high - low); ++n) {
        const double width = high - low;
        scan.place(low, high, middle, points_apart / __builtin_sqrt(precision));
        const double* score = scan.score(peak);
        const double least =
            -law.spare - log2_e * __builtin_log1p(width * __builtin_sqrt(most));
        int first = 0, last = n_points - 2;
        while (first < last && !(score[first] > least)) ++first;
        while (last > first && !(score[last] > least)) --last;
        low = scan.x[first], high = scan.x[last + 1], middle = scan.centre;
        if (high - low > 0.5 * width) return;
    }
}

}  // namespace voxpop::VOXPOP_VARIANT
