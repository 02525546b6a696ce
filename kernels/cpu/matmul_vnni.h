// Inner kernels of matmul for AVX-512 with VNNI: codes by vpdpbusd, unsigned weights times signed activations, four k
// of a row a lane, activations broadcast from memory. Made once for Intel's cores (matmul_avx512_vnni.cpp) and once for
// AMD's (matmul_avx512_bf16.cpp). The float kernels are those of AVX-512.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>
#include <limits>

#include "kernels/cpu/activations.h"
#include "kernels/cpu/matmul_interleaved.h"
#include "kernels/cpu/packed_codes.h"
#include "kernels/cpu/target.h"

namespace slipstream::cpu::vnni {

/// Groups of codes that go over K together (numbers: kernels/README.md).
enum class CodeGroups : std::uint8_t {
    Three,  // Intel's cores: fewest loads of activations
    Two,    // AMD's: their sums stay in registers
};

#define SLIPSTREAM_INLINE_VNNI SLIPSTREAM_AVX512_VNNI __attribute__((always_inline)) static inline

SLIPSTREAM_INLINE_VNNI __m512i broadcast_word(const std::byte* src) {
    return _mm512_set1_epi32(*reinterpret_cast<const int*>(src));
}
SLIPSTREAM_INLINE_VNNI __m512 broadcast_float(const std::byte* src) {
    return _mm512_set1_ps(*reinterpret_cast<const float*>(src));
}

inline constexpr int kTileTokens = 8;
/// Most tokens whose sums of two groups stay in registers, beside their dot products.
inline constexpr int kSumsInRegisters = 6;
// Tokens that codes are unpacked for anew with each tile: of 4 bits, one or two operations a word, two tiles. Beyond,
// once into memory.
inline constexpr int kPackedTokensOf4Bits = 16;
inline constexpr int kPackedTokens = 8;
inline constexpr int kAnyTokens = std::numeric_limits<int>::max();
constexpr int groups_of(CodeGroups groups) {
    return groups == CodeGroups::Three ? 3 : 2;
}

enum class From : std::uint8_t {
    Unpacked,  // codes and scales of the tile's unpacked chunks
    Packed,    // codes where they lie; scales as well, but for the K formats
};

template <DType type, From from>
SLIPSTREAM_INLINE_VNNI __m512i load_codes(const CodeTile& tile, int g, int s, int word) {
    if constexpr (from == From::Packed)
        return packed_codes<type>(block_of<type>(tile.packed + g * tile.group_bytes, s), s, word);
    return _mm512_load_si512(tile.unpacked[g].codes[s][word]);
}

template <DType type, From from>
SLIPSTREAM_INLINE_VNNI __m512 load_scale(const CodeTile& tile, int g, int run) {
    if constexpr (from == From::Packed && has_plain_scales(type))
        return packed_half(block_of<type>(tile.packed + g * tile.group_bytes, run), 0);
    return _mm512_load_ps(tile.unpacked[g].scale[run]);
}

template <DType type, From from>
SLIPSTREAM_INLINE_VNNI __m512 load_offset(const CodeTile& tile, int g, int s) {
    if constexpr (from == From::Packed && has_plain_scales(type))
        return packed_half(block_of<type>(tile.packed + g * tile.group_bytes, s), 1);
    return _mm512_load_ps(tile.unpacked[g].offset[s]);
}

/// dots[g][t] = start + codes [first, first + count) of sub-block `s` of group g times the activations of token t.
template <DType type, From from, int T, int kN>
SLIPSTREAM_INLINE_VNNI void dot_products(const CodeTile& tile, int s, const std::byte* x, int start, int first,
                                         int count, __m512i (&dots)[kN][T]) {
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t)
#pragma GCC unroll 4
        for (int g = 0; g < kN; ++g) dots[g][t] = broadcast_word(x + start + 4 * t);
#pragma GCC unroll 8
    for (int word = first; word < first + count; ++word) {
        __m512i codes[kN];
#pragma GCC unroll 4
        for (int g = 0; g < kN; ++g) codes[g] = load_codes<type, from>(tile, g, s, word);
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t)
#pragma GCC unroll 4
            for (int g = 0; g < kN; ++g)
                dots[g][t] = _mm512_dpbusd_epi32(dots[g][t], codes[g], broadcast_word(x + 4 * (word * T + t)));
    }
}

