// Exponential and logarithm of a vector, to about one unit in the last place.
#pragma once

#include "simd.hpp"

namespace voxpop::VOXPOP_VARIANT {

constexpr double log2_e = 1.4426950408889634;
constexpr double ln_2 = 0.6931471805599453;
constexpr double ln_2_high = 0x1.62e42fefap-1;
constexpr double ln_2_low = 0x1.cf79abc9e3b3ap-40;
// Stands for the log of nothing; finite, so that differences stay numbers.
constexpr double log_nothing = -1e300;
// Below this power of two a result would no longer be a normal number; it becomes 0.
constexpr double lowest_power = -1021.0;

#if VOXPOP_LANES == 8

// Adding this to a number leaves its nearest multiple of 1/16 in the low bits.
constexpr double to_steps = 0x1.8p48;

// 2^(n + r) for n a multiple of 1/16, as it comes from adding `to_steps`, and |r| <= 1/32, by a
// minimax polynomial of error 7e-18. The whole part of n goes into the exponent, the rest is one of
// 16 powers.
inline vec power(vec steps, vec r) {
    // Powers 2^(j/16), less what shifting the low bits of the steps adds to them.
    alignas(64) static const int64_t table[16] = {
        0x3ff0000000000000, 0x3fefb5586cf9890f, 0x3fef72b83c7d517b, 0x3fef387a6e756238,
        0x3fef06fe0a31b715, 0x3feedea64c123422, 0x3feebfdad5362a27, 0x3feeab07dd485429,
        0x3feea09e667f3bcd, 0x3feea11473eb0187, 0x3feeace5422aa0db, 0x3feec49182a3f090,
        0x3feee89f995ad3ad, 0x3fef199bdd85529c, 0x3fef5818dcfba487, 0x3fefa4afa2a490da};
    ivec root = (ivec)_mm512_permutex2var_epi64(
        _mm512_load_si512(table), (__m512i)steps, _mm512_load_si512(table + 8));
    const vec whole = (vec)(root + ((ivec)steps << 48));
    vec p = all(0.00015403304542073237);
    p = fma(p, r, all(0.0013333818807803788));
    p = fma(p, r, all(0.009618129113142354));
    p = fma(p, r, all(0.0555041086520945));
    p = fma(p, r, all(0.24022650695909842));
    p = fma(p, r, all(0.6931471805599468));
    return fma(whole, p * r, whole);
}

#else

// Adding this to a number below 2^51 leaves its nearest integer in the low bits.
constexpr double to_steps = 0x1.8p52;

// 2^(n + r) for n an integer, as it comes from adding `to_steps`, and |r| <= 1/2.
//
//     minimax polynomial, relative error 3e-18 before rounding; n goes into the exponent
inline vec power(vec steps, vec r) {
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
    return (vec)((ivec)fma(p, r, all(1.0)) + ((ivec)steps << 52));
}

#endif

// 2^y for y < 1023, and 0 where that is below 2^-1021 (also for -inf).
inline vec exp2(vec y) {
    vec steps = y + all(to_steps);
    vec r = y - (steps - all(to_steps));
    return keep_above(y, all(lowest_power), power(steps, r));
}

// The same with a relative error of 5e-15, and without an exact end below 2^-1021: for factors in
// sums, which are computed again in logs long before that shows.
inline vec exp2_nearly(vec y) {
#if VOXPOP_LANES == 8
    // y = whole part + j / 16 + r with 0 <= r < 1/16, all rounded down.
    alignas(64) static const double root[16] = {
        0x1.0000000000000p0, 0x1.0b5586cf9890fp0, 0x1.172b83c7d517bp0, 0x1.2387a6e756238p0,
        0x1.306fe0a31b715p0, 0x1.3dea64c123422p0, 0x1.4bfdad5362a27p0, 0x1.5ab07dd485429p0,
        0x1.6a09e667f3bcdp0, 0x1.7a11473eb0187p0, 0x1.8ace5422aa0dbp0, 0x1.9c49182a3f090p0,
        0x1.ae89f995ad3adp0, 0x1.c199bdd85529cp0, 0x1.d5818dcfba487p0, 0x1.ea4afa2a490dap0};
    const vec r = _mm512_reduce_pd(y, 4 << 4 | _MM_FROUND_TO_NEG_INF);
    const __m512d steps = _mm512_add_round_pd(
        y, all(to_steps), _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    const vec part = _mm512_permutex2var_pd(
        _mm512_load_pd(root), (__m512i)steps, _mm512_load_pd(root + 8));
    vec p = all(0.0013620206412795607);
    p = fma(p, r, all(0.009616160732724198));
    p = fma(p, r, all(0.05550416987237696));
    p = fma(p, r, all(0.24022650612972857));
    p = fma(p, r, all(0.6931471805635894));
    return _mm512_scalef_pd(fma(part, p * r, part), y);
#else
    return exp2(y);
#endif
}

// e^x for x < 709, and 0 below about -707.
inline vec exp(vec x) {
    vec steps = fma(x, all(log2_e), all(to_steps));
    vec n = steps - all(to_steps);
    vec r = fma(n, all(-ln_2_low), fma(n, all(-ln_2_high), x));
    return keep_above(x, all(lowest_power * ln_2), power(steps, r * all(log2_e)));
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
