// Inner kernels of matmul for AVX2 that multiply codes, by vpmaddubsw, whose 16-bit sums of two products saturate. As
// many steps are added up in 16 bits as the bits of the codes allow (activations are -127 to 127). Codes of 8 bits are
// multiplied as signed numbers, by add_signed_products(). A register holds 8 of a row group's 16 rows.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels/cpu/matmul/activations.h"
#include "kernels/cpu/matmul/matmul_interleaved.h"
#include "kernels/cpu/matmul/packed_block.h"
#include "kernels/cpu/target.h"

namespace slipstream::cpu::avx2 {

#define SLIPSTREAM_INLINE_AVX2 SLIPSTREAM_AVX2 __attribute__((always_inline)) static inline

/// Rows of half a row group: 8, since a 256-bit register has 8 lanes of 32 bits.
inline constexpr int kHalfRows = 8;

/// Looks up each byte of `places` in `table`, of 16 bytes. The bytes must be 0 to 15.
template <typename Table>
SLIPSTREAM_INLINE_AVX2 __m256i looked_up(const Table& table, __m256i places) {
    static_assert(sizeof(Table) == 16);
    return _mm256_shuffle_epi8(
        _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table.data()))), places);
}

/// Returns the signed codes of 8 bits whose code_offset is 128, as it is of all types with codes of 8 bits.
SLIPSTREAM_INLINE_AVX2 __m256i without_offset(__m256i codes) {
    return _mm256_xor_si256(codes, _mm256_set1_epi8(-128));
}

SLIPSTREAM_INLINE_AVX2 __m256i load_32(const void* src) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(src));
}

SLIPSTREAM_INLINE_AVX2 __m256i broadcast_word(const std::byte* src) {
    return _mm256_set1_epi32(*reinterpret_cast<const int*>(src));
}
SLIPSTREAM_INLINE_AVX2 __m256 broadcast_float(const std::byte* src) {
    return _mm256_castsi256_ps(broadcast_word(src));
}

/// Returns the number of steps that can be added up in an int16, of codes below 2^code_bits. A step is 2 products of at
/// most (2^code_bits - 1) * 127 each, which fit for 2 to 6 bits.
constexpr int steps_of_int16(int code_bits) {
    return code_bits <= 4 ? 8 : code_bits == 5 ? 4 : 2;
}

/// dots[t] += sum of four products, of the codes of a word and the activations of token t. `values`: signed codes, -128
/// to 127; `x`: the word's activations of the first token. vpmaddubsw multiplies unsigned by signed bytes, so the
/// codes' magnitudes are multiplied, and their signs are given to the activations. A sum of two products is at most 2 *
/// 128 * 127, which an int16 holds.
template <int T>
SLIPSTREAM_INLINE_AVX2 void add_signed_products(__m256i values, const std::byte* x, __m256i (&dots)[T]) {
    const __m256i magnitudes = _mm256_abs_epi8(values);
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
        const __m256i pairs = _mm256_maddubs_epi16(magnitudes, _mm256_sign_epi8(broadcast_word(x + 4 * t), values));
        dots[t] = _mm256_add_epi32(dots[t], _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
    }
}

/// Sets dots[t] to the value from which the integer sum of token t starts: -code_offset * (sum of q) where unsigned
/// codes are multiplied, 0 where signed ones are. `x`: a sub-block's activations; `start`: byte offset of the start
/// values in it.
template <DType type, int T>
SLIPSTREAM_INLINE_AVX2 void start_sums(const std::byte* x, int start, __m256i (&dots)[T]) {
    static_assert(code_traits(type).code_bits != 8 || code_traits(type).code_offset == 128);
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t)
        dots[t] = code_traits(type).code_bits == 8 ? _mm256_setzero_si256() : broadcast_word(x + start + 4 * t);
}