/// Sums are kept over the chunk, of two groups and six tokens in registers (of more the compiler keeps some in memory):
/// stored and loaded with each sub-block, every one would wait for the store before it.
template <DType type, From from, int T, int kN>
SLIPSTREAM_INLINE_VNNI void multiply_groups(const CodeTile& whole, int group) {
    using At = BlockOffsets<T>;
    constexpr CodeTraits kTraits = code_traits(type);
    CodeTile tile = whole;  // a copy that no store can reach stays in registers
    tile.packed += group * tile.group_bytes;
    tile.unpacked += group;
    float* const place = tile.sums + group * tile.sums_stride;
    __m512 sums[kN][T];
#pragma GCC unroll 4
    for (int g = 0; g < kN; ++g)
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t)
            sums[g][t] = tile.from_zero ? _mm512_setzero_ps() : _mm512_loadu_ps(place + g * tile.sums_stride + 16 * t);
    const std::byte* into_l1 = tile.ahead.into_l1 + group * tile.group_bytes;
    const std::byte* into_l2 = tile.ahead.into_l2 + group * tile.group_bytes;
    const std::byte* x = tile.x;
    constexpr std::int64_t kStepBytes = packed_block(type).bytes * (has_plain_scales(type) ? kSubBlocks : 1);
    for (int first = 0; first < tile.n_sub; first += kSubBlocks, tile.packed += kStepBytes) {
        if constexpr (from == From::Packed && !has_plain_scales(type))
#pragma GCC unroll 4
            for (int g = 0; g < kN; ++g) packed_scales<type>(tile.packed + g * tile.group_bytes, tile.unpacked[g]);
        const int n_sub = std::min(kSubBlocks, tile.n_sub - first);
        for (int s = 0; s < n_sub; ++s, x += At::kBytes) {
#pragma GCC unroll 4
            for (int g = 0; g < kN; ++g)
                for (std::int64_t line = g * tile.group_bytes; line < g * tile.group_bytes + tile.ahead.step_bytes;
                     line += 64) {
                    if (tile.ahead.by_l2) _mm_prefetch(into_l2 + line, _MM_HINT_T1);
                    _mm_prefetch(into_l1 + line, _MM_HINT_T0);
                }
            into_l1 += tile.ahead.step_bytes;
            into_l2 += tile.ahead.step_bytes;
            __m512i dots[kN][T];
            __m512 product[kN][T];  // what is multiplied by d
            if constexpr (kTraits.scale_run == 32) {
                dot_products<type, from, T, kN>(tile, s, x, At::kStart0, 0, 8, dots);
            } else {
                dot_products<type, from, T, kN>(tile, s, x, At::kStart0, 0, 4, dots);
#pragma GCC unroll 4
                for (int g = 0; g < kN; ++g) {
                    const __m512 scale0 = load_scale<type, from>(tile, g, 2 * s);
#pragma GCC unroll 8
                    for (int t = 0; t < T; ++t) product[g][t] = _mm512_mul_ps(scale0, _mm512_cvtepi32_ps(dots[g][t]));
                }
                dot_products<type, from, T, kN>(tile, s, x, At::kStart1, 4, 4, dots);
            }
#pragma GCC unroll 4
            for (int g = 0; g < kN; ++g) {
                const __m512 scale = load_scale<type, from>(tile, g, kTraits.scale_run == 32 ? s : 2 * s + 1);
#pragma GCC unroll 8
                for (int t = 0; t < T; ++t) {
                    const __m512 d = broadcast_float(x + At::kD + 4 * t);
                    const __m512 dot = _mm512_cvtepi32_ps(dots[g][t]);
                    if constexpr (kTraits.scale_run == 32) {
                        sums[g][t] = _mm512_fmadd_ps(dot, _mm512_mul_ps(scale, d), sums[g][t]);
                    } else {
                        sums[g][t] = _mm512_fmadd_ps(_mm512_fmadd_ps(scale, dot, product[g][t]), d, sums[g][t]);
                    }
                    if constexpr (kTraits.has_offset)
                        sums[g][t] = _mm512_fmadd_ps(load_offset<type, from>(tile, g, s),
                                                     broadcast_float(x + At::kSum + 4 * t), sums[g][t]);
                }
            }
        }
    }
