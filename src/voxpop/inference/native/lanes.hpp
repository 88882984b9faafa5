// Between rows, as memory holds them (the numbers of a task are neighbours), and lanes, as kernels
// want them (equal numbers of several tasks are neighbours).
#pragma once

#include "simd.hpp"

namespace voxpop::VOXPOP_VARIANT {

#if VOXPOP_LANES == 8

// Few numbers of one row.
typedef __m256i few;
constexpr int most_few = 4;

template <int N>
[[gnu::always_inline]] inline few load_few(const int64_t* row) {
    if constexpr (N == most_few) return _mm256_loadu_si256((const few*)row);
    return _mm256_maskz_loadu_epi64((1 << N) - 1, row);
}

template <int N>
[[gnu::always_inline]] inline void store_few(int64_t* row, few numbers) {
    _mm256_mask_storeu_epi64(row, (1 << N) - 1, numbers);
}

template <int N>
[[gnu::always_inline]] inline void add_few(int64_t* row, few numbers) {
    store_few<N>(row, _mm256_add_epi64(load_few<N>(row), numbers));
}

// Transpose four numbers of four rows, in both halves of the vectors.
[[gnu::always_inline]] inline void transpose(__m512i* row) {
    const __m512i even_01 = _mm512_unpacklo_epi64(row[0], row[1]);
    const __m512i even_23 = _mm512_unpacklo_epi64(row[2], row[3]);
    const __m512i odd_01 = _mm512_unpackhi_epi64(row[0], row[1]);
    const __m512i odd_23 = _mm512_unpackhi_epi64(row[2], row[3]);
    // The first and the second two numbers of each half.
    const __m512i first = _mm512_set_epi64(13, 12, 5, 4, 9, 8, 1, 0);
    const __m512i second = _mm512_set_epi64(15, 14, 7, 6, 11, 10, 3, 2);
    row[0] = _mm512_permutex2var_epi64(even_01, first, even_23);
    row[1] = _mm512_permutex2var_epi64(odd_01, first, odd_23);
    row[2] = _mm512_permutex2var_epi64(even_01, second, even_23);
    row[3] = _mm512_permutex2var_epi64(odd_01, second, odd_23);
}

// to[j][lane] = row[lane][j] for j < N
template <int N>
[[gnu::always_inline]] inline void to_lanes(const int64_t* const* row, ivec* to) {
    __m512i rows[4];
    for (int lane = 0; lane < 4; ++lane)
        rows[lane] = _mm512_inserti64x4(_mm512_castsi256_si512(load_few<N>(row[lane])),
                                        load_few<N>(row[lane + 4]), 1);
    transpose(rows);
    for (int j = 0; j < N; ++j) to[j] = (ivec)rows[j];
}

// Call put(lane, few) with the numbers from[j][lane], j < N, of every lane.
template <int N, class Put>
[[gnu::always_inline]] inline void to_rows(const ivec* from, Put put) {
    __m512i rows[4];
    for (int j = 0; j < 4; ++j) rows[j] = (__m512i)from[j < N ? j : N - 1];
    transpose(rows);
    for (int lane = 0; lane < 4; ++lane) put(lane, _mm512_castsi512_si256(rows[lane]));
    for (int lane = 0; lane < 4; ++lane) put(lane + 4, _mm512_extracti64x4_epi64(rows[lane], 1));
}

#else

// Rows may also hold doubles.
typedef int64_t few __attribute__((may_alias));
constexpr int most_few = 1;

template <int N>
[[gnu::always_inline]] inline void store_few(int64_t* row, few number) {
    *row = number;
}

template <int N>
[[gnu::always_inline]] inline void add_few(int64_t* row, few number) {
    *row += number;
}

template <int N>
[[gnu::always_inline]] inline void to_lanes(const int64_t* const* row, ivec* to) {
    for (int lane = 0; lane < lanes; ++lane) ((few*)to)[lane] = *(const few*)row[lane];
}

template <int N, class Put>
[[gnu::always_inline]] inline void to_rows(const ivec* from, Put put) {
    for (int lane = 0; lane < lanes; ++lane) put(lane, ((const few*)from)[lane]);
}

#endif

// A number known when this is compiled, as an argument.
template <int N>
struct Constant {
    static constexpr int value = N;
};

// Call f(N, first) for the columns of a row, N of them at once.
template <class F>
[[gnu::always_inline]] inline void for_few(int64_t n_columns, F f) {
    int64_t first = 0;
    for (; first + most_few <= n_columns; first += most_few) f(Constant<most_few>(), first);
    switch (n_columns - first) {
        case 1: return f(Constant<1>(), first);
        case 2: return f(Constant<most_few < 2 ? 1 : 2>(), first);
        case 3: return f(Constant<most_few < 3 ? 1 : 3>(), first);
    }
}

}  // namespace voxpop::VOXPOP_VARIANT
