// Codes and scales of packed weights (interleaved.h) in AVX-512 registers. The kernels with VNNI use them where
// unpacking into memory first would cost more; all AVX-512 variants use them to unpack into memory. The bits are those
// of unpack_codes.h.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/base/dtype.h"
#include "kernels/cpu/matmul/packed_block.h"
#include "kernels/cpu/matmul/unpack_codes.h"
#include "kernels/cpu/target.h"

namespace slipstream::cpu {

#define SLIPSTREAM_INLINE_PACKED SLIPSTREAM_AVX512 __attribute__((always_inline)) static inline

/// Returns the block that holds sub-block `s` (0 to 7, of 32 elements) of the 256 elements at `packed`: the sub-block's
/// own block, or for K formats the one that holds all eight.
template <DType type>
SLIPSTREAM_INLINE_PACKED const std::byte* block_of(const std::byte* packed, int s) {
    return has_plain_scales(type) ? packed + s * packed_block(type).bytes : packed;
}

/// Returns word `i` of 16 rows, one row per lane.
SLIPSTREAM_INLINE_PACKED __m512i word_at(const std::byte* words, int i) {
    return _mm512_loadu_si512(words + 64 * i);
}
/// Returns `word` with the 8-bit `mask` applied to each byte.
SLIPSTREAM_INLINE_PACKED __m512i in_each_byte(__m512i word, int mask) {
    return _mm512_and_si512(word, _mm512_set1_epi32(mask * 0x01010101));
}
/// Whether the compiler knows the number of a sub-block in a loop.
enum class SubBlock : std::uint8_t {
    Varies,    // known only at run time
    Unrolled,  // known, since the loop is unrolled: shifts are immediate or disappear
};
/// Returns each lane of `word` shifted right by `by` bits (0 to 31), a number that depends on the sub-block. Bits that
/// come from the next byte must be masked away by the caller.
template <SubBlock sub_block = SubBlock::Varies>
SLIPSTREAM_INLINE_PACKED __m512i shifted_right(__m512i word, int by) {
    if constexpr (sub_block == SubBlock::Varies) return _mm512_srlv_epi32(word, _mm512_set1_epi32(by));
    return by == 0 ? word : _mm512_srli_epi32(word, static_cast<unsigned>(by));
}
/// Returns each lane of `word` rotated left by `by` bits; negative: right. If unrolled, it is a shift: the caller must
/// mask away the bits that would wrap around, and those of the next byte.
template <SubBlock sub_block = SubBlock::Varies>
SLIPSTREAM_INLINE_PACKED __m512i rotated_left(__m512i word, int by) {
    if constexpr (sub_block == SubBlock::Varies) return _mm512_rolv_epi32(word, _mm512_set1_epi32(by));
    return by > 0   ? _mm512_slli_epi32(word, static_cast<unsigned>(by))
           : by < 0 ? _mm512_srli_epi32(word, static_cast<unsigned>(-by))
                    : word;
}
/// Returns the low or the high nibble of each byte in the byte's low 4 bits; the caller must mask away the bits above.
SLIPSTREAM_INLINE_PACKED __m512i nibbles_unmasked(__m512i word, bool high) {
    return high ? _mm512_srli_epi32(word, 4) : word;
}
/// Returns, for each byte, the bits of `low` that are in `mask`, together with all bits of `high`.
SLIPSTREAM_INLINE_PACKED __m512i joined(__m512i low, int mask, __m512i high) {
    constexpr int kLowAndMaskOrHigh = 0xea;
    return _mm512_ternarylogic_epi32(low, _mm512_set1_epi32(mask * 0x01010101), high, kLowAndMaskOrHigh);
}

/// Looks up each byte of `places` in the table of `type` (code_tables.h) and returns the unsigned codes: value +
/// code_offset. The bytes must be 0 to 15.
template <DType type>
SLIPSTREAM_INLINE_PACKED __m512i looked_up(__m512i places) {
    return _mm512_shuffle_epi8(
        _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(kCodeTable<type>.data()))), places);
}

