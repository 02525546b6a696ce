// Inner kernels of matmul for AVX-512 with VNNI. Codes are multiplied by vpdpbusd: unsigned weights times signed
// activations, four k of a row per lane, with activations broadcast from memory. vnni/ instantiates them, a file for
// each weight type, once for Intel's cores and once for AMD's (CodeGroups).
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

#include "kernels/cpu/matmul/matmul_interleaved.h"
#include "kernels/cpu/matmul/matmul_vnni.h"
#include "kernels/cpu/matmul/matmul_vnni_dots.h"
#include "kernels/cpu/target.h"

namespace slipstream::cpu::vnni {

/// Most tokens of a call that multiplies packed codes directly, that is, unpacks them in registers again for each tile;
/// larger calls unpack once into memory. For 4-bit types: with three row groups, two tiles of 8 tokens.
inline constexpr int kPackedTokensOf4Bits = 16;
/// Most tokens of a call that multiplies packed codes directly instead of unpacking them once into memory, for most
/// types: one tile of 8 tokens.
inline constexpr int kPackedTokens = 8;
/// Most tokens of a call that multiplies packed codes directly instead of unpacking them once into memory, for the K
/// formats with the most operations per word: a little less than one tile of 8 tokens.
inline constexpr int kPackedTokensOfK = 7;
/// No limit to the tokens of a call that multiplies packed codes directly: for the types that are cheapest to unpack
/// (of Q4_0 and Q4_1 only with two row groups).
inline constexpr int kAnyTokens = std::numeric_limits<int>::max();
/// Returns the part of `whole` that is tile `index` of tokens and the row groups from `group` on. It is a copy, since a
/// copy that no store can alias stays in registers.
template <int T>
SLIPSTREAM_INLINE_VNNI CodeTile part_of(const CodeTile& whole, int index, int group) {
    CodeTile part = whole;
    const std::int64_t fetched = index * whole.n_sub * whole.ahead.step_bytes + group * whole.group_bytes;
    part.packed += group * whole.group_bytes;
    part.unpacked += group;
    part.x += index * whole.x_stride;
    part.sums += index * 16 * T + group * whole.sums_stride;
    part.ahead.into_l1 += fetched;
    part.ahead.into_l2 += fetched;
    return part;
}

/// Returns the sums that a kernel continues: 16 rows of row group `g`, token `t`; zeros for the first K slice.
template <int T, int kN>
SLIPSTREAM_INLINE_VNNI __m512 sum_before(const CodeTile& tile, int g, int t) {
    return tile.from_zero ? _mm512_setzero_ps() : _mm512_loadu_ps(tile.sums + g * tile.sums_stride + 16 * t);
}

/// Multiplies one tile of tokens with kN row groups (16 rows each), for types whose activations have a scale for each
/// 32. The sums are kept in variables over the whole K slice, those of two row groups and six tokens in registers (with
/// more, the compiler keeps some in memory). If they were stored and loaded with each sub-block of 32 k, each load
/// would wait for the store before it.
template <DType type, From from, int T, int kN>
SLIPSTREAM_INLINE_VNNI void multiply_blocks(CodeTile tile) {
    using At = BlockOffsets<T>;
    __m512 sums[kN][T];
#pragma GCC unroll 4
    for (int g = 0; g < kN; ++g)
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) sums[g][t] = sum_before<T, kN>(tile, g, t);
    Fetch fetch{tile.ahead.into_l1, tile.ahead.into_l2};
    const std::byte* x = tile.x;
    for (int first = 0; first < tile.n_sub; first += kSubBlocks, tile.packed += kSubBlocks * packed_block(type).bytes) {
        const int n_sub = std::min(kSubBlocks, tile.n_sub - first);
        for (int s = 0; s < n_sub; ++s, x += At::kBytes) {
            fetch_step<kN>(tile, fetch);
            __m512i dots[kN][T];
            dot_products<type, from, T, kN>(tile, s, x, At::kStart0, 0, 8, dots);
#pragma GCC unroll 4
            for (int g = 0; g < kN; ++g) {
                const __m512 scale = load_scale<type, from>(tile, g, s);
#pragma GCC unroll 8
                for (int t = 0; t < T; ++t) {
                    const __m512 both = _mm512_mul_ps(scale, broadcast_float(x + At::kD + 4 * t));
                    sums[g][t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots[g][t]), both, sums[g][t]);
                }
                if constexpr (code_traits(type).has_offset) {
                    const __m512 offset = load_offset<type, from>(tile, g, s);
#pragma GCC unroll 8
                    for (int t = 0; t < T; ++t)
                        sums[g][t] = _mm512_fmadd_ps(offset, broadcast_float(x + At::kSum + 4 * t), sums[g][t]);
                }
            }
        }
    }
