// One vector of doubles, as wide as the instruction set that this file is compiled for allows.
//
// Everything here lives in a namespace of its own per instruction set: code compiled with wide
// instructions must never be what the linker keeps for the narrow variant.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

// After the arguments of a lambda that a hot loop calls: with many of them in one file the compiler
// gives up on inlining some. What works on a whole block is [[gnu::noinline]]: a call costs nothing
// there, and copies in every caller took most of the time of compiling.
#define VOXPOP_INLINE __attribute__((always_inline))

namespace voxpop::VOXPOP_VARIANT {

constexpr int lanes = VOXPOP_LANES;
typedef double vec __attribute__((vector_size(8 * VOXPOP_LANES), may_alias));
typedef double loose __attribute__((vector_size(8 * VOXPOP_LANES), may_alias, aligned(8)));
typedef int64_t ivec __attribute__((vector_size(8 * VOXPOP_LANES), may_alias));

inline vec all(double x) { return x - vec{}; }
inline ivec max(ivec a, ivec b) { return a > b ? a : b; }
inline ivec min(ivec a, ivec b) { return a < b ? a : b; }
inline vec to_double(ivec a) { return __builtin_convertvector(a, vec); }
// Vector that starts at any number.
inline vec load(const double* from) { return *(const loose*)from; }

// where_above is x where a > b, else y, and keep_above x or 0; largest and sum are of the lanes, in
// a fixed order.
#if VOXPOP_LANES == 8

inline vec fma(vec a, vec b, vec c) { return _mm512_fmadd_pd(a, b, c); }
inline vec max(vec a, vec b) { return _mm512_max_pd(a, b); }
inline vec min(vec a, vec b) { return _mm512_min_pd(a, b); }
inline vec sqrt(vec a) { return _mm512_sqrt_pd(a); }
inline ivec round_to_int(vec a) { return (ivec)_mm512_cvtpd_epi64(a); }
inline __mmask8 is_above(vec a, vec b) { return _mm512_cmp_pd_mask(a, b, _CMP_GT_OQ); }
inline bool any_above(vec a, vec b) { return is_above(a, b) != 0; }
inline vec where_above(vec a, vec b, vec x, vec y) {
    return _mm512_mask_blend_pd(is_above(a, b), y, x);
}
inline vec keep_above(vec a, vec b, vec x) { return _mm512_maskz_mov_pd(is_above(a, b), x); }
inline double largest(vec a) { return _mm512_reduce_max_pd(a); }
inline double sum(vec a) { return _mm512_reduce_add_pd(a); }

#else

#if VOXPOP_LANES == 4
inline vec fma(vec a, vec b, vec c) { return _mm256_fmadd_pd(a, b, c); }
inline vec sqrt(vec a) { return _mm256_sqrt_pd(a); }
inline bool any_above(vec a, vec b) { return _mm256_movemask_pd((vec)(a > b)) != 0; }
#else
inline vec fma(vec a, vec b, vec c) { return a * b + c; }
inline vec sqrt(vec a) { return vec{__builtin_sqrt(a[0]), __builtin_sqrt(a[1])}; }
inline bool any_above(vec a, vec b) { return a[0] > b[0] || a[1] > b[1]; }
#endif

inline vec max(vec a, vec b) { return a > b ? a : b; }
inline vec min(vec a, vec b) { return a < b ? a : b; }
inline vec where_above(vec a, vec b, vec x, vec y) { return a > b ? x : y; }
inline vec keep_above(vec a, vec b, vec x) { return (vec)((ivec)x & (ivec)(a > b)); }
inline ivec round_to_int(vec a) {
    ivec found;
    for (int lane = 0; lane < lanes; ++lane) found[lane] = __builtin_llrint(a[lane]);
    return found;
}
inline double largest(vec a) {
    double found = a[0];
    for (int lane = 1; lane < lanes; ++lane) found = a[lane] > found ? a[lane] : found;
    return found;
}
inline double sum(vec a) {
    double found = a[0];
    for (int lane = 1; lane < lanes; ++lane) found += a[lane];
    return found;
}

#endif

inline vec absolute(vec a) { return max(a, -a); }

}  // namespace voxpop::VOXPOP_VARIANT