/// Returns word `word` (0 to 7) of sub-block `s` (0 to 7): unsigned 8-bit codes of four k of 16 rows. `block` must be
/// the result of block_of() for `s`.
template <DType type, SubBlock sub_block = SubBlock::Varies>
SLIPSTREAM_INLINE_PACKED __m512i packed_codes(const std::byte* block, int s, int word) {
    constexpr PackedBlock kAt = packed_block(type);
    const std::byte* words = block + kAt.words;
    const std::byte* low = words + 64 * kAt.low;
    const std::byte* high = words + 64 * kAt.high;
    if constexpr (type == DType::Q8_0) {
        return word_at(words, word);
    } else if constexpr (type == DType::Q4_0 || type == DType::Q4_1) {
        return in_each_byte(nibbles_unmasked(word_at(low, word % 4), word >= 4), 0x0f);
    } else if constexpr (has_code_table(type)) {
        const int first = type == DType::IQ4_XS ? 4 * s : 0;
        return looked_up<type>(in_each_byte(nibbles_unmasked(word_at(low, first + word % 4), word >= 4), 0x0f));
    } else if constexpr (type == DType::Q2_K) {
        return in_each_byte(shifted_right<sub_block>(word_at(low, 8 * (s / 4) + word), 2 * (s % 4)), 0x03);
    } else if constexpr (type == DType::Q5_0 || type == DType::Q5_1) {
        const __m512i bits = word_at(high, 0);
        const __m512i fifth = word < 4 ? _mm512_slli_epi32(bits, 4 - word) : _mm512_srli_epi32(bits, word - 4);
        return joined(nibbles_unmasked(word_at(low, word % 4), word >= 4), 0x0f, in_each_byte(fifth, 0x10));
    } else if constexpr (type == DType::Q4_K) {
        return in_each_byte(shifted_right<sub_block>(word_at(low, 8 * (s / 2) + word), 4 * (s % 2)), 0x0f);
    } else if constexpr (type == DType::Q5_K) {
        const __m512i fifth = in_each_byte(rotated_left<sub_block>(word_at(high, word), 4 - s), 0x10);
        return joined(shifted_right<sub_block>(word_at(low, 8 * (s / 2) + word), 4 * (s % 2)), 0x0f, fifth);
    } else if constexpr (type == DType::Q6_K) {
        const int part = s % 4;
        const int at = 24 * (s / 4) + 3 * word;
        const __m512i upper = in_each_byte(rotated_left<sub_block>(word_at(high, at + 2), 4 - 2 * part), 0x30);
        return joined(shifted_right<sub_block>(word_at(low, at + part % 2), 4 * (part / 2)), 0x0f, upper);
    } else {
        static_assert(type == DType::Q3_K);
        const __m512i third = in_each_byte(rotated_left<sub_block>(word_at(high, word), 2 - s), 0x04);
        return joined(shifted_right<sub_block>(word_at(low, 8 * (s / 4) + word), 2 * (s % 4)), 0x03, third);
    }
}

/// Returns binary16 field `i` (0 or 1) of a packed block as floats of 16 rows.
SLIPSTREAM_INLINE_PACKED __m512 packed_half(const std::byte* block, int i) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(block + 32 * i)));
}

/// Returns the scale of a packed block of 16 rows as floats: binary16 field 0, or of MXFP4 2^(exponent - 128), as
/// mxfp4_scale_bits() (code_tables.h).
template <DType type>
SLIPSTREAM_INLINE_PACKED __m512 packed_scale(const std::byte* block) {
    if constexpr (type == DType::MXFP4) {
        const __m512i exponents = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(block)));
        const __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(exponents, _mm512_set1_epi32(1)), 23);
        const __mmask16 subnormal = _mm512_cmplt_epu32_mask(exponents, _mm512_set1_epi32(2));
        return _mm512_castsi512_ps(_mm512_mask_sllv_epi32(normal, subnormal, _mm512_set1_epi32(0x00200000), exponents));
    } else {
        return packed_half(block, 0);
    }
}

/// Returns scale `run` (0 to 7) of a packed block of IQ4_XS for its 16 rows: d * (6-bit number - 32), where `d` is
/// field 0 of the block.
SLIPSTREAM_INLINE_PACKED __m512 six_bit_scale(const std::byte* block, __m512 d, int run) {
    const __m512i high = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(block + 32)));
    const __m512i low_bits = _mm512_srlv_epi32(word_at(block + 64, 0), _mm512_set1_epi32(4 * run));
    const __m512i high_bits = _mm512_srlv_epi32(high, _mm512_set1_epi32(2 * run));
    const __m512i number = _mm512_or_si512(_mm512_and_si512(low_bits, _mm512_set1_epi32(15)),
                                           _mm512_slli_epi32(_mm512_and_si512(high_bits, _mm512_set1_epi32(3)), 4));
    return _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_sub_epi32(number, _mm512_set1_epi32(32))), d);
}

/// out[i] = factor * (byte `i` of each lane of `words` - bias), for i = 0 to 3. If bias is 0, bytes must be below 128.
/// A byte is converted to float in its place in the lane, so it is too large by a power of two, which the factor takes
/// back exactly.
template <int bias>
SLIPSTREAM_INLINE_PACKED void scaled_bytes(__m512 factor, __m512i words, float (*out)[16]) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
        const int place = i < 3 ? 8 * i : 0;
        const auto size = static_cast<float>(1 << place);
        const __m512i byte =
            i < 3 ? _mm512_and_si512(words, _mm512_set1_epi32(0xff << place)) : _mm512_srli_epi32(words, 24);
        __m512 number = _mm512_cvtepi32_ps(byte);
        if constexpr (bias != 0) number = _mm512_sub_ps(number, _mm512_set1_ps(bias * size));
        _mm512_store_ps(out[i], _mm512_mul_ps(number, _mm512_mul_ps(factor, _mm512_set1_ps(1.0F / size))));
    }
}

