// Exponential and logarithm of a vector, to about one unit in the last place.
#pragma once

#include "simd.hpp"

namespace voxpop::VOXPOP_VARIANT {

constexpr double log2_e = 1.4426950408889634;
constexpr double ln_2 = 0.6931471805599453;
constexpr double ln_2_high = 0x1.62e42fefap-1;
constexpr double ln_2_low = 0x1.cf79abc9e3b3ap-40;
// Adding this to a number below 2^51 leaves its nearest integer in the low bits.
constexpr double to_integer = 0x1.8p52;
// Below this power of two a result would no longer be a normal number; it becomes 0.
constexpr double lowest_power = -1021.0;

// 2^r for |r| <= 1/2: minimax polynomial, relative error 3e-18 before rounding.
inline vec power_of_fraction(vec r) {
    vec p = all(4.4352809446103363e-10);
    p = fma(p, r, all(7.074105626245659e-09));
    p = fma(p, r, all(1.0178198033328528e-07));
    p = fma(p, r, all(1.321543308959463e-06));
    p = fma(p, r, all(1.5252733489960805e-05));
    p = fma(p, r, all(0.00015403530462514614));
    p = fma(p, r, all(0.001333355814678995));
    p = fma(p, r, all(0.009618129107588335));
    p = fma(p, r, all(0.055504108664819925));
    p = fma(p, r, all(0.24022650695910155));
    p = fma(p, r, all(0.6931471805599453));
    return fma(p, r, all(1.0));
}

// 2^y for y < 1023, and 0 where that is below 2^-1021 (also for -inf).
inline vec exp2(vec y) {
    vec shifted = y + all(to_integer);
    vec r = y - (shifted - all(to_integer));
    ivec power = (ivec)power_of_fraction(r) + ((ivec)shifted << 52);
    return keep_above(y, all(lowest_power), (vec)power);
}

// e^x for x < 709, and 0 below about -707.
inline vec exp(vec x) {
    vec shifted = fma(x, all(log2_e), all(to_integer));
    vec n = shifted - all(to_integer);
    vec r = fma(n, all(-ln_2_low), fma(n, all(-ln_2_high), x));
    ivec power = (ivec)power_of_fraction(r * all(log2_e)) + ((ivec)shifted << 52);
    return keep_above(x, all(lowest_power * ln_2), (vec)power);
}

// ln(m) for x = m 2^n with m in [sqrt(1/2), sqrt(2)); n comes back as well. x must be normal.
//
//     f = m - 1, s = f / (2 + f), ln(1 + f) = f - f²/2 + s (f²/2 + R(s²))
inline vec log_of_fraction(vec x, vec& n) {
    const ivec half = (ivec)all(0.70710678118654752);
    ivec bits = (ivec)x - half;
    ivec power = bits >> 52;
    vec m = (vec)((ivec)x - (power << 52));
    n = to_double(power);
    vec f = m - all(1.0), s = f / (all(2.0) + f), z = s * s;
    vec r = all(1.479819860511658591e-01);
    r = fma(r, z, all(1.531383769920937332e-01));
    r = fma(r, z, all(1.818357216161805012e-01));
    r = fma(r, z, all(2.222219843214978396e-01));
    r = fma(r, z, all(2.857142874366239149e-01));
    r = fma(r, z, all(3.999999999940941908e-01));
    r = fma(r, z, all(6.666666666666735130e-01));
    vec half_square = all(0.5) * f * f;
    return f - (half_square - s * (half_square + z * r));
}

inline vec log(vec x) {
    vec n, fraction = log_of_fraction(x, n);
    return fma(n, all(ln_2_high), fma(n, all(ln_2_low), fraction));
}

inline vec log2(vec x) {
    vec n, fraction = log_of_fraction(x, n);
    return fma(fraction, all(log2_e), n);
}

}  // namespace voxpop::VOXPOP_VARIANT
