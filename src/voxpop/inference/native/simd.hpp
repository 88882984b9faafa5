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
// gives up on inlining some.
#define VOXPOP_INLINE __attribute__((always_inline))

namespace voxpop::VOXPOP_VARIANT {

constexpr int lanes = VOXPOP_LANES;
typedef double vec __attribute__((vector_size(8 * VOXPOP_LANES), may_alias));
typedef double loose __attribute__((vector_size(8 * VOXPOP_LANES), may_alias, aligned(8)));
typedef int64_t ivec __attribute__((vector_size(8 * VOXPOP_LANES), may_alias));

#if VOXPOP_LANES == 8

inline vec all(double x) { return _mm512_set1_pd(x); }
inline vec fma(vec a, vec b, vec c) { return _mm512_fmadd_pd(a, b, c); }
inline vec max(vec a, vec b) { return _mm512_max_pd(a, b); }
inline vec min(vec a, vec b) { return _mm512_min_pd(a, b); }
inline vec sqrt(vec a) { return _mm512_sqrt_pd(a); }
inline ivec round_to_int(vec a) { return (ivec)_mm512_cvtpd_epi64(a); }
inline bool any_above(vec a, vec b) { return _mm512_cmp_pd_mask(a, b, _CMP_GT_OQ) != 0; }
// x where a > b, else y.
inline vec where_above(vec a, vec b, vec x, vec y) {
    return _mm512_mask_blend_pd(_mm512_cmp_pd_mask(a, b, _CMP_GT_OQ), y, x);
}
// x where a > b, else 0.
inline vec keep_above(vec a, vec b, vec x) {
    return _mm512_maskz_mov_pd(_mm512_cmp_pd_mask(a, b, _CMP_GT_OQ), x);
}

#elif VOXPOP_LANES == 4

inline vec all(double x) { return _mm256_set1_pd(x); }
inline vec fma(vec a, vec b, vec c) { return _mm256_fmadd_pd(a, b, c); }
inline vec max(vec a, vec b) { return _mm256_max_pd(a, b); }
inline vec min(vec a, vec b) { return _mm256_min_pd(a, b); }
inline vec sqrt(vec a) { return _mm256_sqrt_pd(a); }
inline ivec round_to_int(vec a) {
    return ivec{_mm_cvtsd_si64(__m128d{a[0], 0}), _mm_cvtsd_si64(__m128d{a[1], 0}),
                _mm_cvtsd_si64(__m128d{a[2], 0}), _mm_cvtsd_si64(__m128d{a[3], 0})};
}
inline bool any_above(vec a, vec b) {
    return _mm256_movemask_pd(_mm256_cmp_pd(a, b, _CMP_GT_OQ)) != 0;
}
inline vec where_above(vec a, vec b, vec x, vec y) {
    return _mm256_blendv_pd(y, x, _mm256_cmp_pd(a, b, _CMP_GT_OQ));
}
inline vec keep_above(vec a, vec b, vec x) {
    return _mm256_and_pd(_mm256_cmp_pd(a, b, _CMP_GT_OQ), x);
}

#else

inline vec all(double x) { return vec{x, x}; }
inline vec fma(vec a, vec b, vec c) { return a * b + c; }
inline vec max(vec a, vec b) { return a > b ? a : b; }
inline vec min(vec a, vec b) { return a < b ? a : b; }
inline vec sqrt(vec a) { return vec{__builtin_sqrt(a[0]), __builtin_sqrt(a[1])}; }
inline ivec round_to_int(vec a) {
#if defined(__x86_64__)
    return ivec{_mm_cvtsd_si64(__m128d{a[0], 0}), _mm_cvtsd_si64(__m128d{a[1], 0})};
#else
    return ivec{__builtin_llrint(a[0]), __builtin_llrint(a[1])};
#endif
}
inline bool any_above(vec a, vec b) { return a[0] > b[0] || a[1] > b[1]; }
inline vec where_above(vec a, vec b, vec x, vec y) { return a > b ? x : y; }
inline vec keep_above(vec a, vec b, vec x) { return (vec)((ivec)x & (ivec)(a > b)); }

#endif

// Vector that starts at any number.
inline vec load(const double* from) { return *(const loose*)from; }
inline ivec max(ivec a, ivec b) { return a > b ? a : b; }
inline ivec min(ivec a, ivec b) { return a < b ? a : b; }
inline vec to_double(ivec a) { return __builtin_convertvector(a, vec); }
inline vec absolute(vec a) { return max(a, -a); }

// Largest of the lanes, and their sum in a fixed order.
#if VOXPOP_LANES == 8
inline double largest(vec a) { return _mm512_reduce_max_pd(a); }
inline double sum(vec a) { return _mm512_reduce_add_pd(a); }
#else
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

}  // namespace voxpop::VOXPOP_VARIANT