/// dots[t] += dot product over words [first, first + count) of a sub-block (32 k; a word is four k of a row): unsigned
/// codes of half `half` (0 or 1) of a row group of 16 rows, times activations of token t. `codes`: [k / 4][row], of all
/// 16 rows; `x`: the sub-block's activations (activations.h).
template <int kCodeBits, int T>
SLIPSTREAM_INLINE_AVX2 void add_products(const std::uint32_t (*codes)[16], int half, const std::byte* x, int first,
                                         int count, __m256i (&dots)[T]) {
    constexpr int kSteps = steps_of_int16(kCodeBits);
    const __m256i ones = _mm256_set1_epi16(1);
    for (int begin = first; begin < first + count; begin += kSteps) {
        __m256i sums[T];
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) sums[t] = _mm256_setzero_si256();
        const int end = begin + kSteps < first + count ? begin + kSteps : first + count;
#pragma GCC unroll 8
        for (int g = begin; g < end; ++g) {
            const __m256i w = load_32(codes[g] + kHalfRows * half);
#pragma GCC unroll 8
            for (int t = 0; t < T; ++t)
                sums[t] = _mm256_add_epi16(sums[t], _mm256_maddubs_epi16(w, broadcast_word(x + 4 * (g * T + t))));
        }
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) dots[t] = _mm256_add_epi32(dots[t], _mm256_madd_epi16(sums[t], ones));
    }
}

/// dots[t] = start value of token t + dot product over words [first, first + count) of sub-block `s` (32 k; a word is
/// four k of a row): codes of half `half` of a row group, times activations of token t. `x`: the sub-block's
/// activations; `start`: byte offset of the start values in `x`.
template <DType type, int T>
SLIPSTREAM_INLINE_AVX2 void dot_products(const UnpackedChunk& weights, int s, int half, const std::byte* x, int start,
                                         int first, int count, __m256i (&dots)[T]) {
    start_sums<type, T>(x, start, dots);
    if constexpr (code_traits(type).code_bits == 8) {
#pragma GCC unroll 8
        for (int g = first; g < first + count; ++g)
            add_signed_products<T>(without_offset(load_32(weights.codes[s][g] + kHalfRows * half)), x + 4 * g * T,
                                   dots);
    } else {
        add_products<code_traits(type).code_bits, T>(weights.codes[s], half, x, first, count, dots);
    }
}

/// Adds sub-block `s` (32 k) of half `half` of a row group to sums[t], for types whose activations have a scale for
/// each 32. `x`: the sub-block's activations.
template <DType type, int T>
SLIPSTREAM_INLINE_AVX2 void add_block(const UnpackedChunk& weights, int s, int half, const std::byte* x,
                                      __m256 (&sums)[T]) {
    using At = BlockOffsets<T>;
    const int row = kHalfRows * half;
    __m256i dots[T];
    dot_products<type, T>(weights, s, half, x, At::kStart0, 0, 8, dots);
    const __m256 scale = _mm256_loadu_ps(weights.scale[s] + row);
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
        const __m256 both = _mm256_mul_ps(scale, broadcast_float(x + At::kD + 4 * t));
        sums[t] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dots[t]), both, sums[t]);
    }
    if constexpr (code_traits(type).has_offset) {
        const __m256 offset = _mm256_loadu_ps(weights.offset[s] + row);
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) sums[t] = _mm256_fmadd_ps(offset, broadcast_float(x + At::kSum + 4 * t), sums[t]);
    }
}

/// Adds sub-block `s` (32 of the 256 k of a K format's block), for half `half` of a row group, to sums[t]. `x`: its
/// activations. Their scale holds for the whole block, so the caller applies it to the sums afterwards.
template <DType type, int T>
SLIPSTREAM_INLINE_AVX2 void add_unscaled(const UnpackedChunk& weights, int s, int half, const std::byte* x,
                                         __m256 (&sums)[T]) {
    using At = BlockOffsets<T>;
    constexpr int kRuns = 32 / code_traits(type).scale_run;
#pragma GCC unroll 2
    for (int run = 0; run < kRuns; ++run) {
        __m256i dots[T];
        dot_products<type, T>(weights, s, half, x, run == 0 ? At::kStart0 : At::kStart1, 8 / kRuns * run, 8 / kRuns,
                              dots);
        const __m256 scale = _mm256_loadu_ps(weights.scale[kRuns * s + run] + kHalfRows * half);
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) sums[t] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dots[t]), scale, sums[t]);
    }
}

