// The first half of the vector decoders, shared by the AVX2 and the AVX-512 form: blocks to whole numbers of 8 bits.
// Every quantised format decodes as  weight = scale * code (+ offset)  with a signed 8-bit code; layouts are told in
// dequantize.cpp. A unit is what shares one header: a block of 32 or of 256 weights. open() reads the header, codes()
// gives the 32 codes of group g of the unit in order.
//
// Bit-equality with dequantize_row: scale, code and scale * code have at most 11 + 7 + 6 = 24 significant bits and no
// underflow, so products are exact where an offset follows, and a fused multiply-add rounds just like mul, then add.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "kernels/base/dtype.h"
#include "kernels/cpu/block_fields.h"
#include "kernels/cpu/target.h"

namespace slipstream::cpu {

/// Weights and bytes of a unit; plain floats go by 32 as well, and only they can end inside a unit.
template <DType type>
inline constexpr bool kIsPlain = type == DType::F32 || type == DType::F16 || type == DType::BF16;
template <DType type>
inline constexpr std::int64_t kUnit = type >= DType::Q3_K ? 256 : 32;
inline constexpr std::array<std::int64_t, kDTypeCount> kUnitBytesOf{128, 64, 64,  34,  18,  20,
                                                                    22,  24, 110, 144, 176, 210};
template <DType type>
inline constexpr std::int64_t kUnitBytes = kUnitBytesOf[static_cast<std::size_t>(type)];

#define SLIPSTREAM_INLINE_AVX2 SLIPSTREAM_AVX2 __attribute__((always_inline)) static inline

SLIPSTREAM_INLINE_AVX2 float half_at(const std::byte* src) {
    return _cvtsh_ss(load_unaligned<std::uint16_t>(src));
}
SLIPSTREAM_INLINE_AVX2 __m256i load_32(const std::byte* src) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(src));
}
/// 16 bytes to 32 nibbles: the low ones, then the high ones.
SLIPSTREAM_INLINE_AVX2 __m256i nibbles_of_16(const std::byte* src) {
    const __m128i pairs = _mm_loadu_si128(reinterpret_cast<const __m128i*>(src));
    const __m256i both = _mm256_set_m128i(_mm_srli_epi16(pairs, 4), pairs);
    return _mm256_and_si256(both, _mm256_set1_epi8(15));
}
/// 0xff in each byte of `bytes` whose bit `bit` is set, else 0.
SLIPSTREAM_INLINE_AVX2 __m256i bit_to_mask(__m256i bytes, int bit) {
    const __m256i mask = _mm256_set1_epi8(static_cast<char>(1 << bit));
    return _mm256_cmpeq_epi8(_mm256_and_si256(bytes, mask), mask);
}
/// 0xff in byte i where bit i of `bits` is set, else 0.
SLIPSTREAM_INLINE_AVX2 __m256i bits_to_masks(std::uint32_t bits) {
    const __m256i byte_of = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i bit_of = _mm256_set1_epi64x(static_cast<long long>(0x8040201008040201U));
    const __m256i spread = _mm256_shuffle_epi8(_mm256_set1_epi32(static_cast<int>(bits)), byte_of);
    return _mm256_cmpeq_epi8(_mm256_and_si256(spread, bit_of), bit_of);
}
/// out[i] = factor * byte i of `packed`, i < 8.
SLIPSTREAM_INLINE_AVX2 void scale_8(float factor, std::uint64_t packed, float* out) {
    const __m256i wide = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(static_cast<long long>(packed)));
    _mm256_storeu_ps(out, _mm256_mul_ps(_mm256_set1_ps(factor), _mm256_cvtepi32_ps(wide)));
}
/// out[i] = factor * signed byte i, i < 16.
SLIPSTREAM_INLINE_AVX2 void scale_16(float factor, __m128i bytes, float* out) {
    const __m256 f = _mm256_set1_ps(factor);
    _mm256_storeu_ps(out, _mm256_mul_ps(f, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes))));
    _mm256_storeu_ps(out + 8,
                     _mm256_mul_ps(f, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_unpackhi_epi64(bytes, bytes)))));
}

