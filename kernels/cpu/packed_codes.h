// Codes and scales straight from packed weights (interleaved.h) into registers, AVX-512: what the kernels of
// avx512_vnni multiply where unpacking into memory first (unpack_codes.h) would cost more. The same bits.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/base/dtype.h"
#include "kernels/cpu/target.h"

namespace slipstream::cpu {

#define SLIPSTREAM_INLINE_PACKED SLIPSTREAM_AVX512 __attribute__((always_inline)) static inline

/// Whether scales lie beside each sub-block's codes, as binary16: no unpacking at all.
constexpr bool has_plain_scales(DType type) {
    return type < DType::Q3_K;
}

/// Where the fields of a group's block lie: its words, behind the binary16 fields, and runs of them.
struct PackedBlock {
    std::int64_t bytes;  // of 16 rows
    int words;           // bytes before the first word
    int high;            // words before those of high bits, where they lie apart
    int low;             // words before those of low bits
};
constexpr PackedBlock packed_block(DType type) {
    switch (type) {
        case DType::Q8_0:
            return {16 * 34, 32, 0, 0};
        case DType::Q4_0:
            return {16 * 18, 32, 0, 0};
        case DType::Q4_1:
            return {16 * 20, 64, 0, 0};
        case DType::Q5_0:
            return {16 * 22, 32, 0, 1};
        case DType::Q5_1:
            return {16 * 24, 64, 0, 1};
        case DType::Q3_K:
            return {16 * 110, 32, 0, 8};
        case DType::Q4_K:
            return {16 * 144, 64, 0, 3};
        case DType::Q5_K:
            return {16 * 176, 64, 3, 11};
        case DType::Q6_K:
            return {16 * 210, 32, 32, 0};
        default:
            return {};
    }
}

/// The block of sub-block `s` of a chunk at `packed`: its own, or the one that holds all eight.
template <DType type>
SLIPSTREAM_INLINE_PACKED const std::byte* block_of(const std::byte* packed, int s) {
    return has_plain_scales(type) ? packed + s * packed_block(type).bytes : packed;
}

SLIPSTREAM_INLINE_PACKED __m512i word_at(const std::byte* words, int i) {
    return _mm512_loadu_si512(words + 64 * i);
}
SLIPSTREAM_INLINE_PACKED __m512i in_each_byte(__m512i word, int mask) {
    return _mm512_and_si512(word, _mm512_set1_epi32(mask * 0x01010101));
}
/// Each lane shifted by a number that changes from sub-block to sub-block.
SLIPSTREAM_INLINE_PACKED __m512i shifted_right(__m512i word, int by) {
    return _mm512_srlv_epi32(word, _mm512_set1_epi32(by));
}
/// Low nibbles, or high ones.
SLIPSTREAM_INLINE_PACKED __m512i nibbles(__m512i word, bool high) {
    return in_each_byte(high ? _mm512_srli_epi32(word, 4) : word, 0x0f);
}

/// Word `word` of sub-block `s`: four k of 16 rows, unsigned codes. `block` as of block_of().
template <DType type>
SLIPSTREAM_INLINE_PACKED __m512i packed_codes(const std::byte* block, int s, int word) {
    constexpr PackedBlock kAt = packed_block(type);
    const std::byte* words = block + kAt.words;
    const std::byte* low = words + 64 * kAt.low;
    const std::byte* high = words + 64 * kAt.high;
    if constexpr (type == DType::Q8_0) {
        return word_at(words, word);
    } else if constexpr (type == DType::Q4_0 || type == DType::Q4_1) {
        return nibbles(word_at(low, word % 4), word >= 4);
    } else if constexpr (type == DType::Q5_0 || type == DType::Q5_1) {
        const __m512i bits = word_at(high, 0);
        const __m512i fifth = word < 4 ? _mm512_slli_epi32(bits, 4 - word) : _mm512_srli_epi32(bits, word - 4);
        return _mm512_or_si512(nibbles(word_at(low, word % 4), word >= 4), in_each_byte(fifth, 0x10));
    } else if constexpr (type == DType::Q4_K) {
        return in_each_byte(shifted_right(word_at(low, 8 * (s / 2) + word), 4 * (s % 2)), 0x0f);
    } else if constexpr (type == DType::Q5_K) {
        const __m512i fifth = _mm512_slli_epi32(in_each_byte(shifted_right(word_at(high, word), s), 0x01), 4);
        return _mm512_or_si512(in_each_byte(shifted_right(word_at(low, 8 * (s / 2) + word), 4 * (s % 2)), 0x0f), fifth);
    } else if constexpr (type == DType::Q6_K) {
        const int part = s % 4;
        const __m512i upper = shifted_right(word_at(high, 8 * (s / 4) + word), 2 * part);
        const __m512i lower = shifted_right(word_at(low, 16 * (s / 4) + 8 * (part % 2) + word), 4 * (part / 2));
        return _mm512_or_si512(in_each_byte(lower, 0x0f), _mm512_slli_epi32(in_each_byte(upper, 0x03), 4));
    } else {
        static_assert(type == DType::Q3_K);
        const __m512i third = _mm512_slli_epi32(in_each_byte(shifted_right(word_at(high, word), s), 0x01), 2);
        return _mm512_or_si512(in_each_byte(shifted_right(word_at(low, 8 * (s / 4) + word), 2 * (s % 4)), 0x03), third);
    }
}

/// Binary16 field `i` of a block, as floats.
SLIPSTREAM_INLINE_PACKED __m512 packed_half(const std::byte* block, int i) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(block + 32 * i)));
}

}  // namespace slipstream::cpu
#endif