#pragma GCC unroll 4
    for (int g = 0; g < kN; ++g)
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) _mm512_storeu_ps(place + g * tile.sums_stride + 16 * t, sums[g][t]);
}

template <DType type, From from, CodeGroups groups, int T>
SLIPSTREAM_AVX512_VNNI void multiply_codes(const CodeTile& tile) {
    constexpr int kGroups = groups_of(groups);
    int g = 0;
    for (; g + kGroups <= tile.n_groups; g += kGroups) multiply_groups<type, from, T, kGroups>(tile, g);
    for (; g < tile.n_groups; ++g) multiply_groups<type, from, T, 1>(tile, g);
}

template <DType type, From from, CodeGroups groups>
inline constexpr std::array<InterleavedForm::CodeFn, kMaxTileTokens> kMultiplyCodes{
    multiply_codes<type, from, groups, 1>, multiply_codes<type, from, groups, 2>, multiply_codes<type, from, groups, 3>,
    multiply_codes<type, from, groups, 4>, multiply_codes<type, from, groups, 5>, multiply_codes<type, from, groups, 6>,
    multiply_codes<type, from, groups, 7>, multiply_codes<type, from, groups, 8>};

template <DType type, CodeGroups groups>
void multiply_packed(InterleavedForm& form, int most_tokens) {
    const auto i = static_cast<std::size_t>(type);
    form.most_packed_tokens[i] = most_tokens;
    form.multiply_packed[i] = kMultiplyCodes<type, From::Packed, groups>;
}

/// The form of AVX-512 with these kernels for codes.
template <CodeGroups groups>
InterleavedForm make_form() {
    // One type stands for those whose scales and offsets lie alike, once they are unpacked.
    constexpr auto& kPlain = kMultiplyCodes<DType::Q4_0, From::Unpacked, groups>;
    constexpr auto& kWithOffset = kMultiplyCodes<DType::Q4_1, From::Unpacked, groups>;
    constexpr auto& kScalesTo16 = kMultiplyCodes<DType::Q6_K, From::Unpacked, groups>;
    InterleavedForm form = interleaved_form_avx512();
    form.code_tile_tokens = groups == CodeGroups::Two ? kSumsInRegisters : kTileTokens;
    form.packed_tile_tokens = kTileTokens;
    form.code_groups = groups_of(groups);
    if (groups == CodeGroups::Two) {
        form.packed_chunk_elements = 4096;
        form.code_streams.most_tokens_of_one = 3;
        form.code_streams.several = {.l1 = 2 << 10, .l2 = 8 << 10};
    }
    form.multiply_codes = {{{},
                            {},
                            {},
                            {},             // Q8_0: always packed
                            kPlain,         // Q4_0
                            kWithOffset,    // Q4_1
                            kPlain,         // Q5_0
                            kWithOffset,    // Q5_1
                            kScalesTo16,    // Q3_K
                            kWithOffset,    // Q4_K
                            kWithOffset,    // Q5_K
                            kScalesTo16}};  // Q6_K
    multiply_packed<DType::Q8_0, groups>(form, kAnyTokens);
    multiply_packed<DType::Q4_0, groups>(form, kPackedTokensOf4Bits);
    multiply_packed<DType::Q4_1, groups>(form, kPackedTokensOf4Bits);
    multiply_packed<DType::Q4_K, groups>(form, kPackedTokensOf4Bits);
    multiply_packed<DType::Q5_0, groups>(form, kPackedTokens);
    multiply_packed<DType::Q5_1, groups>(form, kPackedTokens);
    multiply_packed<DType::Q3_K, groups>(form, kPackedTokens);
    multiply_packed<DType::Q5_K, groups>(form, kPackedTokens);
    multiply_packed<DType::Q6_K, groups>(form, kPackedTokens);
    return form;
}

}  // namespace slipstream::cpu::vnni
#endif
