// Inner kernels of matmul for AVX-512 with VNNI and calls of few tokens. Such a call is limited by memory bandwidth, so
// these kernels do little beside reading. A step of 64 or 256 elements is unrolled (except is_unrolled()), so that
// shifts and addresses are constants. Each word of codes is loaded once for all sub-blocks that have bits in it. Scales
// stay in registers. A few row groups are read as separate streams of weights, and each of their cache lines is
// prefetched once into L2 and once into L1. Outputs have the bits of the other kernels (matmul.h). vnni/ instantiates
// them, a file for each weight type.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "kernels/base/dtype.h"
#include "kernels/cpu/matmul/matmul_few.h"
#include "kernels/cpu/matmul/matmul_tiling.h"
#include "kernels/cpu/matmul/matmul_vnni.h"
#include "kernels/cpu/matmul/matmul_vnni_dots.h"
#include "kernels/cpu/matmul/packed_codes.h"
#include "kernels/cpu/target.h"

namespace slipstream::cpu::vnni {

namespace few {

/// Returns scale `run` of a K format's block for 16 rows: d * an integer, with the bits of scaled_bytes()
/// (packed_codes.h), since the integer is exact. A dot product with 1 in one byte and 0 in the others extracts a byte
/// of each lane; its start value subtracts the bias.
template <DType type>
SLIPSTREAM_INLINE_VNNI __m512 scale_of_run(const std::byte* block, __m512 d, int run) {
    const std::byte* words = block + packed_block(type).words;
    const int four = run / 4;
    const __m512i this_byte = _mm512_set1_epi32(1 << run % 4 * 8);
    __m512i number;
    if constexpr (type == DType::Q6_K) {
        number = _mm512_dpbusd_epi32(_mm512_setzero_si512(), this_byte, word_at(words, four));
    } else if constexpr (type == DType::Q3_K) {
        const __m512i high = in_each_byte(rotated_left<SubBlock::Unrolled>(word_at(words, 2), 4 - 2 * four), 0x30);
        const __m512i low = shifted_right<SubBlock::Unrolled>(word_at(words, four % 2), four / 2 * 4);
        number = _mm512_dpbusd_epi32(_mm512_set1_epi32(-32), joined(low, 0x0f, high), this_byte);
    } else if constexpr (type == DType::IQ4_XS) {
        return six_bit_scale(block, d, run);
    } else if constexpr (type == DType::Q2_K) {
        const __m512i scales = in_each_byte(word_at(words, four), 0x0f);
        number = _mm512_dpbusd_epi32(_mm512_setzero_si512(), scales, this_byte);
    } else {
        const __m512i a = word_at(words, 0);
        const __m512i scales = four == 0 ? in_each_byte(a, 0x3f)
                                         : joined(word_at(words, 2), 0x0f, in_each_byte(_mm512_srli_epi32(a, 2), 0x30));
        number = _mm512_dpbusd_epi32(_mm512_setzero_si512(), scales, this_byte);
    }
    return _mm512_mul_ps(_mm512_cvtepi32_ps(number), d);
}

/// Returns pair `pair` of the minimums of a K format's block (UnpackedChunk::mins) for 16 rows.
template <DType type>
SLIPSTREAM_INLINE_VNNI __m512i two_minimums(const std::byte* block, int pair) {
    const std::byte* words = block + packed_block(type).words;
    if constexpr (type == DType::Q2_K)
        return pair_of_bytes(in_each_byte(_mm512_srli_epi32(word_at(words, pair / 2), 4), 0x0f), pair % 2);
    const __m512i b = word_at(words, 1);
    const __m512i four =
        pair < 2 ? in_each_byte(b, 0x3f)
                 : joined(_mm512_srli_epi32(word_at(words, 2), 4), 0x0f, in_each_byte(_mm512_srli_epi32(b, 2), 0x30));
    return pair_of_bytes(four, pair % 2);
}

/// Number of sub-blocks (32 elements each) in a step of few_tokens_step() elements of K.
template <DType type>
constexpr int kStepSubBlocks = static_cast<int>(few_tokens_step(type) / 32);
/// Bytes of a step of few_tokens_step() elements of K, of a row group of 16 rows.
template <DType type>
constexpr std::int64_t kStepBytes = bytes_of_256(type) * kStepSubBlocks<type> / kSubBlocks;

/// Returns the number of sub-blocks (32 elements each) that are multiplied together since they share words of codes,
/// each loaded once for all of them: a power of two, at most as many as registers hold dot products of. `n_dots`: dot
/// products of a sub-block.
constexpr int sub_blocks_together(DType type, int n_dots) {
    constexpr int kMostDots = 16;
    const int sharing = type == DType::Q4_K || type == DType::Q5_K   ? 2
                        : type == DType::Q6_K || type == DType::Q3_K ? 4
                                                                     : 1;
    return std::min(static_cast<int>(std::bit_floor(static_cast<unsigned>(kMostDots / n_dots))), sharing);
}

/// Prefetches part `part` of `n_parts` of the cache lines of a step of kBytes bytes at `packed`, each line once at both
/// distances.
template <std::int64_t kBytes, int n_parts>
SLIPSTREAM_INLINE_VNNI void fetch_lines(const std::byte* packed, const FetchDistance& ahead, int part) {
    constexpr std::int64_t kLines = (kBytes + 63) / 64;
#pragma GCC unroll 16
    for (std::int64_t line = part * kLines / n_parts; line < (part + 1) * kLines / n_parts; ++line) {
        _mm_prefetch(packed + ahead.l2 + 64 * line, _MM_HINT_T1);
        _mm_prefetch(packed + ahead.l1 + 64 * line, _MM_HINT_T0);
    }
}

/// dots[run][g][i][t] = dot products of sub-blocks first + i of a step, i < kTogether: codes of row group g times
/// activations of token t, one for each run of weights that share a scale. `x`: activations of sub-block `first`. Also
/// prefetches part of the weights of a later step, at the distances `ahead`.
template <DType type, int kN, int T, int kTogether>
SLIPSTREAM_INLINE_VNNI void dots_of(const std::byte* const (&packed)[kN], const std::byte* x,
                                    const FetchDistance& ahead, int first,
                                    __m512i (&dots)[32 / code_traits(type).scale_run][kN][kTogether][T]) {
    using At = BlockOffsets<T>;
    constexpr int kRuns = 32 / code_traits(type).scale_run;
#pragma GCC unroll 2
    for (int run = 0; run < kRuns; ++run) {
#pragma GCC unroll 4
        for (int i = 0; i < kTogether; ++i)
#pragma GCC unroll 8
            for (int t = 0; t < T; ++t)
#pragma GCC unroll 4
                for (int g = 0; g < kN; ++g)
                    dots[run][g][i][t] =
                        broadcast_word(x + i * At::kBytes + (run == 0 ? At::kStart0 : At::kStart1) + 4 * t);
#pragma GCC unroll 8
        for (int word = 8 / kRuns * run; word < 8 / kRuns * (run + 1); ++word) {
#pragma GCC unroll 4
            for (int g = 0; g < kN; ++g) {
                constexpr int kParts = kStepSubBlocks<type> / kTogether;
                const int part = first / kTogether;
                if constexpr (is_unrolled(type)) {
                    fetch_lines<kStepBytes<type>, kParts * 8>(packed[g], ahead, part * 8 + word);
                } else {
                    fetch_lines<kStepBytes<type> / kParts, 8>(packed[g] + part * (kStepBytes<type> / kParts), ahead,
                                                              word);
                }
            }
            // Keeps the compiler's scheduler from merging the loads and prefetches of this word with those of all
            // others: streams that take turns read up to a seventh faster.
            asm volatile("");
            __m512i q[kTogether][T];
#pragma GCC unroll 4
            for (int i = 0; i < kTogether; ++i)
#pragma GCC unroll 8
                for (int t = 0; t < T; ++t) q[i][t] = broadcast_word(x + i * At::kBytes + 4 * (word * T + t));
#pragma GCC unroll 4
            for (int g = 0; g < kN; ++g)
#pragma GCC unroll 4
                for (int i = 0; i < kTogether; ++i) {
                    constexpr SubBlock kNumber = is_unrolled(type) ? SubBlock::Unrolled : SubBlock::Varies;
                    const __m512i codes =
                        packed_codes<type, kNumber>(block_of<type>(packed[g], first), first + i, word);
#pragma GCC unroll 8
                    for (int t = 0; t < T; ++t)
                        dots[run][g][i][t] = _mm512_dpbusd_epi32(dots[run][g][i][t], codes, q[i][t]);
                }
        }
    }
}

/// Subtracts the minimums of a K format's block from `unscaled`, sums to which the caller still has to apply the
/// activations' scale. `x`: the activations of the block's first sub-block.
template <DType type, int kN, int T>
SLIPSTREAM_INLINE_VNNI void take_minimums(const std::byte* const (&packed)[kN], const std::byte* x,
                                          __m512 (&unscaled)[kN][T]) {
    using At = BlockOffsets<T>;
    constexpr int kPairs = minimum_pairs(type);
#pragma GCC unroll 4
    for (int g = 0; g < kN; ++g) {
        __m512i totals[T];
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) totals[t] = _mm512_setzero_si512();
#pragma GCC unroll 8
        for (int pair = 0; pair < kPairs; ++pair) {
            const __m512i two = two_minimums<type>(packed[g], pair);
            const std::byte* const of_pair = x + sub_block_of_sums(type, pair) * At::kBytes + At::kSum;
#pragma GCC unroll 8
            for (int t = 0; t < T; ++t)
                totals[t] = _mm512_dpwssd_epi32(totals[t], two, broadcast_word(of_pair + 4 * t));
        }
        const __m512 minus_dmin = _mm512_xor_ps(packed_half(packed[g], 1), _mm512_set1_ps(-0.0F));
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t)
            unscaled[g][t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(totals[t]), minus_dmin, unscaled[g][t]);
    }
}