#pragma GCC unroll 4
    for (int g = 0; g < kN; ++g)
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) _mm512_storeu_ps(tile.sums + g * tile.sums_stride + 16 * t, sums[g][t]);
}

/// Subtracts the minimums of a K format's block, of kN row groups, from `sums`, to which the caller still has to apply
/// the activations' scale. `x`: the activations of the block's first sub-block.
template <DType type, int T, int kN>
SLIPSTREAM_INLINE_VNNI void add_minimums(const CodeTile& tile, const std::byte* x, __m512 (&sums)[kN][T]) {
    using At = BlockOffsets<T>;
    constexpr int kPairs = minimum_pairs(type);
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
        __m512i totals[kN];
#pragma GCC unroll 4
        for (int g = 0; g < kN; ++g) totals[g] = _mm512_setzero_si512();
#pragma GCC unroll 8
        for (int pair = 0; pair < kPairs; ++pair) {
            const __m512i of_two = broadcast_word(x + sub_block_of_sums(type, pair) * At::kBytes + At::kSum + 4 * t);
#pragma GCC unroll 4
            for (int g = 0; g < kN; ++g)
                totals[g] = _mm512_dpwssd_epi32(totals[g], _mm512_load_si512(tile.unpacked[g].mins[pair]), of_two);
        }
#pragma GCC unroll 4
        for (int g = 0; g < kN; ++g)
            sums[g][t] =
                _mm512_fmadd_ps(_mm512_cvtepi32_ps(totals[g]), _mm512_load_ps(tile.unpacked[g].minus_dmin), sums[g][t]);
    }
}

/// Unpacks the scales and minimums of a K format's block of 16 rows to `out`. Not inlined, since the compiler would
/// take long for all copies.
template <DType type>
SLIPSTREAM_AVX512_VNNI [[gnu::noinline]] void unpack_scales_of(const std::byte* block, UnpackedChunk& out) {
    packed_scales<type>(block, out);
}

/// Multiplies one tile of tokens with kN row groups (16 rows each), for K formats, whose activations have a scale for
/// each block of 256. The sums of a block, without that scale, are kept in registers. The sums of the K slice are kept
/// in memory, where each block adds to them once.
template <DType type, From from, int T, int kN>
SLIPSTREAM_INLINE_VNNI void multiply_k_blocks(CodeTile tile) {
    using At = BlockOffsets<T>;
    constexpr int kRuns = 32 / code_traits(type).scale_run;
    Fetch fetch{tile.ahead.into_l1, tile.ahead.into_l2};
    const std::byte* x = tile.x;
    for (int first = 0; first < tile.n_sub; first += kSubBlocks, tile.packed += packed_block(type).bytes) {
        if constexpr (from != From::Unpacked)
#pragma GCC unroll 4
            for (int g = 0; g < kN; ++g) unpack_scales_of<type>(tile.packed + g * tile.group_bytes, tile.unpacked[g]);
        __m512 sums[kN][T];
#pragma GCC unroll 4
        for (int g = 0; g < kN; ++g)
#pragma GCC unroll 8
            for (int t = 0; t < T; ++t) sums[g][t] = _mm512_setzero_ps();
        for (int s = 0; s < kSubBlocks; ++s, x += At::kBytes) {
            fetch_step<kN>(tile, fetch);
#pragma GCC unroll 2
            for (int run = 0; run < kRuns; ++run) {
                __m512i dots[kN][T];
                dot_products<type, from, T, kN>(tile, s, x, run == 0 ? At::kStart0 : At::kStart1, 8 / kRuns * run,
                                                8 / kRuns, dots);
#pragma GCC unroll 4
                for (int g = 0; g < kN; ++g) {
                    const __m512 scale = load_scale<type, from>(tile, g, kRuns * s + run);
#pragma GCC unroll 8
                    for (int t = 0; t < T; ++t)
                        sums[g][t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots[g][t]), scale, sums[g][t]);
                }
            }
        }
        if constexpr (code_traits(type).has_offset) add_minimums<type, T, kN>(tile, x - kSubBlocks * At::kBytes, sums);
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) {
            const __m512 d = broadcast_float(x - At::kBytes + At::kD + 4 * t);
#pragma GCC unroll 4
            for (int g = 0; g < kN; ++g)
                _mm512_storeu_ps(tile.sums + g * tile.sums_stride + 16 * t,
                                 _mm512_fmadd_ps(sums[g][t], d, sum_before<T, kN>(tile, g, t)));
        }
        tile.from_zero = false;
    }
}

