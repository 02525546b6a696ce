// Inner kernels of matmul for AVX2 and calls of few tokens. Codes are multiplied as they are unpacked, in registers. A
// few row groups are read as separate streams of weights, 32 elements of each in turn. Outputs have the bits of the
// other kernels (matmul.h).
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/base/dtype.h"
#include "kernels/cpu/matmul/matmul_avx2_codes.h"
#include "kernels/cpu/matmul/matmul_few.h"
#include "kernels/cpu/matmul/matmul_tiling.h"
#include "kernels/cpu/matmul/packed_block.h"
#include "kernels/cpu/target.h"

namespace slipstream::cpu::avx2 {

namespace few {

SLIPSTREAM_INLINE_AVX2 __m256i in_each_byte(__m256i word, int mask) {
    return _mm256_and_si256(word, _mm256_set1_epi32(mask * 0x01010101));
}
/// Returns each lane shifted right by `by` bits; negative: left. The caller must mask away bits that come from the next
/// byte.
SLIPSTREAM_INLINE_AVX2 __m256i shifted_right(__m256i word, int by) {
    return by > 0 ? _mm256_srli_epi32(word, by) : by < 0 ? _mm256_slli_epi32(word, -by) : word;
}
/// Returns, for each byte, the bits of `low` that are in `mask`, together with all bits of `high`.
SLIPSTREAM_INLINE_AVX2 __m256i joined(__m256i low, int mask, __m256i high) {
    return _mm256_or_si256(in_each_byte(low, mask), high);
}

/// Returns word `i` of 8 rows; `words` points at the first row of the half of the row group.
SLIPSTREAM_INLINE_AVX2 __m256i word_at(const std::byte* words, int i) {
    return load_32(words + 64 * i);
}

/// Returns word `word` (0 to 7) of sub-block `s` (0 to 7) for the 8 rows of half a row group: the codes of four k of
/// each row, a byte each. Codes of 8 bits are signed, without code_offset; others are unsigned, as packed_codes()
/// (packed_codes.h) returns them for 16 rows. `words`: the first word of the block, at the first row of the half.
template <DType type>
SLIPSTREAM_INLINE_AVX2 __m256i half_codes(const std::byte* words, int s, int word) {
    constexpr PackedBlock kAt = packed_block(type);
    const std::byte* low = words + 64 * kAt.low;
    const std::byte* high = words + 64 * kAt.high;
    if constexpr (type == DType::Q8_0) {
        return without_offset(word_at(words, word));
    } else if constexpr (type == DType::Q4_0 || type == DType::Q4_1) {
        return in_each_byte(shifted_right(word_at(low, word % 4), word / 4 * 4), 0x0f);
    } else if constexpr (has_code_table(type)) {
        const int first = type == DType::IQ4_XS ? 4 * s : 0;
        const __m256i places = in_each_byte(shifted_right(word_at(low, first + word % 4), word / 4 * 4), 0x0f);
        return code_traits(type).code_bits == 8 ? looked_up(code_values(type), places)
                                                : looked_up(kCodeTable<type>, places);
    } else if constexpr (type == DType::Q2_K) {
        return in_each_byte(shifted_right(word_at(low, 8 * (s / 4) + word), s % 4 * 2), 0x03);
    } else if constexpr (type == DType::Q5_0 || type == DType::Q5_1) {
        const __m256i fifth = in_each_byte(shifted_right(word_at(high, 0), word - 4), 0x10);
        return joined(shifted_right(word_at(low, word % 4), word / 4 * 4), 0x0f, fifth);
    } else if constexpr (type == DType::Q4_K) {
        return in_each_byte(shifted_right(word_at(low, 8 * (s / 2) + word), s % 2 * 4), 0x0f);
    } else if constexpr (type == DType::Q5_K) {
        const __m256i fifth = in_each_byte(shifted_right(word_at(high, word), s - 4), 0x10);
        return joined(shifted_right(word_at(low, 8 * (s / 2) + word), s % 2 * 4), 0x0f, fifth);
    } else if constexpr (type == DType::Q6_K) {
        const int part = s % 4;
        const int at = 24 * (s / 4) + 3 * word;
        const __m256i upper = in_each_byte(shifted_right(word_at(high, at + 2), 2 * part - 4), 0x30);
        return joined(shifted_right(word_at(low, at + part % 2), part / 2 * 4), 0x0f, upper);
    } else {
        static_assert(type == DType::Q3_K);
        const __m256i third = in_each_byte(shifted_right(word_at(high, word), s - 2), 0x04);
        return joined(shifted_right(word_at(low, 8 * (s / 4) + word), s % 4 * 2), 0x03, third);
    }
}

/// Returns the bits of 16-bit field `field` (0 or 1) of a packed block, for the 8 rows of half `half`.
SLIPSTREAM_INLINE_AVX2 __m128i half_bits(const std::byte* block, int field, int half) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(block + 32 * field + 16 * half));
}
/// Returns binary16 field `field` (0 or 1) of a packed block as floats, for the 8 rows of half `half`.
SLIPSTREAM_INLINE_AVX2 __m256 half_field(const std::byte* block, int field, int half) {
    return _mm256_cvtph_ps(half_bits(block, field, half));
}
/// Returns the scale of a packed block as floats, for the 8 rows of half `half`: binary16 field 0, or of MXFP4
/// 2^(exponent - 128), as packed_scale() (packed_codes.h) does for 16 rows.
template <DType type>
SLIPSTREAM_INLINE_AVX2 __m256 scale_field(const std::byte* block, int half) {
    if constexpr (type == DType::MXFP4) {
        const __m256i exponents =
            _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(block + kHalfRows * half)));
        const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(exponents, _mm256_set1_epi32(1)), 23);
        const __m256i subnormal = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), exponents);
        const __m256i is_normal = _mm256_cmpgt_epi32(exponents, _mm256_set1_epi32(1));
        return _mm256_castsi256_ps(_mm256_blendv_epi8(subnormal, normal, is_normal));
    } else {
        return half_field(block, 0, half);
    }
}

