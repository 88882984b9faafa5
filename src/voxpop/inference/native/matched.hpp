// Mixtures of Gaussians averaged over cavity distributions, one a lane: moments are matched by (M90).
#pragma once

#include "integrate_sweep.hpp"

namespace voxpop::VOXPOP_VARIANT {

// Functions averaged over cavity distributions, one a lane: Z is `whole` times exp(reach).
struct Matched {
    vec usable, others, distance;  // whether there are others (1 or 0); variance given them
    vec whole, reach, slope, curve, precision;
    vec top;    // the Gaussians' values are over exp of this
    vec total;  // the log of Z

    vec if_usable(vec x) const { return where_above(usable, all(0.5), x, all(0.0)); }

    // exp(top) / Z, by which the Gaussians' values become shares.
    vec per_whole() const { return exp(top - reach) / whole; }

    void find_total() { total = if_usable(reach + log(whole)); }

    // Log of the height of a site: with it the Gaussian has the density that the mixture has.
    vec log_factor(vec site) const {
        const vec wider = fma(others, site, all(1.0));
        return total + all(0.5) * (log(wider) + distance * distance * site / wider);
    }
};

// Mixtures of n Gaussians about one centre, a lane each, by the variances and shares of a lane.
struct Scales {
    int64_t n;
    const double* variance;
    double widest;
    vec spread;        // what is added to all variances
    const vec* share;  // (n)

    // Average them over N(mean, others); the Gaussians' values are left in `gauss`.
    [[gnu::always_inline]] void match(Matched& h, vec centre, vec mean, vec others, vec* gauss) const {
        h.usable = where_above(all(infinite), others, all(1.0), all(0.0));
        h.others = h.if_usable(others), h.distance = h.if_usable(centre - mean);
        const vec half_square = all(-0.5) * h.distance * h.distance;
        h.top = h.reach = half_square / (all(widest) + spread + h.others);
        evaluate<true>(h, half_square, -1.0, gauss);
        const vec whole = h.whole, unsafe = all(unsafe_sum);
        if (!any_above(unsafe, whole)) return;
        // Components with a share are far below those without: the sums are over the former alone,
        // on a scale of their own. The Gaussians' values stay: messages are about all levels.
        Matched again = h;
        again.reach = all(-infinite);
        for (int64_t g = 0; g < n; ++g)
            again.reach =
                max(again.reach, where_above(share[g], all(unsafe_share),
                                             half_square / (all(variance[g]) + spread + h.others),
                                             all(-infinite)));
        evaluate<false>(again, half_square, unsafe_share, gauss);
        const vec safe[5] = {h.whole, h.reach, h.slope, h.curve, h.precision};
        h.whole = where_above(unsafe, whole, again.whole, safe[0]);
        h.reach = where_above(unsafe, whole, again.reach, safe[1]);
        h.slope = where_above(unsafe, whole, again.slope, safe[2]);
        h.curve = where_above(unsafe, whole, again.curve, safe[3]);
        h.precision = where_above(unsafe, whole, again.precision, safe[4]);
    }

private:
    template <bool IS_KEPT>
    [[gnu::always_inline]] void evaluate(Matched& h, vec half_square, double least, vec* gauss) const {
        vec whole = all(0.0), slope = all(0.0), curve = all(0.0), narrow = all(0.0);
        for (int64_t g = 0; g < n; ++g) {
            const vec own = all(variance[g]) + spread, per_wide = all(1.0) / (own + h.others);
            const vec value =
                exp(min(fma(half_square, per_wide, -h.reach), all(0.0))) * sqrt(per_wide);
            if (IS_KEPT) gauss[g] = value;
            const vec part = value * keep_above(share[g], all(least), share[g]);
            const vec here = part * per_wide;
            whole = whole + part, slope = slope + here;
            // Without squares of precisions, which may overflow.
            curve = fma(here, fma(half_square + half_square, per_wide, all(1.0)), curve);
            narrow = fma(here, own, narrow);
        }
        h.whole = whole, h.slope = slope / whole, h.curve = curve / whole;
        h.precision = slope / narrow;
    }
};

}  // namespace voxpop::VOXPOP_VARIANT