template <DType type, From from, int T, int kN>
SLIPSTREAM_INLINE_VNNI void multiply_groups(const CodeTile& tile) {
    if constexpr (code_traits(type).activation_run == 32) {
        multiply_blocks<type, from, T, kN>(tile);
    } else {
        multiply_k_blocks<type, from, T, kN>(tile);
    }
}

template <DType type, From from, CodeGroups groups, int T>
SLIPSTREAM_AVX512_VNNI void multiply_codes(const CodeTile& tile) {
    constexpr int kGroups = groups_of(groups);
    for (int i = 0; i < tile.n_tiles; ++i) {
        int g = 0;
        for (; g + kGroups <= tile.n_groups; g += kGroups)
            multiply_groups<type, from, T, kGroups>(part_of<T>(tile, i, g));
        for (; g < tile.n_groups; ++g) multiply_groups<type, from, T, 1>(part_of<T>(tile, i, g));
    }
}

/// The kernels of `type` that read codes from `from`, by the tokens of a tile: as wide as the tiles are (make_form()).
template <DType type, From from, CodeGroups groups>
inline constexpr auto kMultiplyCodes = []<std::size_t... i>(std::index_sequence<i...>) {
    return std::array<InterleavedForm::CodeFn, kMaxTileTokens>{
        multiply_codes<type, from, groups, static_cast<int>(i) + 1>...};
}
(std::make_index_sequence<from == From::Packed ? kTileTokens : code_tile_tokens(groups)>());

/// Returns the most tokens of a call that multiplies packed codes of `type` directly.
constexpr int most_packed_tokens(DType type, CodeGroups groups) {
    switch (type) {
        case DType::Q8_0:
        case DType::Q2_K:
            return kAnyTokens;
        case DType::Q4_0:
        case DType::Q4_1:
            return groups == CodeGroups::Two ? kAnyTokens : kPackedTokensOf4Bits;
        case DType::Q4_K:
            return groups == CodeGroups::Two ? kPackedTokens : kPackedTokensOf4Bits;
        case DType::Q5_0:
        case DType::Q5_1:
            return kPackedTokens;
        case DType::Q3_K:
        case DType::Q5_K:
        case DType::Q6_K:
            return kPackedTokensOfK;
        default:
            return kPackedTokensOf4Bits;
    }
}

/// Whether unpacking `type` takes more than an operation or two per word. Calls of more than most_packed_tokens()
/// tokens then unpack only once: with two row groups the first tile of tokens unpacks and keeps the codes for the other
/// tiles; with three, all codes are unpacked before the first tile.
constexpr bool is_kept(DType type) {
    return type == DType::Q5_0 || type == DType::Q5_1 || type == DType::Q3_K || type == DType::Q4_K ||
           type == DType::Q5_K || type == DType::Q6_K;
}

template <DType type, CodeGroups groups>
void set_kernels(InterleavedForm& form) {
    constexpr auto kIndex = static_cast<std::size_t>(type);
    form.most_packed_tokens[kIndex] = most_packed_tokens(type, groups);
    form.multiply_packed[kIndex] = kMultiplyCodes<type, From::Packed, groups>;
    if constexpr (groups == CodeGroups::Two && is_kept(type))
        form.multiply_keeping[kIndex] = kMultiplyCodes<type, From::Kept, groups>;
    if constexpr (names_layout(type)) form.multiply_codes[kIndex] = kMultiplyCodes<type, From::Unpacked, groups>;
}

}  // namespace slipstream::cpu::vnni
#endif