/// Returns scale `run` of a K format's block for 8 rows: d * an integer, with the bits of scale_bytes()
/// (unpack_codes.h), since the integer is exact. `words`: the first word of the block, at the first row of half `half`.
template <DType type>
SLIPSTREAM_INLINE_AVX2 __m256 half_scale(const std::byte* block, const std::byte* words, int half, __m256 d, int run) {
    const int four = run / 4;
    const int place = run % 4 * 8;
    __m256i number;
    if constexpr (type == DType::Q6_K) {
        number = _mm256_srai_epi32(_mm256_slli_epi32(word_at(words, four), 24 - place), 24);
    } else if constexpr (type == DType::Q3_K) {
        const __m256i high = in_each_byte(shifted_right(word_at(words, 2), 2 * four - 4), 0x30);
        const __m256i all = joined(shifted_right(word_at(words, four % 2), four / 2 * 4), 0x0f, high);
        const __m256i byte = _mm256_and_si256(_mm256_srli_epi32(all, place), _mm256_set1_epi32(0xff));
        number = _mm256_sub_epi32(byte, _mm256_set1_epi32(32));
    } else if constexpr (type == DType::IQ4_XS) {
        const __m256i upper = _mm256_cvtepu16_epi32(half_bits(block, 1, half));
        const __m256i four_bits =
            _mm256_and_si256(_mm256_srli_epi32(word_at(words, 0), 4 * run), _mm256_set1_epi32(15));
        const __m256i two_bits = _mm256_and_si256(_mm256_srli_epi32(upper, 2 * run), _mm256_set1_epi32(3));
        number = _mm256_sub_epi32(_mm256_or_si256(four_bits, _mm256_slli_epi32(two_bits, 4)), _mm256_set1_epi32(32));
    } else if constexpr (type == DType::Q2_K) {
        number = _mm256_and_si256(_mm256_srli_epi32(word_at(words, four), place), _mm256_set1_epi32(15));
    } else {
        const __m256i a = word_at(words, 0);
        const __m256i all = four == 0 ? in_each_byte(a, 0x3f)
                                      : joined(word_at(words, 2), 0x0f, in_each_byte(_mm256_srli_epi32(a, 2), 0x30));
        number = _mm256_and_si256(_mm256_srli_epi32(all, place), _mm256_set1_epi32(0xff));
    }
    return _mm256_mul_ps(_mm256_cvtepi32_ps(number), d);
}

