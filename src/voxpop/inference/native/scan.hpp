// Zoom in on the part of a row's range where what is integrated can have mass; see kernels/nodes.py.
#pragma once

#include "functions.hpp"

namespace voxpop::VOXPOP_VARIANT {

// Points of a scan below its centre and above it, and how many sds apart they begin; nodes below
// which a scan does not pay, and most scans; as in nodes.py.
constexpr int n_below = 11, n_above = 12, n_points = n_below + 1 + n_above, most_scans = 12;
constexpr double points_apart = 2.0, few_nodes = 64.0, many_nodes = 512.0, peel = 1.25;
constexpr double unheard = 50.0;

// Points x of a scan, padded so that neighbours can be loaded, and what is known there.
class Scan {
public:
    alignas(64) double x[n_points + lanes];
    double centre;  // the point where P is largest

    Scan(const RowFunctions& row, Workspace& workspace) : row_(row) {
        const Functions& f = row.f;
        const int64_t C = f.law.C, L = f.L, top = (f.degree + 1) * f.law.G;
        log_f_ = workspace.slot(4, C * (L + 2) * n_points + top);
        total_ = log_f_ + C * L * n_points, top_ = total_ + 2 * C * n_points;
        bends_ = (vec*)(total_ + C * n_points);
        for (int64_t j = 0; j < top; ++j) top_[j] = log_nothing;
        for (int i = n_points; i < n_points + lanes; ++i) precision_[i] = 0.0;
    }

    // Points from low to high: about `apart` at the middle, further apart away from it; where that
    // is 0, by the factor at which ranges are peeled.
    void place(double low, double high, double middle, double apart) {
        middle = middle < low ? low : middle > high ? high : middle;
        x[n_below] = middle;
        for (int side = 0; side < 2; ++side) {
            const int m = side ? n_above : n_below, sign = side ? 1 : -1;
            const double end = side ? high : low, far = sign * (end - middle);
            const double near = apart <= 0.0    ? far * __builtin_pow(peel, 1.0 - m)
                                : apart < far / m ? apart
                                                  : far / m;
            const double ratio = near > 0.0 ? far / near : 1.0;
            const double growth = __builtin_exp(__builtin_log(ratio) / (m - 1.0));
            double offset = near;
            for (int i = 1; i < m; ++i, offset *= growth)
                x[n_below + sign * i] = middle + sign * offset;
            x[n_below + sign * m] = end;
        }
        for (int i = n_points; i < n_points + lanes; ++i) x[i] = high;
        for (int i = 0; i < n_vectors; ++i) {
            const vec step = next(x, i) - at(x, i);
            step_[i] = step * step;
        }
    }

    // M14a: the most that any integrand can be between point i and the next, over its largest value
    // at any point. The product of all functions but one is as if an answer of infinite variance
    // were at stake, that of all functions as if it were about no answer.
    const double* score(const vec* peak) {
        const Functions& f = row_.f;
        double best = -infinite;
        for (int64_t c = 0; c < f.law.C; ++c) look(c, peak, best);
        for (int i = 0; i < n_vectors; ++i) score_[i] = all(log_nothing);
        const bool of_messages = f.aim == Aim::messages;
        const int64_t first = f.aim == Aim::posterior ? f.degree : 0;
        for (int64_t u = first; u < f.degree + !of_messages; ++u) {
            join_classes(u);
            double best = log_nothing;  // the widest are the highest, and come last
            for (int64_t g = (of_messages ? f.law.G : 1) - 1; g >= 0; --g)
                raise(of_messages ? row_.rate(u, g) : 0.0, top_[u * f.law.G + g], best);
        }
        return (const double*)score_;
    }

private:
    static constexpr int n_vectors = n_points / lanes;
    const RowFunctions& row_;
    // The log of the product of all other functions, and the squared distance from the answer.
    struct Cavity {
        vec squared, cavity;
        vec q(double rate) const { return fma(squared, all(-rate), cavity); }
    };
    Cavity here_[n_vectors], there_[n_vectors];                 // at each point, and at the next
    vec score_[n_vectors], step_[n_vectors], bend_[n_vectors];  // between them; h², κh²/2
    vec* bends_;                     // (C, n_vectors): κh²/2 of all functions
    double *log_f_, *total_, *top_;  // (C, L, points), (C, points), (degree, G + 1)
    alignas(64) double precision_[n_points + lanes];

    static vec& at(double* array, int i) { return ((vec*)array)[i]; }
    static vec next(const double* array, int i) { return load(array + i * lanes + 1); }
    double* log_f(int64_t c, int64_t u) { return log_f_ + (c * row_.f.L + u) * n_points; }
    double* total(int64_t c) { return total_ + c * n_points; }

