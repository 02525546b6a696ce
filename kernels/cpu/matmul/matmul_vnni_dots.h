// Dot products of codes by vpdpbusd, and what the kernels around them (matmul_vnni.h) share: loads of codes and scales,
// unpacked or packed, and the prefetch of weights.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels/cpu/matmul/activations.h"
#include "kernels/cpu/matmul/matmul_interleaved.h"
#include "kernels/cpu/matmul/packed_codes.h"
#include "kernels/cpu/target.h"

namespace slipstream::cpu::vnni {

#define SLIPSTREAM_INLINE_VNNI SLIPSTREAM_AVX512_VNNI __attribute__((always_inline)) static inline

SLIPSTREAM_INLINE_VNNI __m512i broadcast_word(const std::byte* src) {
    return _mm512_set1_epi32(*reinterpret_cast<const int*>(src));
}
SLIPSTREAM_INLINE_VNNI __m512 broadcast_float(const std::byte* src) {
    return _mm512_set1_ps(*reinterpret_cast<const float*>(src));
}

/// Where a kernel reads codes and scales.
enum class From : std::uint8_t {
    Unpacked,  // codes are read from tile.unpacked, where they were unpacked before
    Packed,    // codes from the packed weights, and so scales unless the type is a K format
    Kept,      // as Packed, and the codes are also stored unpacked in tile.unpacked, for other tiles
};

/// Returns word `word` (0 to 7) of sub-block `s` (32 k) of row group `g` of the tile: unsigned codes of four k of 16
/// rows.
template <DType type, From from>
SLIPSTREAM_INLINE_VNNI __m512i load_codes(const CodeTile& tile, int g, int s, int word) {
    std::uint32_t* const kept = tile.unpacked[g].codes[s][word];
    if constexpr (from == From::Unpacked) {
        return _mm512_load_si512(kept);
    } else {
        const __m512i codes = packed_codes<type>(block_of<type>(tile.packed + g * tile.group_bytes, s), s, word);
        if constexpr (from == From::Kept) _mm512_store_si512(kept, codes);
        return codes;
    }
}

/// Returns the scale (`i` 0) or offset (`i` 1) of sub-block `s` of row group `g` for its 16 rows. From::Unpacked, and K
/// formats always, read it from `kept` [16], where it was unpacked before; From::Kept stores it there.
template <DType type, From from>
SLIPSTREAM_INLINE_VNNI __m512 load_field(const CodeTile& tile, int g, int s, int i, float* kept) {
    if constexpr (from == From::Unpacked || !has_plain_scales(type)) {
        return _mm512_load_ps(kept);
    } else {
        const std::byte* const block = block_of<type>(tile.packed + g * tile.group_bytes, s);
        const __m512 value = i == 0 ? packed_scale<type>(block) : packed_half(block, i);
        if constexpr (from == From::Kept) _mm512_store_ps(kept, value);
        return value;
    }
}
/// Returns the scale of run `run` of row group `g`, [16]; for types that are not K formats a run is a sub-block.
template <DType type, From from>
SLIPSTREAM_INLINE_VNNI __m512 load_scale(const CodeTile& tile, int g, int run) {
    return load_field<type, from>(tile, g, run, 0, tile.unpacked[g].scale[run]);
}
/// Returns the offset of sub-block `s` of row group `g`, [16], of a type with offsets that is not a K format.
template <DType type, From from>
SLIPSTREAM_INLINE_VNNI __m512 load_offset(const CodeTile& tile, int g, int s) {
    return load_field<type, from>(tile, g, s, 1, tile.unpacked[g].offset[s]);
}

/// dots[g][t] = start value of token t + dot product over words [first, first + count) of sub-block `s` (32 k; a word
/// is four k of a row): codes of row group g times activations of token t. `x`: the sub-block's activations; `start`:
/// byte offset of the start values in `x`.
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

/// Prefetch positions, which move ahead of a kernel's steps through the weights of its first row group.
struct Fetch {
    const std::byte* into_l1;
    const std::byte* into_l2;
};

/// Prefetches the weights of one step for kN row groups of the tile, and moves `at` on by a step.
template <int kN>
SLIPSTREAM_INLINE_VNNI void fetch_step(const CodeTile& tile, Fetch& at) {
#pragma GCC unroll 4
    for (int g = 0; g < kN; ++g)
        for (std::int64_t line = g * tile.group_bytes; line < g * tile.group_bytes + tile.ahead.step_bytes;
             line += 64) {
            if (tile.ahead.by_l2) _mm_prefetch(at.into_l2 + line, _MM_HINT_T1);
            _mm_prefetch(at.into_l1 + line, _MM_HINT_T0);
        }
    at.into_l1 += tile.ahead.step_bytes;
    at.into_l2 += tile.ahead.step_bytes;
}

}  // namespace slipstream::cpu::vnni
#endif