/// Returns pair `pair` of the minimums of a K format's block (UnpackedChunk::mins) for 8 rows. `words`: the first word
/// of the block, at the first row of the half.
template <DType type>
SLIPSTREAM_INLINE_AVX2 __m256i half_minimums(const std::byte* words, int pair) {
    const __m256i b = word_at(words, 1);
    const __m256i four =
        type == DType::Q2_K ? in_each_byte(_mm256_srli_epi32(word_at(words, pair / 2), 4), 0x0f)
        : pair < 2          ? in_each_byte(b, 0x3f)
                   : joined(_mm256_srli_epi32(word_at(words, 2), 4), 0x0f, in_each_byte(_mm256_srli_epi32(b, 2), 0x30));
    constexpr char kNone = -128;
    const __m128i low = _mm_setr_epi8(0, kNone, 1, kNone, 4, kNone, 5, kNone, 8, kNone, 9, kNone, 12, kNone, 13, kNone);
    const __m128i bytes = pair % 2 == 0 ? low : _mm_add_epi8(low, _mm_set1_epi16(2));
    return _mm256_shuffle_epi8(four, _mm256_broadcastsi128_si256(bytes));
}

/// dots[t] = start value of token t + dot product over words [first, first + count) of sub-block `s`, codes of 8 rows
/// times activations of token t. `x`: the block of activations; `start`: byte offset of the start values in it.
template <DType type, int T>
SLIPSTREAM_INLINE_AVX2 void half_dots(const std::byte* words, int s, const std::byte* x, int start, int first,
                                      int count, __m256i (&dots)[T]) {
    start_sums<type, T>(x, start, dots);
    if constexpr (code_traits(type).code_bits == 8) {
#pragma GCC unroll 8
        for (int word = first; word < first + count; ++word)
            add_signed_products<T>(half_codes<type>(words, s, word), x + 4 * word * T, dots);
    } else {
        constexpr int kSteps = steps_of_int16(code_traits(type).code_bits);
#pragma GCC unroll 8
        for (int begin = first; begin < first + count; begin += kSteps) {
            __m256i sums[T];
#pragma GCC unroll 4
            for (int t = 0; t < T; ++t) sums[t] = _mm256_setzero_si256();
            const int end = begin + kSteps < first + count ? begin + kSteps : first + count;
#pragma GCC unroll 8
            for (int word = begin; word < end; ++word) {
                const __m256i codes = half_codes<type>(words, s, word);
#pragma GCC unroll 4
                for (int t = 0; t < T; ++t)
                    sums[t] =
                        _mm256_add_epi16(sums[t], _mm256_maddubs_epi16(codes, broadcast_word(x + 4 * (word * T + t))));
            }
#pragma GCC unroll 4
            for (int t = 0; t < T; ++t)
                dots[t] = _mm256_add_epi32(dots[t], _mm256_madd_epi16(sums[t], _mm256_set1_epi16(1)));
        }
    }
}

/// Sums of one row group that are kept from one sub-block to the next, in memory: of the row so far, and of a K
/// format's block without the activations' scale.
template <int T>
struct alignas(32) StreamSums {
    float row[T][16];
    float block[T][16];
};