/// Adds the dot products of sub-blocks [first, first + kTogether) of a step of kN row groups to `sums`, or for K
/// formats to `unscaled`, sums to which the caller applies the activations' scale at the end of the block. `x`:
/// activations of the step's first sub-block.
template <DType type, int kTogether, int kN, int T>
SLIPSTREAM_INLINE_VNNI void add_sub_blocks(const std::byte* const (&packed)[kN], const std::byte* const x,
                                           const FetchDistance& ahead, int first, __m512 (&unscaled)[kN][T],
                                           __m512 (&sums)[kN][T]) {
    using At = BlockOffsets<T>;
    constexpr CodeTraits kTraits = code_traits(type);
    constexpr bool kOneScale = kTraits.activation_run != 32;
    constexpr int kRuns = 32 / kTraits.scale_run;
    __m512i dots[kRuns][kN][kTogether][T];
    dots_of<type, kN, T, kTogether>(packed, x + first * At::kBytes, ahead, first, dots);
#pragma GCC unroll 4
    for (int i = 0; i < kTogether; ++i)
#pragma GCC unroll 2
        for (int run = 0; run < kRuns; ++run)
#pragma GCC unroll 4
            for (int g = 0; g < kN; ++g) {
                const int s = first + i;
                const std::byte* const block = block_of<type>(packed[g], s);
                const __m512 d = packed_scale<type>(block);
                const __m512 scale = kOneScale ? scale_of_run<type>(block, d, kRuns * s + run) : d;
#pragma GCC unroll 8
                for (int t = 0; t < T; ++t) {
                    const std::byte* const of_token = x + s * At::kBytes + 4 * t;
                    const __m512 dot = _mm512_cvtepi32_ps(dots[run][g][i][t]);
                    if constexpr (kOneScale) {
                        unscaled[g][t] = _mm512_fmadd_ps(dot, scale, unscaled[g][t]);
                    } else {
                        const __m512 both = _mm512_mul_ps(scale, broadcast_float(of_token + At::kD));
                        sums[g][t] = _mm512_fmadd_ps(dot, both, sums[g][t]);
                        if constexpr (kTraits.has_offset)
                            sums[g][t] = _mm512_fmadd_ps(packed_half(block, 1), broadcast_float(of_token + At::kSum),
                                                         sums[g][t]);
                    }
                }
            }
}