/// Subtracts the minimums of a K format's block, for half `half` of a row group, from sums[t], to which the caller
/// still has to apply the activations' scale. `x`: the activations of the first sub-block.
template <DType type, int T>
SLIPSTREAM_INLINE_AVX2 void add_minimums(const UnpackedChunk& weights, int half, const std::byte* x,
                                         __m256 (&sums)[T]) {
    using At = BlockOffsets<T>;
    constexpr int kPairs = minimum_pairs(type);
    const int row = kHalfRows * half;
    const __m256 minus_dmin = _mm256_loadu_ps(weights.minus_dmin + row);
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
        __m256i total = _mm256_setzero_si256();
#pragma GCC unroll 8
        for (int pair = 0; pair < kPairs; ++pair)
            total = _mm256_add_epi32(
                total,
                _mm256_madd_epi16(load_32(weights.mins[pair] + row),
                                  broadcast_word(x + sub_block_of_sums(type, pair) * At::kBytes + At::kSum + 4 * t)));
        sums[t] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(total), minus_dmin, sums[t]);
    }
}

template <DType type, int T>
SLIPSTREAM_INLINE_AVX2 void multiply_half(const CodeTile& tile, int group, int half) {
    using At = BlockOffsets<T>;
    constexpr CodeTraits kTraits = code_traits(type);
    constexpr bool kOneScale = kTraits.activation_run != 32;  // one scale of activations for the whole K slice
    const UnpackedChunk& weights = tile.unpacked[group];
    const int row = kHalfRows * half;
    float* const sums_of_group = tile.sums + group * tile.sums_stride;
    __m256 sums[T];
    __m256 before[T];
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
        before[t] = tile.from_zero ? _mm256_setzero_ps() : _mm256_loadu_ps(sums_of_group + 16 * t + row);
        sums[t] = kOneScale ? _mm256_setzero_ps() : before[t];
    }
    const std::byte* x = tile.x;
    const std::byte* into_l1 = tile.ahead.into_l1 + group * tile.group_bytes;
    const std::byte* into_l2 = tile.ahead.into_l2 + group * tile.group_bytes;
    for (int s = 0; s < tile.n_sub; ++s, x += At::kBytes) {
        if (half == 0)
            for (std::int64_t line = 0; line < tile.ahead.step_bytes; line += 64) {
                _mm_prefetch(into_l2 + line, _MM_HINT_T1);
                _mm_prefetch(into_l1 + line, _MM_HINT_T0);
            }
        into_l1 += tile.ahead.step_bytes;
        into_l2 += tile.ahead.step_bytes;
        if constexpr (kOneScale) {
            add_unscaled<type, T>(weights, s, half, x, sums);
        } else {
            add_block<type, T>(weights, s, half, x, sums);
        }
    }
    if constexpr (kOneScale && kTraits.has_offset) add_minimums<type, T>(weights, half, tile.x, sums);
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
        if constexpr (kOneScale)
            sums[t] = _mm256_fmadd_ps(sums[t], broadcast_float(tile.x + At::kD + 4 * t), before[t]);
        _mm256_storeu_ps(sums_of_group + 16 * t + row, sums[t]);
    }
}

template <DType type, int T>
SLIPSTREAM_AVX2 void multiply_codes(const CodeTile& whole) {
    CodeTile tile = whole;
    for (int i = 0; i < whole.n_tiles; ++i) {
        for (int g = 0; g < tile.n_groups; ++g) {
            multiply_half<type, T>(tile, g, 0);
            multiply_half<type, T>(tile, g, 1);
        }
        tile.x += tile.x_stride;
        tile.sums += 16 * T;
        tile.ahead.into_l1 += tile.n_sub * tile.ahead.step_bytes;
        tile.ahead.into_l2 += tile.n_sub * tile.ahead.step_bytes;
    }
}

}  // namespace slipstream::cpu::avx2
#endif
