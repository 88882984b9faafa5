// Quantiles of a Gaussian mixture in one dimension; one probability per lane.
#pragma once

#include "elementary.hpp"

namespace voxpop::VOXPOP_VARIANT {

// Density and cumulated probability of the standard normal distribution.
//
//     Φ(-|z|) = erfc(x) / 2,  x = |z| / sqrt 2,   erfc(x) = exp(-x²) t P(2 t - 1),  t = 2 / (2 + x)
//
// with P the Chebyshev interpolant of degree 20: relative error 4e-14.
inline vec normal(vec z, vec& density) {
    static const double p[21] = {
        4.013214079211369e-08,  -1.6522657680870578e-08, -3.1317480336212887e-07,
        3.125481358359026e-07,  1.0002581219188347e-06,  -2.161061905438928e-06,
        -5.479903792426121e-07, 8.297241421910836e-06,   -1.085939286193249e-05,
        -1.718212196371519e-05, 7.22396043745831e-05,    -1.71543924187997e-05,
        -0.0003315376230240118, 0.00041864247236771286,  0.001545306123530903,
        -0.00323959198556501,   -0.010755330949256807,   0.01822111572841144,
        0.13973604627808986,    0.34358034220724454,     0.5107913526210115};
    const vec x = absolute(z) * all(0.70710678118654752), bell = exp(-x * x);
    const vec t = all(2.0) / (all(2.0) + x), u = all(2.0) * t - all(1.0);
    vec sum = all(p[0]);
#pragma GCC unroll 20
    for (int i = 1; i < 21; ++i) sum = fma(sum, u, all(p[i]));
    const vec tail = all(0.5) * bell * t * sum;
    density = bell * all(0.39894228040143268);
    return where_above(z, all(0.0), all(1.0) - tail, tail);
}

// Components of the mixture of one task: weights that sum to 1, sd, and means (n, dimension).
struct Mixture {
    int64_t n, dimension;
    const double *weight = nullptr, *sd = nullptr, *mean = nullptr;
};

// Quantiles are found to this share of the narrowest component's sd.
constexpr double quantile_tolerance = 1e-9;
constexpr int most_steps = 200;

// Solve Σ_c weight_c Φ((x - mean_c) / sd_c) = p for coordinate j, for `lanes` probabilities p.
//
// A quantile of a mixture lies between the smallest and the largest of its components' own, of
// which `standard` are those of the standard normal; Newton's method runs inside that bracket and
// halves it where it would leave. A lane that has converged stays as it is.
inline vec mixture_quantile(const Mixture& m, int64_t j, vec p, vec standard) {
    if (m.n == 1) return fma(standard, all(m.sd[0]), all(m.mean[j]));
    vec low = all(1e300), high = all(-1e300);
    double average = 0.0, spread = 0.0, narrowest = m.sd[0];
    for (int64_t c = 0; c < m.n; ++c) {
        const double mean = m.mean[c * m.dimension + j], sd = m.sd[c];
        const vec own = fma(standard, all(sd), all(mean));
        low = min(low, own), high = max(high, own);
        average += m.weight[c] * mean;
        narrowest = sd < narrowest ? sd : narrowest;
    }
    for (int64_t c = 0; c < m.n; ++c) {
        const double away = m.mean[c * m.dimension + j] - average;
        spread += m.weight[c] * (away * away + m.sd[c] * m.sd[c]);
    }
    vec x = fma(standard, all(__builtin_sqrt(spread)), all(average));
    x = min(max(x, low), high);
    vec open = all(1.0);
    for (int step = 0; step < most_steps && any_above(open, all(0.5)); ++step) {
        vec error = -p, slope = all(0.0), density;
        for (int64_t c = 0; c < m.n; ++c) {
            const vec per_sd = all(1.0 / m.sd[c]), weight = all(m.weight[c]);
            const vec z = (x - all(m.mean[c * m.dimension + j])) * per_sd;
            error = fma(weight, normal(z, density), error);
            slope = fma(weight * per_sd, density, slope);
        }
        low = where_above(all(0.0), error, x, low);
        high = where_above(all(0.0), error, high, x);
        const vec half = all(0.5) * (low + high), ahead = x - error / slope;
        // Comparisons with a step that is not a number fail, and halve the bracket.
        vec next = where_above(ahead, low, ahead, half);
        next = where_above(high, next, next, half);
        const vec moved = absolute(next - x);
        x = where_above(open, all(0.5), next, x);
        open = where_above(moved, all(quantile_tolerance * narrowest), open, all(0.0));
    }
    return x;
}

}  // namespace voxpop::VOXPOP_VARIANT