/// Returns bytes 2 i and 2 i + 1 of each lane of `words`, i = 0 or 1, as a pair of 16-bit integers.
SLIPSTREAM_INLINE_PACKED __m512i pair_of_bytes(__m512i words, int i) {
    constexpr char kNone = -128;
    const __m128i low = _mm_setr_epi8(0, kNone, 1, kNone, 4, kNone, 5, kNone, 8, kNone, 9, kNone, 12, kNone, 13, kNone);
    const __m128i bytes = i == 0 ? low : _mm_add_epi8(low, _mm_set1_epi16(2));
    return _mm512_shuffle_epi8(words, _mm512_broadcast_i32x4(bytes));
}
/// Widens the four bytes of each lane of `words` to 16 bits: stores bytes 0 and 1 to out[0], bytes 2 and 3 to out[1].
/// `out` must be 64-byte aligned.
SLIPSTREAM_INLINE_PACKED void paired_bytes(__m512i words, std::uint32_t (*out)[16]) {
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) _mm512_store_si512(out[i], pair_of_bytes(words, i));
}

/// Unpacks the scales, minimums and minus_dmin of a packed block of a K format to `out`, with the bits of
/// unpack_block() (unpack_codes.h).
template <DType type>
SLIPSTREAM_INLINE_PACKED void packed_scales(const std::byte* block, UnpackedChunk& out) {
    const __m512 d = packed_half(block, 0);
    const std::byte* words = block + packed_block(type).words;
    if constexpr (type == DType::Q4_K || type == DType::Q5_K) {
        _mm512_store_ps(out.minus_dmin, _mm512_xor_ps(packed_half(block, 1), _mm512_set1_ps(-0.0F)));
        const __m512i a = word_at(words, 0);
        const __m512i b = word_at(words, 1);
        const __m512i c = word_at(words, 2);
        const __m512i high_a = in_each_byte(_mm512_srli_epi32(a, 2), 0x30);
        const __m512i high_b = in_each_byte(_mm512_srli_epi32(b, 2), 0x30);
        scaled_bytes<0>(d, in_each_byte(a, 0x3f), out.scale);
        scaled_bytes<0>(d, joined(c, 0x0f, high_a), out.scale + 4);
        paired_bytes(in_each_byte(b, 0x3f), out.mins);
        paired_bytes(joined(_mm512_srli_epi32(c, 4), 0x0f, high_b), out.mins + 2);
    } else if constexpr (type == DType::IQ4_XS) {
#pragma GCC unroll 8
        for (int run = 0; run < kSubBlocks; ++run) _mm512_store_ps(out.scale[run], six_bit_scale(block, d, run));
        _mm512_store_ps(out.minus_dmin, _mm512_setzero_ps());
#pragma GCC unroll 4
        for (int pair = 0; pair < kSubBlocks / 2; ++pair) _mm512_store_si512(out.mins[pair], _mm512_setzero_si512());
    } else if constexpr (type == DType::Q2_K) {
        _mm512_store_ps(out.minus_dmin, _mm512_xor_ps(packed_half(block, 1), _mm512_set1_ps(-0.0F)));
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
            const __m512i both = word_at(words, i);
            scaled_bytes<0>(d, in_each_byte(both, 0x0f), out.scale + 4 * i);
            paired_bytes(in_each_byte(_mm512_srli_epi32(both, 4), 0x0f), out.mins + 2 * i);
        }
    } else if constexpr (type == DType::Q6_K) {
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i)  // signed bytes
            scaled_bytes<128>(d, _mm512_xor_si512(word_at(words, i), _mm512_set1_epi8(-128)), out.scale + 4 * i);
    } else {
        static_assert(type == DType::Q3_K);
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
            const __m512i low = _mm512_srli_epi32(word_at(words, i % 2), 4 * (static_cast<unsigned>(i) / 2));
            const __m512i high = rotated_left(word_at(words, 2), 4 - 2 * i);
            scaled_bytes<32>(d, joined(low, 0x0f, in_each_byte(high, 0x30)), out.scale + 4 * i);
        }
    }
}

/// Unpacks a K slice of `n_sub` sub-blocks (32 k each) of 16 rows to `out`, with the bits of unpack_chunk<type>()
/// (unpack_codes.h), but looks up the codes of types with a table.
template <DType type>
SLIPSTREAM_INLINE_PACKED void unpack_packed(const std::byte* src, int n_sub, UnpackedChunk& out) {
    for (int s = 0; s < n_sub; ++s) {
        const std::byte* block = block_of<type>(src, s);
#pragma GCC unroll 8
        for (int word = 0; word < 8; ++word) _mm512_store_si512(out.codes[s][word], packed_codes<type>(block, s, word));
        if constexpr (has_plain_scales(type)) _mm512_store_ps(out.scale[s], packed_scale<type>(block));
        if constexpr (has_plain_scales(type) && code_traits(type).has_offset)
            _mm512_store_ps(out.offset[s], packed_half(block, 1));
    }
    if constexpr (!has_plain_scales(type)) packed_scales<type>(src, out);
}

}  // namespace slipstream::cpu
#endif