    // M12 at all points for one class, and the sum κ of the curvatures between them.
    void look(int64_t c, const vec* peak, double& best) {
        const Functions& f = row_.f;
        vec curvature[n_vectors] = {};
        for (int i = 0; i < n_vectors; ++i)
            at(total(c), i) = all(log2_e * row_.at(f.log_class, c));
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
                const vec from = at(x, i) - centre, to = next(x, i) - centre;
                const vec nearest = max(at(precision_, i), next(precision_, i));
                curvature[i] = curvature[i] +
                    where_above(from * to, all(0.0), nearest, all(at_centre));
            }
        }
        for (int i = 0; i < n_vectors; ++i)
            bends_[c * n_vectors + i] = all(0.5 * log2_e) * curvature[i] * step_[i];
        for (int i = 0; i < n_points; ++i)
            if (total(c)[i] > best) best = total(c)[i], centre = x[i];
    }

    // The log of the product of all functions but u's at each point and at the next, in the class
    // where it is largest, and how far it can bend between them; also the squared distances from u's
    // answer. An answer past the last is none. What is read past the last point is never used.
    void join_classes(int64_t u) {
        const bool is_none = u == row_.f.degree;
        const vec answer = all(is_none ? 0.0 : row_.centre(u)), nothing = all(0.0);
        for (int i = 0; i < n_vectors; ++i) {
            const vec a = at(x, i) - answer, b = next(x, i) - answer;
            here_[i] = there_[i] = {a * a, all(log_nothing)}, there_[i].squared = b * b;
            bend_[i] = all(log_nothing);
            for (int64_t c = 0; c < row_.f.law.C; ++c) {
                const vec from = at(total(c), i) - (is_none ? nothing : at(log_f(c, u), i));
                const vec to = next(total(c), i) - (is_none ? nothing : next(log_f(c, u), i));
                here_[i].cavity = max(here_[i].cavity, from);
                there_[i].cavity = max(there_[i].cavity, to);
                bend_[i] = max(bend_[i], bends_[c * n_vectors + i] + from + to);
            }
            bend_[i] = bend_[i] - here_[i].cavity - there_[i].cavity;
        }
    }

    // Raise the score by one integrand, of which `highest` is the largest value so far; `best` is
    // the largest of all that one message adds up.
    //
    //     q <= max(q_a, q_b) + (κh²/2 - |q_a - q_b|)₊ / 4
    void raise(double rate, double& highest, double& best) {
        vec higher = all(highest), most[n_vectors];
        for (int i = 0; i < n_vectors; ++i) {
            const vec a = here_[i].q(rate), b = there_[i].q(rate);
            const vec excess = max(fma(step_[i], all(rate), bend_[i]) - absolute(a - b), all(0.0));
            higher = max(higher, a), most[i] = fma(all(0.25), excess, max(a, b));
        }
        highest = largest(higher), best = best > highest ? best : highest;
        const double lowest = best - (row_.f.depth + unheard) * log2_e;
        const vec over = all(highest > lowest ? highest : lowest);
        for (int i = 0; i < n_vectors; ++i) score_[i] = max(score_[i], most[i] - over);
    }
};

// Narrow the range of one row down; where that gains little and many nodes are left, peel it from
// its ends. The scan is centred at `middle`, a guess of where P is largest, with a guess of its
// precision there; `narrow` is the narrowest variance of an answer that can matter, `most` the
// largest precision that the product of all functions can have.
inline void zoom(
    const RowFunctions& row, const vec* peak, double narrow, double most, double middle,
    double precision, double& low, double& high, Workspace& workspace) {
    const Law& law = row.f.law;
    const double reach = 1.5 * __builtin_sqrt(2.0 * ln_2 * law.spare);
    const double nearby = 2.0 * reach * __builtin_sqrt((double)row.f.degree);
    const double per_width = 0.5 / (reach * __builtin_sqrt(narrow));
    const double evenly = __builtin_sqrt(precision + 1.0 / narrow);
    // About as many nodes as there would be: fine at the answers, or evenly spread.
    bool peels = false;
    auto is_wide = [&](double width) {
        const double least = law.alpha * (peels ? many_nodes : few_nodes);
        return width * evenly > least && nearby * __builtin_asinh(width * per_width) > least;
    };
    if (!is_wide(high - low)) return;
    Scan scan(row, workspace);
    for (int n = 0; n < most_scans && is_wide(high - low); ++n) {
        const double width = high - low;
        scan.place(low, high, middle, peels ? 0.0 : points_apart / __builtin_sqrt(precision));
        const double* score = scan.score(peak);
        const double least =
            -law.spare - log2_e * __builtin_log1p(width * __builtin_sqrt(most));
        int first = 0, last = n_points - 2;
        while (first < last && !(score[first] > least)) ++first;
        while (last > first && !(score[last] > least)) --last;
        low = scan.x[first], high = scan.x[last + 1], middle = scan.centre;
        const bool is_slow = high - low > 0.5 * width;
        if (is_slow && peels) return;
        peels = peels || is_slow;
    }
}

}  // namespace voxpop::VOXPOP_VARIANT
