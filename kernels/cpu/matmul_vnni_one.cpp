// Inner kernels of matmul for AVX-512 with VNNI where a call has one token. Memory is what such a call waits for, so
// they do little beside reading: a step of 64 or 256 elements is unrolled, so that shifts and addresses are constants,
// each word of codes is loaded once for all sub-blocks that have bits in it, scales stay in registers, and a few groups
// of rows are as many streams of weights, of which each line is fetched once into L2 and once into L1. Outputs have the
// bits of the other kernels (matmul.h).

#if defined(__x86_64__)
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/base/dtype.h"
#include "kernels/cpu/matmul_extents.h"
#include "kernels/cpu/matmul_one.h"
#include "kernels/cpu/matmul_vnni_dots.h"
#include "kernels/cpu/packed_codes.h"
#include "kernels/cpu/target.h"

namespace slipstream::cpu {

namespace {

using namespace vnni;

/// Scale `run` of a K format's block, d * an integer: exact, as scaled_bytes() has it (packed_codes.h). A dot product
/// with 1 in one byte and 0 in the others takes a byte out of each lane, and its bias off.
template <DType type>
SLIPSTREAM_INLINE_VNNI __m512 one_scale(const std::byte* block, __m512 d, int run) {
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
    } else {
        const __m512i a = word_at(words, 0);
        const __m512i scales = four == 0 ? in_each_byte(a, 0x3f)
                                         : joined(word_at(words, 2), 0x0f, in_each_byte(_mm512_srli_epi32(a, 2), 0x30));
        number = _mm512_dpbusd_epi32(_mm512_setzero_si512(), scales, this_byte);
    }
    return _mm512_mul_ps(_mm512_cvtepi32_ps(number), d);
}

/// The minimums of two sub-blocks of a K format, a pair of int16.
SLIPSTREAM_INLINE_VNNI __m512i two_minimums(const std::byte* block, int pair) {
    const std::byte* words = block + packed_block(DType::Q4_K).words;
    const __m512i b = word_at(words, 1);
    const __m512i four =
        pair < 2 ? in_each_byte(b, 0x3f)
                 : joined(_mm512_srli_epi32(word_at(words, 2), 4), 0x0f, in_each_byte(_mm512_srli_epi32(b, 2), 0x30));
    return pair_of_bytes(four, pair % 2);
}

/// What a kernel goes over at once.
template <DType type>
constexpr int kStepSubBlocks = static_cast<int>(one_token_step(type) / 32);
template <DType type>
constexpr std::int64_t kStepBytes = bytes_of_256(type) * kStepSubBlocks<type> / kSubBlocks;

/// Sub-blocks that share words of codes: these are loaded once for all of them.
constexpr int sub_blocks_together(DType type) {
    return type == DType::Q4_K || type == DType::Q5_K ? 2 : type == DType::Q6_K || type == DType::Q3_K ? 4 : 1;
}

/// Fetches part `part` of `n_parts` of the lines of a step: each line once, at both distances.
template <std::int64_t kBytes, int n_parts>
SLIPSTREAM_INLINE_VNNI void fetch_lines(const std::byte* packed, const FetchDistance& ahead, int part) {
    constexpr std::int64_t kLines = (kBytes + 63) / 64;
#pragma GCC unroll 16
    for (std::int64_t line = part * kLines / n_parts; line < (part + 1) * kLines / n_parts; ++line) {
        _mm_prefetch(packed + ahead.l2 + 64 * line, _MM_HINT_T1);
        _mm_prefetch(packed + ahead.l1 + 64 * line, _MM_HINT_T0);
    }
}

/// A step of kN groups: adds to `sums`.
template <DType type, int kN>
SLIPSTREAM_INLINE_VNNI void add_step(const std::byte* const (&packed)[kN], const std::byte* x,
                                     const FetchDistance& ahead, __m512 (&sums)[kN]) {
    constexpr CodeTraits kTraits = code_traits(type);
    constexpr bool kOneScale = kTraits.activation_run != 32;
    constexpr int kRuns = 32 / kTraits.scale_run;
    constexpr int kTogether = sub_blocks_together(type);
    __m512 unscaled[kN];
#pragma GCC unroll 4
    for (int g = 0; g < kN; ++g) unscaled[g] = _mm512_setzero_ps();
#pragma GCC unroll 8
    for (int first = 0; first < kStepSubBlocks<type>; first += kTogether, x += kTogether * AtOne::kBytes) {
        __m512i dots[kRuns][kN][kTogether];
#pragma GCC unroll 2
        for (int run = 0; run < kRuns; ++run) {
#pragma GCC unroll 4
            for (int i = 0; i < kTogether; ++i)
#pragma GCC unroll 4
                for (int g = 0; g < kN; ++g)
                    dots[run][g][i] =
                        broadcast_word(x + i * AtOne::kBytes + (run == 0 ? AtOne::kStart0 : AtOne::kStart1));
#pragma GCC unroll 8
            for (int word = 8 / kRuns * run; word < 8 / kRuns * (run + 1); ++word) {
#pragma GCC unroll 4
                for (int g = 0; g < kN; ++g)
                    fetch_lines<kStepBytes<type>, kStepSubBlocks<type> / kTogether * 8>(packed[g], ahead,
                                                                                        first / kTogether * 8 + word);
                // Keeps the compiler's scheduler from moving what one word loads and fetches into a heap with all
                // others: streams that take turns read up to a seventh faster.
                asm volatile("");
                __m512i q[kTogether];
#pragma GCC unroll 4
                for (int i = 0; i < kTogether; ++i) q[i] = broadcast_word(x + i * AtOne::kBytes + 4 * word);
#pragma GCC unroll 4
                for (int g = 0; g < kN; ++g) {
                    const std::byte* const block = block_of<type>(packed[g], first);
#pragma GCC unroll 4
                    for (int i = 0; i < kTogether; ++i)
                        dots[run][g][i] = _mm512_dpbusd_epi32(
                            dots[run][g][i], packed_codes<type, SubBlock::Unrolled>(block, first + i, word), q[i]);
                }
            }
        }
#pragma GCC unroll 4
        for (int i = 0; i < kTogether; ++i)
#pragma GCC unroll 2
            for (int run = 0; run < kRuns; ++run)
#pragma GCC unroll 4
                for (int g = 0; g < kN; ++g) {
                    const std::byte* const block = block_of<type>(packed[g], first);
                    const __m512 dot = _mm512_cvtepi32_ps(dots[run][g][i]);
                    if constexpr (kOneScale) {
                        const __m512 scale = one_scale<type>(block, packed_half(block, 0), kRuns * (first + i) + run);
                        unscaled[g] = _mm512_fmadd_ps(dot, scale, unscaled[g]);
                    } else {
                        const __m512 both = _mm512_mul_ps(packed_half(block, 0), broadcast_float(x + AtOne::kD));
                        sums[g] = _mm512_fmadd_ps(dot, both, sums[g]);
                        if constexpr (kTraits.has_offset)
                            sums[g] = _mm512_fmadd_ps(packed_half(block, 1), broadcast_float(x + AtOne::kSum), sums[g]);
                    }
                }
    }
    if constexpr (!kOneScale) return;
#pragma GCC unroll 4
    for (int g = 0; g < kN; ++g) {
        const std::byte* const block = packed[g];
        if constexpr (kOneScale && kTraits.has_offset) {
            __m512i total = _mm512_setzero_si512();
#pragma GCC unroll 4
            for (int pair = 0; pair < kSubBlocks / 2; ++pair)
                total =
                    _mm512_dpwssd_epi32(total, two_minimums(block, pair),
                                        broadcast_word(x - (kSubBlocks - 1 - 2 * pair) * AtOne::kBytes + AtOne::kSum));
            const __m512 minus_dmin = _mm512_xor_ps(packed_half(block, 1), _mm512_set1_ps(-0.0F));
            unscaled[g] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(total), minus_dmin, unscaled[g]);
        }
        sums[g] = _mm512_fmadd_ps(unscaled[g], broadcast_float(x - AtOne::kBytes + AtOne::kD), sums[g]);
    }
}