/// Subtracts the minimums of a K format's block from sums[t], to which the caller still has to apply the activations'
/// scale. `x`: the activations of the block's last sub-block.
template <DType type, int T>
SLIPSTREAM_INLINE_AVX2 void take_minimums(const std::byte* block, const std::byte* words, int half, const std::byte* x,
                                          __m256 (&sums)[T]) {
    using At = BlockOffsets<T>;
    constexpr int kPairs = minimum_pairs(type);
    __m256i totals[T];
#pragma GCC unroll 4
    for (int t = 0; t < T; ++t) totals[t] = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (int pair = 0; pair < kPairs; ++pair) {
        const __m256i two = half_minimums<type>(words, pair);
        const std::byte* const of_pair = x + (sub_block_of_sums(type, pair) + 1 - kSubBlocks) * At::kBytes + At::kSum;
#pragma GCC unroll 4
        for (int t = 0; t < T; ++t)
            totals[t] = _mm256_add_epi32(totals[t], _mm256_madd_epi16(two, broadcast_word(of_pair + 4 * t)));
    }
    const __m256 minus_dmin = _mm256_xor_ps(half_field(block, 1, half), _mm256_set1_ps(-0.0F));
#pragma GCC unroll 4
    for (int t = 0; t < T; ++t) sums[t] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(totals[t]), minus_dmin, sums[t]);
}

/// Adds sub-block `s` (0 to 7) of a step, of half a row group, to `kept`. `packed`: the row group's weights of the
/// step; `x`: the block of activations of the sub-block.
template <DType type, int T>
SLIPSTREAM_INLINE_AVX2 void add_sub_block(const std::byte* packed, int half, int s, const std::byte* x,
                                          StreamSums<T>& kept) {
    using At = BlockOffsets<T>;
    constexpr CodeTraits kTraits = code_traits(type);
    constexpr int kRuns = 32 / kTraits.scale_run;
    const std::byte* const block = packed + (has_plain_scales(type) ? s * packed_block(type).bytes : 0);
    const std::byte* const words = block + packed_block(type).words + 32 * half;
    const __m256 d = scale_field<type>(block, half);
    constexpr bool kOneScale = kTraits.activation_run != 32;
    const int row = kHalfRows * half;
    __m256 sums[T];
#pragma GCC unroll 4
    for (int t = 0; t < T; ++t)
        sums[t] =
            kOneScale && s == 0 ? _mm256_setzero_ps() : _mm256_load_ps((kOneScale ? kept.block : kept.row)[t] + row);
#pragma GCC unroll 2
    for (int run = 0; run < kRuns; ++run) {
        __m256i dots[T];
        half_dots<type, T>(words, s, x, run == 0 ? At::kStart0 : At::kStart1, 8 / kRuns * run, 8 / kRuns, dots);
        const __m256 scale = kOneScale ? half_scale<type>(block, words, half, d, kRuns * s + run) : d;
#pragma GCC unroll 4
        for (int t = 0; t < T; ++t) {
            const __m256 both = kOneScale ? scale : _mm256_mul_ps(scale, broadcast_float(x + At::kD + 4 * t));
            sums[t] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dots[t]), both, sums[t]);
        }
    }
    if constexpr (!kOneScale && kTraits.has_offset) {
        const __m256 offset = half_field(block, 1, half);
#pragma GCC unroll 4
        for (int t = 0; t < T; ++t) sums[t] = _mm256_fmadd_ps(offset, broadcast_float(x + At::kSum + 4 * t), sums[t]);
    }
    const bool block_ends = kOneScale && s == kSubBlocks - 1;
    if constexpr (kOneScale && kTraits.has_offset)
        if (block_ends) take_minimums<type, T>(block, words, half, x, sums);
#pragma GCC unroll 4
    for (int t = 0; t < T; ++t) {
        float* const of_row = kept.row[t] + row;
        if (block_ends) {
            _mm256_store_ps(of_row,
                            _mm256_fmadd_ps(sums[t], broadcast_float(x + At::kD + 4 * t), _mm256_load_ps(of_row)));
        } else {
            _mm256_store_ps(kOneScale ? kept.block[t] + row : of_row, sums[t]);
        }
    }
}

