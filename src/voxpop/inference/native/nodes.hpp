// Nodes of the integrals of a block of rows, one row per lane; see kernels/nodes.py.
#pragma once

#include "scan.hpp"

namespace voxpop::VOXPOP_VARIANT {

// The same as in nodes.py, where they are explained.
constexpr double most_wide_nodes = 6000.0, most_even_nodes = 128.0;
constexpr double most_ruled_out = 1e4, most_drawn = 225.0;
constexpr double bound_reach = 3.0, nearest_share = 1e-5;

// Nodes of a block: x and weight of node q are x[q], weight[q].
struct Nodes {
    vec *x, *weight;
    int64_t n[lanes];
};

// The components of each function that matter, and the mean precision at its centre, by class.
struct LocalScales {
    vec *narrow, *fine, *wide, *behind, *widest, *ruled_out;   // of nodes.py, (L)
    vec *peak;                                                 // (C, L)

    LocalScales(const Functions& f, Workspace& workspace) {
        vec* next = (vec*)workspace.slot(5, lanes * (6 + f.law.C) * f.L);
        auto take = [&next, &f] { return (next += f.L) - f.L; };
        narrow = take(), fine = take(), wide = take(), behind = take(), widest = take();
        ruled_out = take(), peak = next;
        for (int64_t u = 0; u < f.L; ++u) find_credible(f, u);
        for (int64_t c = 0; c < f.law.C; ++c)
            for (int64_t u = 0; u < f.L; ++u) peak[c * f.L + u] = precision_at_centre(f, c, u);
    }

private:
    // f_u and w_u, and how far w_u and the widest component are behind the likeliest, in nats.
    void find_credible(const Functions& f, int64_t u) {
        const vec* variance = f.variance + u * f.M;
        const int64_t n = f.size(u);
        vec best = f.highest(u, 0);
        for (int64_t g = 1; g < n; ++g) best = max(best, f.highest(u, g));
        const double spare = f.law.spare;
        const vec low = best - all(spare + 3.0 * log2_e), lower = best - all(2.0 * spare);
        narrow[u] = fine[u] = all(infinite), wide[u] = widest[u] = all(0.0);
        vec of_wide = best, of_widest = best;
        for (int64_t g = 0; g < n; ++g) {
            const vec mine = f.highest(u, g), v = variance[g];
            narrow[u] = min(narrow[u], v);
            fine[u] = where_above(low, mine, fine[u], min(fine[u], v));
            const vec wider = where_above(lower, mine, wide[u], max(wide[u], v));
            of_wide = where_above(wider, wide[u], mine, of_wide), wide[u] = wider;
            of_widest = where_above(v, widest[u], mine, of_widest), widest[u] = max(widest[u], v);
        }
        behind[u] = (best - of_wide) * all(ln_2), ruled_out[u] = (best - of_widest) * all(ln_2);
    }

    static vec precision_at_centre(const Functions& f, int64_t c, int64_t u) {
        const vec *mine = f.height + (c * f.L + u) * f.M, *v = f.variance + u * f.M;
        vec best = mine[0], sum = all(0.0), total = all(0.0);
        for (int64_t g = 1; g < f.size(u); ++g) best = max(best, mine[g]);
        for (int64_t g = 0; g < f.size(u); ++g) {
            const vec share = exp2(mine[g] - best);
            sum = sum + share, total = total + share / v[g];
        }
        return total / sum;
    }
};

// Guess where P is largest, and its precision there: the slope of log F_u is E[1/s] (A_u - x)
// under the shares of its components at x. Starts at 0, the middle answer of a task.
inline void search(const Functions& f, vec& x, vec& total) {
    x = all(0.0);
    for (int n = 0; n < 3; ++n) {
        vec pull = all(0.0);
        total = all(0.0);
        for (int64_t u = 0; u < f.L; ++u) {
            const vec away = x - f.centre[u], *rate = f.rate + u * f.M;
            vec top = all(log_nothing), sum = all(0.0), of_sum = all(0.0);
            for (int64_t g = 0; g < f.size(u); ++g)
                top = max(top, f.highest(u, g) - away * away * rate[g]);
            for (int64_t g = 0; g < f.size(u); ++g) {
                const vec share = exp2(f.highest(u, g) - away * away * rate[g] - top);
                sum = sum + share, of_sum = fma(share, rate[g], of_sum);
            }
            const vec precision = all(2.0 * ln_2) * of_sum / sum;
            total = total + precision, pull = fma(precision, f.centre[u], pull);
        }
        x = pull / total;
    }
}

// Where the truths can be at all, and the bounds within reach; one out of reach is as good as none.
struct Range {
    vec low, high, low_bound, high_bound, near;

