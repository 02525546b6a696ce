// Dot products of codes by vpdpbusd, and what the kernels around them share (matmul_vnni.h): loads of codes and scales,
// unpacked or where they lie, and the fetching of weights ahead.
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

enum class From : std::uint8_t {
    Unpacked,  // codes and scales of the tile's unpacked chunks
    Packed,    // codes where they lie; scales as well, but for the K formats
    Kept,      // the same, and what is unpacked is kept in the chunks, for other tiles
};

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

/// Binary16 field `i` of sub-block `s`, or what was unpacked of it.
template <DType type, From from>
SLIPSTREAM_INLINE_VNNI __m512 load_half(const CodeTile& tile, int g, int s, int i, float* kept) {
    if constexpr (from == From::Unpacked || !has_plain_scales(type)) {
        return _mm512_load_ps(kept);
    } else {
        const __m512 value = packed_half(block_of<type>(tile.packed + g * tile.group_bytes, s), i);
        if constexpr (from == From::Kept) _mm512_store_ps(kept, value);
        return value;
    }
}
template <DType type, From from>
SLIPSTREAM_INLINE_VNNI __m512 load_scale(const CodeTile& tile, int g, int run) {
    return load_half<type, from>(tile, g, run, 0, tile.unpacked[g].scale[run]);
}
template <DType type, From from>
SLIPSTREAM_INLINE_VNNI __m512 load_offset(const CodeTile& tile, int g, int s) {
    return load_half<type, from>(tile, g, s, 1, tile.unpacked[g].offset[s]);
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

/// Walks ahead of a kernel's steps through the weights of its first group.
struct Fetch {
    const std::byte* into_l1;
    const std::byte* into_l2;
};

/// Fetches what kN groups of the tile have in a step.
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