/// The groups of a tile as so many streams, from their rows' beginning on, a whole number of steps.
template <DType type, int kN>
SLIPSTREAM_INLINE_VNNI void multiply_streams(const CodeTile& tile) {
    const std::byte* packed[kN];
    __m512 sums[kN];
#pragma GCC unroll 4
    for (int g = 0; g < kN; ++g) {
        packed[g] = tile.packed + g * tile.group_bytes;
        sums[g] = _mm512_setzero_ps();
    }
    const std::byte* x = tile.x;
    std::int64_t at = 0;
    for (int s = 0; s < tile.n_sub; s += kStepSubBlocks<type>, at += kStepBytes<type>) {
        const FetchDistance ahead{.l1 = distance_from(tile, at, tile.ahead.into_l1 - tile.packed),
                                  .l2 = distance_from(tile, at, tile.ahead.into_l2 - tile.packed)};
        add_step<type, kN>(packed, x, ahead, sums);
        x += kStepSubBlocks<type> * AtOne::kBytes;
#pragma GCC unroll 4
        for (int g = 0; g < kN; ++g) packed[g] += kStepBytes<type>;
    }
#pragma GCC unroll 4
    for (int g = 0; g < kN; ++g) _mm512_storeu_ps(tile.sums + g * tile.sums_stride, sums[g]);
}

template <DType type>
SLIPSTREAM_AVX512_VNNI void multiply_one(const CodeTile& tile) {
    switch (tile.n_groups) {
        case 1:
            return multiply_streams<type, 1>(tile);
        case 2:
            return multiply_streams<type, 2>(tile);
        case 3:
            return multiply_streams<type, 3>(tile);
        default:
            return multiply_streams<type, kMostStreams>(tile);
    }
}

}  // namespace

const OneTokenKernels& multiply_one_vnni() {
    static constexpr OneTokenKernels kOfType{{{},
                                              {},
                                              {},
                                              multiply_one<DType::Q8_0>,
                                              multiply_one<DType::Q4_0>,
                                              multiply_one<DType::Q4_1>,
                                              multiply_one<DType::Q5_0>,
                                              multiply_one<DType::Q5_1>,
                                              multiply_one<DType::Q3_K>,
                                              multiply_one<DType::Q4_K>,
                                              multiply_one<DType::Q5_K>,
                                              multiply_one<DType::Q6_K>}};
    return kOfType;
}

}  // namespace slipstream::cpu
#endif