/// Adds the dot products of one step of kN row groups to `sums`. `packed[g]`: the step's weights of row group g; `x`:
/// activations of its first sub-block.
template <DType type, int kN, int T>
SLIPSTREAM_INLINE_VNNI void add_step(const std::byte* const (&packed)[kN], const std::byte* const x,
                                     const FetchDistance& ahead, __m512 (&sums)[kN][T]) {
    using At = BlockOffsets<T>;
    constexpr CodeTraits kTraits = code_traits(type);
    constexpr int kTogether = sub_blocks_together(type, kN * T);
    __m512 unscaled[kN][T];
#pragma GCC unroll 4
    for (int g = 0; g < kN; ++g)
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) unscaled[g][t] = _mm512_setzero_ps();
    if constexpr (is_unrolled(type)) {
#pragma GCC unroll 8
        for (int first = 0; first < kStepSubBlocks<type>; first += kTogether)
            add_sub_blocks<type, kTogether, kN, T>(packed, x, ahead, first, unscaled, sums);
    } else {
#pragma GCC unroll 1
        for (int first = 0; first < kStepSubBlocks<type>; first += kTogether)
            add_sub_blocks<type, kTogether, kN, T>(packed, x, ahead, first, unscaled, sums);
    }
    if constexpr (kTraits.activation_run != 32) {
        if constexpr (kTraits.has_offset) take_minimums<type>(packed, x, unscaled);
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t)
#pragma GCC unroll 4
            for (int g = 0; g < kN; ++g)
                sums[g][t] = _mm512_fmadd_ps(unscaled[g][t], broadcast_float(x + At::kD + 4 * t), sums[g][t]);
    }
}