/// An opened unit: its codes, and a scale (and an offset) to each kScaleRun weights.
template <int kScales>
struct ScaledUnit {
    const std::byte* block;
    float scale[kScales];
};
template <int kScales>
struct OffsetUnit {
    const std::byte* block;
    float scale[kScales];
    float offset[kScales];
};

template <DType>
struct BlockCodec;

template <>
struct BlockCodec<DType::Q8_0> {
    using Unit = ScaledUnit<1>;
    static constexpr int kScaleRun = 32;
    static constexpr bool kHasOffset = false;
    SLIPSTREAM_INLINE_AVX2 Unit open(const std::byte* block) { return {block + 2, {half_at(block)}}; }
    SLIPSTREAM_INLINE_AVX2 __m256i codes(const Unit& unit, int) { return load_32(unit.block); }
};

template <>
struct BlockCodec<DType::Q4_0> {
    using Unit = ScaledUnit<1>;
    static constexpr int kScaleRun = 32;
    static constexpr bool kHasOffset = false;
    SLIPSTREAM_INLINE_AVX2 Unit open(const std::byte* block) { return {block + 2, {half_at(block)}}; }
    SLIPSTREAM_INLINE_AVX2 __m256i codes(const Unit& unit, int) {
        return _mm256_sub_epi8(nibbles_of_16(unit.block), _mm256_set1_epi8(8));
    }
};

template <>
struct BlockCodec<DType::Q4_1> {
    using Unit = OffsetUnit<1>;
    static constexpr int kScaleRun = 32;
    static constexpr bool kHasOffset = true;
    SLIPSTREAM_INLINE_AVX2 Unit open(const std::byte* block) {
        return {block + 4, {half_at(block)}, {half_at(block + 2)}};
    }
    SLIPSTREAM_INLINE_AVX2 __m256i codes(const Unit& unit, int) { return nibbles_of_16(unit.block); }
};

template <>
struct BlockCodec<DType::Q5_0> {
    using Unit = ScaledUnit<1>;
    static constexpr int kScaleRun = 32;
    static constexpr bool kHasOffset = false;
    SLIPSTREAM_INLINE_AVX2 Unit open(const std::byte* block) { return {block + 2, {half_at(block)}}; }
    SLIPSTREAM_INLINE_AVX2 __m256i codes(const Unit& unit, int) {
        const __m256i set = bits_to_masks(load_unaligned<std::uint32_t>(unit.block));
        // q + 16 bit - 16: where the bit is missing, the upper nibble becomes 0xf, which subtracts 16.
        const __m256i minus_16 = _mm256_andnot_si256(set, _mm256_set1_epi8(static_cast<char>(0xf0)));
        return _mm256_or_si256(nibbles_of_16(unit.block + 4), minus_16);
    }
};

template <>
struct BlockCodec<DType::Q5_1> {
    using Unit = OffsetUnit<1>;
    static constexpr int kScaleRun = 32;
    static constexpr bool kHasOffset = true;
    SLIPSTREAM_INLINE_AVX2 Unit open(const std::byte* block) {
        return {block + 4, {half_at(block)}, {half_at(block + 2)}};
    }
    SLIPSTREAM_INLINE_AVX2 __m256i codes(const Unit& unit, int) {
        const __m256i set = bits_to_masks(load_unaligned<std::uint32_t>(unit.block));
        return _mm256_or_si256(nibbles_of_16(unit.block + 4), _mm256_and_si256(set, _mm256_set1_epi8(16)));
    }
};

