// Unpacks packed weights (interleaved.h) into what the integer kernels multiply: unsigned 8-bit codes, four k of a row
// in a 32-bit lane, and their scales as float. Plain loops over words, which each kernel variant compiles for itself
// (always_inline into a function with its target attributes). They use bit operations and exact conversions only, so
// all variants get the same bits. Loops over the 16 rows must not be unrolled: GCC 12 vectorises them as loops, but not
// as unrolled code.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "kernels/base/code_tables.h"
#include "kernels/base/dtype.h"

#define SLIPSTREAM_PORTABLE_INLINE [[gnu::always_inline]] inline

namespace slipstream::cpu {

/// Most elements of K in a K slice, the part of a row that is unpacked at once: one quantisation block of the K formats
/// (256 elements), up to eight of the others (32 each).
inline constexpr int kChunkElements = 256;
/// Sub-blocks in a full K slice. A sub-block is 32 elements of a row.
inline constexpr int kSubBlocks = kChunkElements / 32;

/// An unpacked K slice: 16 rows x up to 256 k. weight = scale * (code - code_offset) + offset; for K formats offset =
/// minus_dmin * min of the sub-block.
struct UnpackedChunk {
    alignas(64) std::uint32_t codes[kSubBlocks][8][16];  // [sub-block of 32][k / 4][row]; the byte of the lowest k is
                                                         // the low one
    alignas(64) float scale[2 * kSubBlocks][16];         // [run][row]; a run is a sub-block, or half of one (scale_run)
    alignas(64) float offset[kSubBlocks][16];        // [sub-block][row], if the type has offsets and is not a K format
    alignas(64) float minus_dmin[16];                // [row]
    alignas(64) std::uint32_t mins[kSubBlocks][16];  // [pair][row]: a pair of int16, minimums of two runs or sub-blocks
                                                     // (minimum_pairs()); that of the even one is the low half
};

/// The numbers of a quantised type that kernels depend on. Codes of types with a table (code_tables.h) are its values +
/// code_offset.
struct CodeTraits {
    int code_offset;  // subtracted from each code, by way of the sums of activations
    int code_bits;    // codes are below 2^code_bits
    int scale_run;    // weights that share a scale: 16 or 32
    bool has_offset;  // whether each sub-block has an offset (K formats: each run that shares a scale a minimum)
    int activation_run = 32;  // activations that share a scale: 32 or 256
};
/// Returns the traits of a quantised type. For F32, F16 and BF16 the result means nothing.
constexpr CodeTraits code_traits(DType type) {
    switch (type) {
        case DType::Q8_0:
            return {128, 8, 32, false};
        case DType::Q4_0:
            return {8, 4, 32, false};
        case DType::Q5_0:
            return {16, 5, 32, false};
        case DType::Q4_1:
            return {0, 4, 32, true};
        case DType::Q4_K:
            return {0, 4, 32, true, 256};
        case DType::Q5_1:
            return {0, 5, 32, true};
        case DType::Q5_K:
            return {0, 5, 32, true, 256};
        case DType::Q3_K:
            return {4, 3, 16, false, 256};
        case DType::Q6_K:
            return {32, 6, 16, false, 256};
        case DType::IQ4_NL:
            return {128, 8, 32, false};
        case DType::MXFP4:
            return {12, 5, 32, false};
        case DType::IQ4_XS:
            return {128, 8, 32, false, 256};
        case DType::Q2_K:
            return {0, 2, 16, true, 256};
        default:
            return {};
    }
}

/// Returns the number of pairs of minimums in a block of a K format with minimums: four pairs of sub-blocks (32
/// elements), or eight of runs of 16.
constexpr int minimum_pairs(DType type) {
    return kSubBlocks / 2 * (32 / code_traits(type).scale_run);
}
/// Returns the sub-block (0 to 7) in whose activations the sums that belong to pair `pair` are stored (activations.h).
constexpr int sub_block_of_sums(DType type, int pair) {
    return code_traits(type).scale_run == 16 ? pair : 2 * pair + 1;
}

using Words = const std::uint32_t (*)[16];  // 32-bit words of a packed row group, [word][row]

SLIPSTREAM_PORTABLE_INLINE Words words_at(const std::byte* src) {
    return reinterpret_cast<Words>(src);
}

/// Converts the 16 binary16 numbers at `src` (2-byte aligned) to floats, exactly, by selects instead of branches. A
/// subnormal is 2^-14 (1 + m) - 2^-14.
SLIPSTREAM_PORTABLE_INLINE void halves_to_float(const std::byte* src, float (&out)[16]) {
    const auto* halves = reinterpret_cast<const std::uint16_t*>(src);
#pragma GCC unroll 1
    for (int r = 0; r < 16; ++r) {
        const std::uint32_t bits = halves[r];
        const std::uint32_t exponent = bits & 0x7c00U;
        const std::uint32_t shifted = (bits & 0x7fffU) << 13;
        const std::uint32_t normal = shifted + (exponent == 0x7c00U ? 224U << 23 : 112U << 23);
        const float subnormal = std::bit_cast<float>(shifted | (113U << 23)) - 0x1p-14F;
        const std::uint32_t magnitude = exponent == 0 ? std::bit_cast<std::uint32_t>(subnormal) : normal;
        out[r] = std::bit_cast<float>(magnitude | (bits & 0x8000U) << 16);
    }
}

/// out[i][r] = factor[r] * (byte `i` of words[r] - bias), for i = 0 to 3 and rows r = 0 to 15; bytes are unsigned.
SLIPSTREAM_PORTABLE_INLINE void scale_bytes(const float (&factor)[16], const std::uint32_t (&words)[16], int bias,
                                            float (*out)[16]) {
    for (int i = 0; i < 4; ++i)
#pragma GCC unroll 1
        for (int r = 0; r < 16; ++r)
            out[i][r] = factor[r] * static_cast<float>(static_cast<int>((words[r] >> (8 * i)) & 0xffU) - bias);
}

/// Writes the 4-bit codes of 32 k of 16 rows: of the four words at `from`, low nibbles are k 0 to 15 and high nibbles k
/// 16 to 31.
SLIPSTREAM_PORTABLE_INLINE void nibble_words(Words from, std::uint32_t (&codes)[8][16]) {
    for (int w = 0; w < 4; ++w)
#pragma GCC unroll 1
        for (int r = 0; r < 16; ++r) {
            codes[w][r] = from[w][r] & 0x0f0f0f0fU;
            codes[w + 4][r] = (from[w][r] >> 4) & 0x0f0f0f0fU;
        }
}

/// out[r] = 2^(exponents[r] - 128), as mxfp4_scale_bits() (code_tables.h).
SLIPSTREAM_PORTABLE_INLINE void exponents_to_float(const std::byte* exponents, float (&out)[16]) {
#pragma GCC unroll 1
    for (int r = 0; r < 16; ++r)
        out[r] = std::bit_cast<float>(mxfp4_scale_bits(static_cast<std::uint32_t>(exponents[r])));
}

/// Unpacks the scales, minimums and minus_dmin of a packed Q4_K or Q5_K block at `src` to `out`, as
/// unpack_scales_and_mins() (block_fields.h) does, for 16 rows at once.
SLIPSTREAM_PORTABLE_INLINE void scales_and_mins(const std::byte* src, UnpackedChunk& out) {
    float d[16];
    halves_to_float(src, d);
    halves_to_float(src + 32, out.minus_dmin);
    const Words packed = words_at(src + 64);
    std::uint32_t scales[2][16];
#pragma GCC unroll 1
    for (int r = 0; r < 16; ++r) {
        out.minus_dmin[r] = -out.minus_dmin[r];
        const std::uint32_t a = packed[0][r];
        const std::uint32_t b = packed[1][r];
        const std::uint32_t c = packed[2][r];
        scales[0][r] = a & 0x3f3f3f3fU;
        scales[1][r] = (c & 0x0f0f0f0fU) | ((a >> 2) & 0x30303030U);
        const std::uint32_t low = b & 0x3f3f3f3fU;
        const std::uint32_t high = ((c >> 4) & 0x0f0f0f0fU) | ((b >> 2) & 0x30303030U);
        out.mins[0][r] = (low & 0xffU) | (low & 0xff00U) << 8;
        out.mins[1][r] = (low >> 16 & 0xffU) | (low >> 8 & 0xff0000U);
        out.mins[2][r] = (high & 0xffU) | (high & 0xff00U) << 8;
        out.mins[3][r] = (high >> 16 & 0xffU) | (high >> 8 & 0xff0000U);
    }
    for (int half = 0; half < 2; ++half) scale_bytes(d, scales[half], 0, out.scale + 4 * half);
}

/// Unpacks the packed quantisation block at `src`, of 16 rows, to sub-block `s` (0 to 7) of `out`. A block of a K
/// format fills all eight sub-blocks, and `s` is ignored. For types with a table, codes are places in it: the caller
/// looks them up.
template <DType type>
SLIPSTREAM_PORTABLE_INLINE void unpack_block(const std::byte* src, int s, UnpackedChunk& out) {
    constexpr bool kTwoHalves = type == DType::Q4_1 || type == DType::Q5_1;
    constexpr int kScaleBytes = type == DType::MXFP4 ? 16 : 32;
    if constexpr (type == DType::MXFP4) {
        exponents_to_float(src, out.scale[s]);
    } else {
        halves_to_float(src, out.scale[s]);
    }
    if constexpr (kTwoHalves) halves_to_float(src + 32, out.offset[s]);
    Words words = words_at(src + (kTwoHalves ? 64 : kScaleBytes));
    if constexpr (type == DType::Q8_0) {
        for (int w = 0; w < 8; ++w)
#pragma GCC unroll 1
            for (int r = 0; r < 16; ++r) out.codes[s][w][r] = words[w][r];
    } else if constexpr (type == DType::Q5_0 || type == DType::Q5_1) {
        nibble_words(words + 1, out.codes[s]);
        for (int w = 0; w < 8; ++w)
#pragma GCC unroll 1
            for (int r = 0; r < 16; ++r) out.codes[s][w][r] |= ((words[0][r] >> w) & 0x01010101U) << 4;
    } else {
        nibble_words(words, out.codes[s]);
    }
}

template <>
SLIPSTREAM_PORTABLE_INLINE void unpack_block<DType::Q4_K>(const std::byte* src, int, UnpackedChunk& out) {
    scales_and_mins(src, out);
    const Words words = words_at(src + 64 + 3 * 64);
    for (int pair = 0; pair < 4; ++pair)
        for (int w = 0; w < 8; ++w)
#pragma GCC unroll 1
            for (int r = 0; r < 16; ++r) {
                out.codes[2 * pair][w][r] = words[8 * pair + w][r] & 0x0f0f0f0fU;
                out.codes[2 * pair + 1][w][r] = (words[8 * pair + w][r] >> 4) & 0x0f0f0f0fU;
            }
}

template <>
SLIPSTREAM_PORTABLE_INLINE void unpack_block<DType::Q5_K>(const std::byte* src, int, UnpackedChunk& out) {
    scales_and_mins(src, out);
    const Words high = words_at(src + 64 + 3 * 64);
    const Words words = high + 8;
    for (int pair = 0; pair < 4; ++pair)
        for (int w = 0; w < 8; ++w)
#pragma GCC unroll 1
            for (int r = 0; r < 16; ++r) {
                const std::uint32_t h = high[w][r] >> (2 * pair);
                const std::uint32_t q = words[8 * pair + w][r];
                out.codes[2 * pair][w][r] = (q & 0x0f0f0f0fU) | ((h & 0x01010101U) << 4);
                out.codes[2 * pair + 1][w][r] = ((q >> 4) & 0x0f0f0f0fU) | (((h >> 1) & 0x01010101U) << 4);
            }
}

/// Unpacks the 16 scales of a packed block of Q6_K or Q3_K, of 16 rows at `src`, to out.scale.
template <DType type>
void unpack_scales(const std::byte* src, UnpackedChunk& out) = delete;

template <>
SLIPSTREAM_PORTABLE_INLINE void unpack_scales<DType::Q6_K>(const std::byte* src, UnpackedChunk& out) {
    float d[16];
    halves_to_float(src, d);
    const Words scales = words_at(src + 32);
    for (int i = 0; i < 4; ++i) {
        std::uint32_t unsigned_scales[16];
#pragma GCC unroll 1
        for (int r = 0; r < 16; ++r) unsigned_scales[r] = scales[i][r] ^ 0x80808080U;
        scale_bytes(d, unsigned_scales, 128, out.scale + 4 * i);
    }
}

template <>
SLIPSTREAM_PORTABLE_INLINE void unpack_scales<DType::Q3_K>(const std::byte* src, UnpackedChunk& out) {
    float d[16];
    halves_to_float(src, d);
    const Words packed = words_at(src + 32);
    for (int i = 0; i < 4; ++i) {  // as unpack_q3_scales() (block_fields.h)
        std::uint32_t scales[16];
#pragma GCC unroll 1
        for (int r = 0; r < 16; ++r)
            scales[r] =
                ((packed[i % 2][r] >> (4 * (i / 2))) & 0x0f0f0f0fU) | (((packed[2][r] >> (2 * i)) & 0x03030303U) << 4);
        scale_bytes(d, scales, 32, out.scale + 4 * i);
    }
}

template <>
SLIPSTREAM_PORTABLE_INLINE void unpack_block<DType::Q6_K>(const std::byte* src, int, UnpackedChunk& out) {
    unpack_scales<DType::Q6_K>(src, out);
    for (int g = 0; g < 8; ++g) {
        const Words half = words_at(src + 32) + 4 + 24 * (g / 4);
        const int part = g % 4;
        for (int w = 0; w < 8; ++w)
#pragma GCC unroll 1
            for (int r = 0; r < 16; ++r)
                out.codes[g][w][r] = ((half[3 * w + part % 2][r] >> (4 * (part / 2))) & 0x0f0f0f0fU) |
                                     (((half[3 * w + 2][r] >> (2 * part)) & 0x03030303U) << 4);
    }
}

template <>
SLIPSTREAM_PORTABLE_INLINE void unpack_block<DType::Q3_K>(const std::byte* src, int, UnpackedChunk& out) {
    unpack_scales<DType::Q3_K>(src, out);
    const Words high = words_at(src + 32) + 3;
    const Words low = high + 8;
    for (int g = 0; g < 8; ++g)
        for (int w = 0; w < 8; ++w)
#pragma GCC unroll 1
            for (int r = 0; r < 16; ++r)
                out.codes[g][w][r] = ((low[8 * (g / 4) + w][r] >> (2 * (g % 4))) & 0x03030303U) |
                                     (((high[w][r] >> g) & 0x01010101U) << 2);
}

template <>
SLIPSTREAM_PORTABLE_INLINE void unpack_block<DType::IQ4_XS>(const std::byte* src, int, UnpackedChunk& out) {
    float d[16];
    halves_to_float(src, d);
    const auto* high = reinterpret_cast<const std::uint16_t*>(src + 32);
    const Words words = words_at(src + 64);
    // IQ4_XS has no minimums. They are set to 0, so that the kernels for unpacked Q4_K can multiply it as well.
#pragma GCC unroll 1
    for (int r = 0; r < 16; ++r) out.minus_dmin[r] = 0.0F;
    for (int pair = 0; pair < kSubBlocks / 2; ++pair)
#pragma GCC unroll 1
        for (int r = 0; r < 16; ++r) out.mins[pair][r] = 0;
    for (int g = 0; g < 8; ++g) {
#pragma GCC unroll 1
        for (int r = 0; r < 16; ++r) {
            const std::uint32_t scale =
                (words[0][r] >> (4 * g) & 15U) | (static_cast<std::uint32_t>(high[r]) >> (2 * g) & 3U) << 4;
            out.scale[g][r] = d[r] * static_cast<float>(static_cast<int>(scale) - 32);
        }
        nibble_words(words + 1 + 4 * g, out.codes[g]);
    }
}

template <>
SLIPSTREAM_PORTABLE_INLINE void unpack_block<DType::Q2_K>(const std::byte* src, int, UnpackedChunk& out) {
    float d[16];
    halves_to_float(src, d);
    halves_to_float(src + 32, out.minus_dmin);
#pragma GCC unroll 1
    for (int r = 0; r < 16; ++r) out.minus_dmin[r] = -out.minus_dmin[r];
    const Words words = words_at(src + 64);
    for (int i = 0; i < 4; ++i) {
        std::uint32_t scales[16];
#pragma GCC unroll 1
        for (int r = 0; r < 16; ++r) {
            scales[r] = words[i][r] & 0x0f0f0f0fU;
            const std::uint32_t mins = (words[i][r] >> 4) & 0x0f0f0f0fU;
            out.mins[2 * i][r] = (mins & 0xffU) | (mins & 0xff00U) << 8;
            out.mins[2 * i + 1][r] = (mins >> 16 & 0xffU) | (mins >> 8 & 0xff0000U);
        }
        scale_bytes(d, scales, 0, out.scale + 4 * i);
    }
    for (int g = 0; g < 8; ++g)
        for (int w = 0; w < 8; ++w)
#pragma GCC unroll 1
            for (int r = 0; r < 16; ++r)
                out.codes[g][w][r] = (words[4 + 8 * (g / 4) + w][r] >> (2 * (g % 4))) & 0x03030303U;
}

/// Unpacks a K slice of `n_sub` sub-blocks (1 to 8; K formats: 8) of 16 rows at `src` to `out`. `block_bytes` is the
/// size of a packed quantisation block of 16 rows. For types with a table, codes are places in it.
template <DType type>
SLIPSTREAM_PORTABLE_INLINE void unpack_chunk(const std::byte* src, std::size_t block_bytes, int n_sub,
                                             UnpackedChunk& out) {
    const int n_blocks = code_traits(type).activation_run == 256 ? 1 : n_sub;
    for (int i = 0; i < n_blocks; ++i) unpack_block<type>(src + i * block_bytes, i, out);
}

}  // namespace slipstream::cpu