/// Number of sub-blocks (32 elements each) in a step of few_tokens_step() elements of K.
template <DType type>
constexpr int kStepSubBlocks = static_cast<int>(few_tokens_step(type) / 32);
/// Bytes of a step of few_tokens_step() elements of K, of a row group of 16 rows.
template <DType type>
constexpr std::int64_t kStepBytes = bytes_of_256(type) * kStepSubBlocks<type> / kSubBlocks;

/// Adds sub-block `s` of the step at byte `at` of each row group to `sums`, and prefetches this sub-block's share of
/// the cache lines of a later step. `x`: activations of the step's first sub-block.
template <DType type, int T, int kStreams>
SLIPSTREAM_INLINE_AVX2 void add_sub_blocks(const CodeTile& tile, std::int64_t at, int s, const std::byte* x,
                                           StreamSums<T> (&sums)[kStreams]) {
    constexpr std::int64_t kLines = (kStepBytes<type> + 63) / 64;
    const std::int64_t l1 = tile.ahead.into_l1 - tile.packed;
    const std::int64_t l2 = tile.ahead.into_l2 - tile.packed;
    const std::int64_t end = (s + 1) * kLines / kStepSubBlocks<type>;
    const std::byte* packed = tile.packed + at;
    for (int g = 0; g < tile.n_groups; ++g, packed += tile.group_bytes) {
#pragma GCC unroll 16
        for (std::int64_t line = s * kLines / kStepSubBlocks<type>; line < end; ++line) {
            _mm_prefetch(packed + l2 + 64 * line, _MM_HINT_T1);
            _mm_prefetch(packed + l1 + 64 * line, _MM_HINT_T0);
        }
#pragma GCC unroll 2
        for (int half = 0; half < 2; ++half)
            add_sub_block<type, T>(packed, half, s, x + s * BlockOffsets<T>::kBytes, sums[g]);
    }
}

/// Multiplies the row groups of a tile, each a stream of weights, from the start of their rows on, over a whole number
/// of steps. Overwrites tile.sums.
template <DType type, int T>
SLIPSTREAM_INLINE_AVX2 void multiply_streams(const CodeTile& tile) {
    using At = BlockOffsets<T>;
    constexpr int kStep = kStepSubBlocks<type>;
    StreamSums<T> sums[few_tokens_streams(T)] = {};
    const std::byte* x = tile.x;
    std::int64_t at = 0;
    for (int first = 0; first < tile.n_sub; first += kStep, at += kStepBytes<type>, x += kStep * At::kBytes) {
        if constexpr (is_unrolled(type)) {
#pragma GCC unroll 8
            for (int s = 0; s < kStep; ++s) add_sub_blocks<type, T>(tile, at, s, x, sums);
        } else {
#pragma GCC unroll 1
            for (int s = 0; s < kStep; ++s) add_sub_blocks<type, T>(tile, at, s, x, sums);
        }
    }
    for (int g = 0; g < tile.n_groups; ++g)
#pragma GCC unroll 4
        for (int t = 0; t < T; ++t)
#pragma GCC unroll 2
            for (int half = 0; half < 2; ++half)
                _mm256_storeu_ps(tile.sums + g * tile.sums_stride + 16 * t + kHalfRows * half,
                                 _mm256_load_ps(sums[g].row[t] + kHalfRows * half));
}

template <DType type, int T>
SLIPSTREAM_AVX2 void multiply(const CodeTile& tile) {
    multiply_streams<type, T>(tile);
}

}  // namespace few

/// Sets the kernels of each of `types`, for 1 to 4 tokens.
template <DType... types>
void set_few_token_kernels(FewTokenKernelsOfTypes& all) {
    ((all[static_cast<std::size_t>(types)] = {few::multiply<types, 1>, few::multiply<types, 2>, few::multiply<types, 3>,
                                              few::multiply<types, 4>}),
     ...);
}

}  // namespace slipstream::cpu::avx2
#endif