    Range(const Functions& f, const LocalScales& s, const IntegralRows& rows, const Block& block) {
        const double l = (double)f.degree, others = l > 2.0 ? l - 1.0 : 1.0;
        vec wide = s.widest[0], narrow = s.narrow[0];
        low = high = f.centre[0];
        for (int64_t u = 1; u < f.L; ++u) {
            low = min(low, f.centre[u]), high = max(high, f.centre[u]);
            if (u < f.degree) wide = max(wide, s.widest[u]), narrow = min(narrow, s.narrow[u]);
        }
        const vec of_prior = f.L > f.degree ? all(1.0) / s.widest[f.degree] : all(0.0);
        const vec flattest = all(others) / wide + of_prior;
        const vec margin = sqrt(all(2.0 * ln_2 * f.law.spare) / flattest);
        low = low - margin, high = high + margin;
        near = all(nearest_share) / sqrt(all(l) / narrow + all(l) / wide + of_prior);
        gather(rows.low, 1, block, (double*)&low_bound);
        gather(rows.high, 1, block, (double*)&high_bound);
        low_bound = where_above(low_bound, low, low_bound, all(-infinite));
        high_bound = where_above(high, high_bound, high_bound, all(infinite));
        low = max(low, low_bound + near);
        high = max(min(high, high_bound - near), low);
    }
};

// Zoom in on the rows of a block, lane by lane.
inline void zoom_rows(
    const Functions& f, const LocalScales& s, int n_rows, Range& range, Workspace& workspace) {
    vec middle, precision, of_prior = all(0.0);
    search(f, middle, precision);
    // Only messages are about components that have no weight.
    const vec* narrowest = f.aim == Aim::messages ? s.narrow : s.fine;
    vec narrow = narrowest[0];
    for (int64_t u = 1; u < f.degree; ++u) narrow = min(narrow, narrowest[u]);
    if (f.L > f.degree) of_prior = all(1.0) / narrowest[f.degree];
    const vec most = all((double)f.degree) / narrow + of_prior, before = range.low;
    const vec after = range.high;
    for (int lane = 0; lane < lanes; ++lane) {
        double from = range.low[lane], to = range.high[lane];
        if (lane < n_rows)
            zoom(RowFunctions{f, lane}, s.peak, narrow[lane], most[lane], middle[lane],
                 precision[lane], from, to, workspace);
        range.low[lane] = from, range.high[lane] = lane < n_rows ? to : from;
    }
    // A bound that is no longer in the range has no effect.
    range.low_bound = where_above(range.low, before, all(-infinite), range.low_bound);
    range.high_bound = where_above(after, range.high, all(infinite), range.high_bound);
}

// Distance from a bound, not below `near` on either side.
inline vec gap_from(vec x, vec bound, vec near) {
    const vec gap = x - bound;
    const vec kept = where_above(all(0.0), gap, -near, near);
    return where_above(near, absolute(gap), kept, gap);
}

// W(x), from which the steps between nodes follow (M14), without bounds: the least of it, and peaks.
//
//     W(x) = Σ_u [1/w_u + (1/f_u - 1/w_u) / (1 + (x - A_u)² / (c_u² f_u))] + 1/s_min
//            + Σ_b (3 / (x - b))²
class LocalPrecision {
public:
    LocalPrecision(const Functions& f, LocalScales& s, vec width, Workspace& workspace)
        : peaks_((Peak*)workspace.slot(6, lanes * 3 * (3 * f.L + 1))) {
        const vec one = all(1.0), zero = all(0.0), spare = all(f.law.spare * ln_2);
        const bool of_messages = f.aim == Aim::messages;
        const vec* narrowest = of_messages ? s.narrow : s.fine;
        vec finest = narrowest[0], even = zero, flat = zero, pull = zero;
        for (int64_t u = 1; u < f.degree; ++u) finest = min(finest, narrowest[u]);
        // Messages about the lowest levels: fine nodes everywhere if these are few, else at the
        // answers.
        const vec of_lowest = of_messages ? one / finest : zero;
        for (int64_t u = 0; u < f.L; ++u) even = even + one / s.wide[u];
        const vec limit = all(f.law.alpha * most_even_nodes);
        const vec is_even = where_above(width * sqrt(even + of_lowest), limit, zero, one);
        for (int64_t u = 0; u < f.L; ++u) {
            s.wide[u] = max(where_above(is_even, all(0.5), s.wide[u], s.widest[u]), s.fine[u]);
            s.behind[u] = where_above(is_even, all(0.5), s.behind[u], s.ruled_out[u]);
            flat = flat + one / s.wide[u], pull = pull + f.centre[u] / s.wide[u];
        }
        for (int64_t u = 0; u < f.L; ++u) add_function(f, s, u, is_even, flat, pull);
        const vec fewest = all(f.law.alpha * most_wide_nodes) / max(width, all(1e-300));
        flattest_ = min(flat, fewest * fewest);
        // Where the mass may lie far from every answer: at the mean of all functions, and of all
        // others than u, in the widest levels.
        const vec height = one / max(one / flat, finest), decay = height / (all(4.5) * spare);
        const vec far = where_above(flat, flattest_, height, zero);
        add(pull / flat, far, decay);
        for (int64_t u = 0; u < f.L; ++u) {
            const vec precision = one / s.wide[u];
            const vec others = max(flat - precision, all(0.5) * precision);
            add((pull - f.centre[u] / s.wide[u]) / others, far, decay);
        }
        flattest_ = flattest_ + is_even * of_lowest;
    }