/// Multiplies row groups [group, group + kN) of a tile, each a stream of weights, from the start of their rows on, over
/// a whole number of steps. Overwrites their sums.
template <DType type, int kN, int T>
SLIPSTREAM_INLINE_VNNI void multiply_streams(const CodeTile& tile, int group) {
    const std::byte* packed[kN];
    __m512 sums[kN][T];
#pragma GCC unroll 4
    for (int g = 0; g < kN; ++g) {
        packed[g] = tile.packed + (group + g) * tile.group_bytes;
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) sums[g][t] = _mm512_setzero_ps();
    }
    const FetchDistance ahead{.l1 = tile.ahead.into_l1 - tile.packed, .l2 = tile.ahead.into_l2 - tile.packed};
    const std::byte* x = tile.x;
    for (int s = 0; s < tile.n_sub; s += kStepSubBlocks<type>) {
        add_step<type, kN, T>(packed, x, ahead, sums);
        x += kStepSubBlocks<type> * BlockOffsets<T>::kBytes;
#pragma GCC unroll 4
        for (int g = 0; g < kN; ++g) packed[g] += kStepBytes<type>;
    }
#pragma GCC unroll 4
    for (int g = 0; g < kN; ++g)
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) _mm512_storeu_ps(tile.sums + (group + g) * tile.sums_stride + 16 * t, sums[g][t]);
}

/// Multiplies the row groups of a tile from `group` on, kN at a time as long as there are that many, then half as many.
template <DType type, int kN, int T>
SLIPSTREAM_INLINE_VNNI void multiply_groups(const CodeTile& tile, int group) {
    for (; group + kN <= tile.n_groups; group += kN) multiply_streams<type, kN, T>(tile, group);
    if constexpr (kN > 1) multiply_groups<type, kN / 2, T>(tile, group);
}

template <DType type, int T>
SLIPSTREAM_AVX512_VNNI void multiply(const CodeTile& tile) {
    multiply_groups<type, few_tokens_streams(T), T>(tile, 0);
}

}  // namespace few

template <DType type>
FewTokenKernels few_token_kernels() {
    return []<std::size_t... i>(std::index_sequence<i...>) {
        return FewTokenKernels{few::multiply<type, static_cast<int>(i) + 1>...};
    }
    (std::make_index_sequence<kMostFewTokens>());
}

}  // namespace slipstream::cpu::vnni
#endif
