// Nodes of the integrals of a block of one-dimensional tasks, one task per lane; see nodes.py.
#pragma once

#include "scan.hpp"

namespace voxpop::VOXPOP_VARIANT {

// Most nodes to spend on the empty space between answers that no level reaches across, and on a
// range without narrower ones around the answers.
constexpr double most_wide_nodes = 6000.0, most_even_nodes = 128.0;
// Limits to how far nodes stay fine around an answer: nats by which wide levels can be ruled out,
// and how far a message about an improbable level can draw the truth.
constexpr double most_ruled_out = 1e4, most_drawn = 225.0;
// Least sd that nodes try to resolve, as a share of the range of a task's answers.
constexpr double finest_share = 1e-12;

// The tasks of a block: answers (degree), log2 of m_u(k) / sqrt(s_k) (degree, levels), priors.
struct Tasks {
    const Law& law;
    const vec *value, *height;
    vec prior_mean;

    Workers workers(int lane) const {
        return Workers{law, (const double*)value + lane, (const double*)height + lane,
                       prior_mean[lane]};
    }
};

// Nodes of a block: x and weight of node q are x[q], weight[q].
struct Nodes {
    vec *x, *weight;
    int64_t n[lanes];
};

// How fast the precision that an integrand can have falls with the distance from each answer, and
// how far it falls; beside it the mean precision of the levels at the answer itself.
struct LocalScales {
    vec *peak, *fine, *wide, *behind, *ruled_out;  // of nodes.py, (degree)
    vec *drop, *decay;                             // (degree)
};

inline LocalScales carve_scales(int64_t degree, Workspace& workspace) {
    vec* next = (vec*)workspace.slot(5, lanes * 7 * degree);
    auto take = [&] { return (next += degree) - degree; };
    LocalScales s;
    s.peak = take(), s.fine = take(), s.wide = take(), s.behind = take(), s.ruled_out = take();
    s.drop = take(), s.decay = take();
    return s;
}

// f_u and w_u, and how far w_u and the widest level are behind the likeliest (log2).
inline void find_credible(const Tasks& tasks, LocalScales& s) {
    const Law& law = tasks.law;
    const int64_t K = law.n_levels;
    for (int64_t u = 0; u < law.degree; ++u) {
        const vec* mine = tasks.height + u * K;
        vec best = mine[0], sum = all(0.0), total = all(0.0);
        for (int64_t k = 1; k < K; ++k) best = max(best, mine[k]);
        const vec low = best - all(law.spare + 3.0 * log2_e), lower = best - all(2.0 * law.spare);
        vec fine = all(law.wide), wide = all(0.0), of_wide = best;
        for (int64_t k = 0; k < K; ++k) {
            const vec level = all(law.levels[k]), share = exp2(mine[k] - best);
            sum = sum + share, total = fma(share, all(1.0 / law.levels[k]), total);
            fine = where_above(low, mine[k], fine, min(fine, level));
            const vec wider = where_above(lower, mine[k], wide, max(wide, level));
            of_wide = where_above(wider, wide, mine[k], of_wide), wide = wider;
        }
        s.peak[u] = total / sum, s.fine[u] = fine, s.wide[u] = wide;
        s.behind[u] = (best - of_wide) * all(ln_2);
        s.ruled_out[u] = (best - mine[law.widest]) * all(ln_2);
    }
}

// Guess where P is largest, and its precision there: the slope of log F_u is E[1/s] (A_u - x)
// under the shares of its levels at x. Starts at 0, the middle answer of a task.
inline void search(const Tasks& tasks, vec& x, vec& total) {
    const Law& law = tasks.law;
    const int64_t K = law.n_levels;
    x = all(0.0);
    for (int n = 0; n < 3; ++n) {
        vec pull = all(0.0);
        total = all(law.prior_precision);
        if (law.prior_precision > 0.0) pull = total * tasks.prior_mean;
        for (int64_t u = 0; u < law.degree; ++u) {
            const vec *mine = tasks.height + u * K, away = x - tasks.value[u];
            vec top = all(-1e300), sum = all(0.0), of_sum = all(0.0);
            for (int64_t k = 0; k < K; ++k)
                top = max(top, fma(away * away, all(-law.rate[k]), mine[k]));
            for (int64_t k = 0; k < K; ++k) {
                const vec share = exp2(fma(away * away, all(-law.rate[k]), mine[k]) - top);
                sum = sum + share, of_sum = fma(share, all(1.0 / law.levels[k]), of_sum);
            }
            const vec precision = of_sum / sum;
            total = total + precision, pull = fma(precision, tasks.value[u], pull);
        }
        x = pull / total;
    }
}

// Where the truths can be at all.
inline void find_range(const Tasks& tasks, vec& low, vec& high) {
    const Law& law = tasks.law;
    const double l = (double)law.degree, others = l > 2.0 ? l - 1.0 : 1.0;
    low = high = tasks.value[0];
    for (int64_t u = 1; u < law.degree; ++u)
        low = min(low, tasks.value[u]), high = max(high, tasks.value[u]);
    if (law.prior_precision > 0.0) {
        // However precise the workers, their mean is drawn to the prior's.
        const vec mean = tasks.prior_mean, zero = all(0.0);
        const vec pull = all((l / law.narrow) / (l / law.narrow + law.prior_precision));
        low = mean + min(pull * (low - mean), zero), high = mean + max(pull * (high - mean), zero);
    }
    const double flattest = others / law.wide + law.prior_precision;
    const vec margin = all(__builtin_sqrt(2.0 * ln_2 * law.spare / flattest));
    low = low - margin, high = high + margin;
}

// Where the mass may lie far from every answer: the mean of all answers, and of all others than
// u, in the widest levels. Returns l + 1 places, or none where the nodes fill the space anyway.
inline const vec* far_centres(
    const Tasks& tasks, const vec* wide, vec pull, vec flat, vec far, Workspace& workspace) {
    if (!any_above(far, all(0.5))) return nullptr;
    const int64_t degree = tasks.law.degree;
    vec* centre = (vec*)workspace.slot(6, lanes * (degree + 1));
    centre[0] = pull / flat;
    for (int64_t u = 0; u < degree; ++u) {
        const vec precision = all(1.0) / wide[u];
        const vec others = max(flat - precision, all(0.5) * precision);
        centre[1 + u] = (pull - tasks.value[u] / wide[u]) / others;
    }
    return centre;
}

// Walk from the lowest place with mass to the highest in steps that follow the local scale (M14).
//
//     W(x) = Σ_u [1/w_u + (1/f_u - 1/w_u) / (1 + (x - A_u)² / (c_u² f_u))] + 1/s_min + 1/tau²
//     x' = x + alpha / sqrt(W(x)),   weight' = weight dx'/dx
inline Nodes place_nodes(
    const Tasks& tasks, int n_tasks, double refinement, Workspace& workspace) {
    const Law& law = tasks.law;
    const int64_t degree = law.degree;
    const vec one = all(1.0), zero = all(0.0);
    LocalScales s = carve_scales(degree, workspace);
    vec low, high;
    find_range(tasks, low, high);
    // A step that the spacing of floating-point numbers would swallow leads nowhere.
    const vec finest_sd = all(finest_share) * (high - low);
    const vec finest = max(all(law.narrow), finest_sd * finest_sd);
    find_credible(tasks, s);
    vec centre_guess, precision;
    search(tasks, centre_guess, precision);
    for (int lane = 0; lane < lanes; ++lane) {
        double from = low[lane], to = high[lane];
        if (lane < n_tasks)
            zoom(tasks.workers(lane), (double*)s.peak + lane, centre_guess[lane],
                 precision[lane], from, to, workspace);
        low[lane] = from, high[lane] = lane < n_tasks ? to : from;
    }
    vec even = all(law.prior_precision) + one / finest;
    for (int64_t u = 0; u < degree; ++u) even = even + one / s.wide[u];
    const vec limit = all(law.alpha * most_even_nodes);
    const vec is_even = where_above((high - low) * sqrt(even), limit, zero, one);
    vec flat = all(law.prior_precision), pull = zero;
    if (law.prior_precision > 0.0) pull = flat * tasks.prior_mean;
    for (int64_t u = 0; u < degree; ++u) {
        s.fine[u] = max(where_above(is_even, all(0.5), s.fine[u], zero), finest);
        s.wide[u] = max(where_above(is_even, all(0.5), s.wide[u], all(law.wide)), s.fine[u]);
        flat = flat + one / s.wide[u], pull = pull + tasks.value[u] / s.wide[u];
    }
    for (int64_t u = 0; u < degree; ++u) {
        const vec away = tasks.value[u] - pull / flat, spare = all(law.spare * ln_2);
        const vec drawn = min(all(0.5) * away * away * flat, all(most_drawn) * spare);
        const vec reach_squared = where_above(
            is_even, all(0.5), all(4.5) * (spare + s.behind[u]),
            all(4.5) * (spare + min(s.ruled_out[u], all(most_ruled_out))) + drawn);
        s.drop[u] = one / s.fine[u] - one / s.wide[u];
        s.decay[u] = one / (reach_squared * s.fine[u]);
    }
    const vec fewest = all(law.alpha * most_wide_nodes) / max(high - low, all(1e-300));
    const vec flattest = min(flat, fewest * fewest), own = is_even / finest;
    const vec far = where_above(flat, flattest, one, zero);
    const vec* centre = far_centres(tasks, s.wide, pull, flat, far, workspace);
    const vec flat_width = max(one / flat, finest), near = all(1.0 / (4.5 * ln_2 * law.spare));
    const vec alpha = all(law.alpha / refinement);
    const vec shortest = all(1e-15) * max(absolute(low), absolute(high));
    Nodes nodes;
    int64_t capacity = 0, n = 0;
    vec x = low, weight = one, count = zero;
    for (;; ++n) {
        vec inside = where_above(x, high, zero, one);
        if (!any_above(inside, all(0.5))) break;
        if (n == capacity) {
            capacity = capacity ? 2 * capacity : 512;
            nodes.x = (vec*)workspace.slot(1, lanes * capacity);
            nodes.weight = (vec*)workspace.slot(2, lanes * capacity);
        }
        nodes.x[n] = x, nodes.weight[n] = weight;
        count = count + inside;
        vec total = flattest + own, slope = zero;
        for (int64_t u = 0; u < degree; ++u) {
            const vec distance = x - tasks.value[u];
            const vec fall = one / fma(distance * distance, s.decay[u], one);
            const vec part = s.drop[u] * fall;
            total = total + part;
            slope = fma(part * fall, distance * s.decay[u], slope);
        }
        for (int64_t c = 0; centre && c <= degree; ++c) {
            const vec distance = x - centre[c];
            const vec fall = far / fma(distance * distance, near, flat_width);
            total = total + fall;
            slope = fma(near * distance * fall, fall, slope);
        }
        const vec step = max(alpha / sqrt(total), shortest);
        weight = weight * (one + step * slope / total);
        x = x + step;
    }
    for (int lane = 0; lane < lanes; ++lane) nodes.n[lane] = (int64_t)count[lane];
    return nodes;
}

}  // namespace voxpop::VOXPOP_VARIANT