    // W at x, and minus half its slope.
    void at(vec x, vec& total, vec& slope) const {
        total = flattest_, slope = all(0.0);
        for (int64_t i = 0; i < n_; ++i) {
            const vec distance = x - peaks_[i].centre, decay = peaks_[i].decay;
            const vec fall = all(1.0) / fma(distance * distance, decay, all(1.0));
            const vec part = peaks_[i].height * fall;
            total = total + part, slope = fma(part * fall, distance * decay, slope);
        }
    }

private:
    // height / (1 + decay (x - centre)²)
    struct Peak {
        vec centre, height, decay;
    };
    Peak* peaks_;
    int64_t n_ = 0;
    vec flattest_;

    void add(vec centre, vec height, vec decay) {
        if (any_above(height, all(0.0))) peaks_[n_++] = {centre, height, decay};
    }

    // Where one of two terms is as narrow as the other and reaches as far, it is enough.
    void add_function(
        const Functions& f, const LocalScales& s, int64_t u, vec is_even, vec flat, vec pull) {
        const vec one = all(1.0), zero = all(0.0), spare = all(f.law.spare * ln_2);
        const vec away = f.centre[u] - pull / flat, fine = s.fine[u], lowest = s.narrow[u];
        const vec most = min(all(most_drawn) * spare, all(f.depth));
        const vec drawn = min(all(0.5) * away * away * flat, most);
        const vec behind = min(s.behind[u], all(f.depth < most_ruled_out ? f.depth : most_ruled_out));
        const vec decay = one / (all(4.5) * (spare + behind) * fine);
        const vec own_decay = one / ((all(4.5) * spare + drawn) * lowest);
        vec own_drop = zero;
        if (u < f.degree && f.aim == Aim::messages)
            own_drop = where_above(is_even, all(0.5), zero, max(one / lowest - one / s.wide[u], zero));
        const vec is_covered = where_above(own_decay, decay, zero, one);
        const vec drop =
            where_above(own_drop * is_covered, zero, zero, one / fine - one / s.wide[u]);
        const vec is_needed = where_above(fine, lowest, one, zero);
        add(f.centre[u], drop, decay);
        add(f.centre[u], where_above(drop, zero, own_drop * is_needed, own_drop), own_decay);
    }
};

// Walk from the lowest place with mass to the highest in steps that follow the local scale (M14).
//
//     x' = x + alpha / sqrt(W(x)),   weight' = weight dx'/dx
inline Nodes place_nodes(
    const Functions& f, const IntegralRows& rows, const Block& block, double refinement,
    Workspace& workspace) {
    const vec one = all(1.0), zero = all(0.0), alpha = all(f.law.alpha / refinement);
    LocalScales s(f, workspace);
    Range range(f, s, rows, block);
    zoom_rows(f, s, block.n_rows, range, workspace);
    const LocalPrecision precision(f, s, range.high - range.low, workspace);
    const bool is_bounded =
        any_above(range.low_bound, all(-infinite)) || any_above(all(infinite), range.high_bound);
    Nodes nodes;
    int64_t capacity = 0, n = 0;
    vec x = range.low, weight = one, count = zero;
    for (;; ++n) {
        const vec inside = where_above(x, range.high, zero, one);
        if (!any_above(inside, all(0.5))) break;
        if (n == capacity) {
            capacity = capacity ? 2 * capacity : 512;
            nodes.x = (vec*)workspace.slot(1, lanes * capacity);
            nodes.weight = (vec*)workspace.slot(2, lanes * capacity);
        }
        nodes.x[n] = x, nodes.weight[n] = weight;
        count = count + inside;
        vec total, slope;
        precision.at(x, total, slope);
        for (int side = 0; is_bounded && side < 2; ++side) {
            const vec bound = side ? range.high_bound : range.low_bound;
            const vec per_gap = one / gap_from(x, bound, range.near);
            const vec square = all(bound_reach * bound_reach) * per_gap * per_gap;
            total = total + square, slope = fma(square, per_gap, slope);
        }
        // A step that the spacing of floating-point numbers would swallow leads nowhere.
        const vec step = max(alpha / sqrt(total), all(1e-15) * absolute(x));
        weight = weight * max(one + step * slope / total, all(1e-12));
        x = x + step;
    }
    for (int lane = 0; lane < lanes; ++lane) nodes.n[lane] = (int64_t)count[lane];
    return nodes;
}

}  // namespace voxpop::VOXPOP_VARIANT