template <>
struct BlockCodec<DType::Q3_K> {
    using Unit = ScaledUnit<16>;
    static constexpr int kScaleRun = 16;
    static constexpr bool kHasOffset = false;
    SLIPSTREAM_INLINE_AVX2 Unit open(const std::byte* block) {
        Unit unit;
        unit.block = block;
        std::uint8_t scales[16];
        unpack_q3_scales(block + 96, scales);
        const __m128i stored = _mm_loadu_si128(reinterpret_cast<const __m128i*>(scales));
        scale_16(half_at(block + 108), _mm_sub_epi8(stored, _mm_set1_epi8(32)), unit.scale);
        return unit;
    }
    SLIPSTREAM_INLINE_AVX2 __m256i codes(const Unit& unit, int g) {
        const __m256i shifted = _mm256_srli_epi16(load_32(unit.block + 32 + 32 * (g / 4)), 2 * (g % 4));
        const __m256i low = _mm256_and_si256(shifted, _mm256_set1_epi8(3));
        const __m256i set = bit_to_mask(load_32(unit.block), g);
        // low - 4 where the bit is missing: 0xfc | low, as a signed byte.
        return _mm256_or_si256(low, _mm256_andnot_si256(set, _mm256_set1_epi8(static_cast<char>(0xfc))));
    }
};

template <>
struct BlockCodec<DType::Q4_K> {
    using Unit = OffsetUnit<8>;
    static constexpr int kScaleRun = 32;
    static constexpr bool kHasOffset = true;
    SLIPSTREAM_INLINE_AVX2 Unit open(const std::byte* block) {
        Unit unit;
        unit.block = block;
        const ScalesAndMins packed = unpack_scales_and_mins(block + 4);
        scale_8(half_at(block), packed.scales, unit.scale);
        scale_8(-half_at(block + 2), packed.mins, unit.offset);
        return unit;
    }
    SLIPSTREAM_INLINE_AVX2 __m256i nibbles(const std::byte* codes, int g) {
        const __m256i shifted = _mm256_srli_epi16(load_32(codes + 32 * (g / 2)), 4 * (g % 2));
        return _mm256_and_si256(shifted, _mm256_set1_epi8(15));
    }
    SLIPSTREAM_INLINE_AVX2 __m256i codes(const Unit& unit, int g) { return nibbles(unit.block + 16, g); }
};

template <>
struct BlockCodec<DType::Q5_K> {
    using Unit = OffsetUnit<8>;
    static constexpr int kScaleRun = 32;
    static constexpr bool kHasOffset = true;
    SLIPSTREAM_INLINE_AVX2 Unit open(const std::byte* block) { return BlockCodec<DType::Q4_K>::open(block); }
    SLIPSTREAM_INLINE_AVX2 __m256i codes(const Unit& unit, int g) {
        const __m256i set = bit_to_mask(load_32(unit.block + 16), g);
        const __m256i low = BlockCodec<DType::Q4_K>::nibbles(unit.block + 48, g);
        return _mm256_or_si256(low, _mm256_and_si256(set, _mm256_set1_epi8(16)));
    }
};

template <>
struct BlockCodec<DType::Q6_K> {
    using Unit = ScaledUnit<16>;
    static constexpr int kScaleRun = 16;
    static constexpr bool kHasOffset = false;
    SLIPSTREAM_INLINE_AVX2 Unit open(const std::byte* block) {
        Unit unit;
        unit.block = block;
        scale_16(half_at(block + 208), _mm_loadu_si128(reinterpret_cast<const __m128i*>(block + 192)), unit.scale);
        return unit;
    }
    SLIPSTREAM_INLINE_AVX2 __m256i codes(const Unit& unit, int g) {
        const int half = g / 4;
        const int part = g % 4;
        const __m256i pairs = load_32(unit.block + 64 * half + 32 * (part % 2));
        const __m256i low = _mm256_and_si256(_mm256_srli_epi16(pairs, 4 * (part / 2)), _mm256_set1_epi8(15));
        const __m256i two_bits = _mm256_srli_epi16(load_32(unit.block + 128 + 32 * half), 2 * part);
        const __m256i high = _mm256_slli_epi16(_mm256_and_si256(two_bits, _mm256_set1_epi8(3)), 4);
        return _mm256_sub_epi8(_mm256_or_si256(low, high), _mm256_set1_epi8(32));
    }
};

}  // namespace slipstream::cpu
#endif
