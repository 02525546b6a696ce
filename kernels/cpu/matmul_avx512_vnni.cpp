// Inner kernels of matmul for AVX-512 with VNNI: codes by vpdpbusd, unsigned weights times signed activations, four k
// of a row a lane, activations broadcast from memory. The float kernels are those of AVX-512.

#if defined(__x86_64__)
#include <immintrin.h>

#include <limits>

#include "kernels/cpu/activations.h"
#include "kernels/cpu/matmul_interleaved.h"
#include "kernels/cpu/packed_codes.h"
#include "kernels/cpu/target.h"

namespace slipstream::cpu {

namespace {

#define SLIPSTREAM_INLINE_VNNI SLIPSTREAM_AVX512_VNNI __attribute__((always_inline)) static inline

SLIPSTREAM_INLINE_VNNI __m512i broadcast_word(const std::byte* src) {
    return _mm512_set1_epi32(*reinterpret_cast<const int*>(src));
}
SLIPSTREAM_INLINE_VNNI __m512 broadcast_float(const std::byte* src) {
    return _mm512_set1_ps(*reinterpret_cast<const float*>(src));
}

// Tiles of tokens that 4-bit codes are unpacked for anew, one or two operations a word: beyond, once into memory.
constexpr int kPackedTilesOf4Bits = 2;
constexpr int kAnyTiles = std::numeric_limits<int>::max();
constexpr int kGroups = 3;  // groups that share each activation: 8 tokens x 3 dot products in registers

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

/// Sums stay in memory: one load and store to eleven operations, and registers are left for three groups.
template <DType type, From from, int T, int kN>
SLIPSTREAM_INLINE_VNNI void multiply_groups(const CodeTile& whole, int group) {
    using At = BlockOffsets<T>;
    constexpr CodeTraits kTraits = code_traits(type);
    CodeTile tile = whole;  // a copy that no store can reach stays in registers
    tile.packed += group * tile.group_bytes;
    tile.unpacked += group;
    float* const sums = tile.sums + group * tile.sums_stride;
    const std::byte* into_l1 = tile.ahead.into_l1 + group * tile.group_bytes;
    const std::byte* into_l2 = tile.ahead.into_l2 + group * tile.group_bytes;
    const std::byte* x = tile.x;
    for (int s = 0; s < tile.n_sub; ++s, x += At::kBytes) {
#pragma GCC unroll 4
        for (int g = 0; g < kN; ++g)
            for (std::int64_t line = g * tile.group_bytes; line < g * tile.group_bytes + tile.ahead.step_bytes;
                 line += 64) {
                _mm_prefetch(into_l2 + line, _MM_HINT_T1);
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
                float* const place = sums + g * tile.sums_stride + 16 * t;
                const __m512 d = broadcast_float(x + At::kD + 4 * t);
                const __m512 dot = _mm512_cvtepi32_ps(dots[g][t]);
                __m512 sum = _mm512_loadu_ps(place);
                if constexpr (kTraits.scale_run == 32) {
                    sum = _mm512_fmadd_ps(dot, _mm512_mul_ps(scale, d), sum);
                } else {
                    sum = _mm512_fmadd_ps(_mm512_fmadd_ps(scale, dot, product[g][t]), d, sum);
                }
                if constexpr (kTraits.has_offset)
                    sum = _mm512_fmadd_ps(load_offset<type, from>(tile, g, s), broadcast_float(x + At::kSum + 4 * t),
                                          sum);
                _mm512_storeu_ps(place, sum);
            }
        }
    }
}

template <DType type, From from, int T>
SLIPSTREAM_AVX512_VNNI void multiply_codes(const CodeTile& tile) {
    int g = 0;
    for (; g + kGroups <= tile.n_groups; g += kGroups) multiply_groups<type, from, T, kGroups>(tile, g);
    for (; g < tile.n_groups; ++g) multiply_groups<type, from, T, 1>(tile, g);
}

template <DType type>
SLIPSTREAM_AVX512_LOOPS void unpack_scales_of(const std::byte* __restrict src, UnpackedChunk& __restrict out) {
    unpack_scales<type>(src, out);
}

template <DType type, From from>
constexpr std::array<InterleavedForm::CodeFn, kMaxTileTokens> kMultiplyCodes{
    multiply_codes<type, from, 1>, multiply_codes<type, from, 2>, multiply_codes<type, from, 3>,
    multiply_codes<type, from, 4>, multiply_codes<type, from, 5>, multiply_codes<type, from, 6>,
    multiply_codes<type, from, 7>, multiply_codes<type, from, 8>};

template <DType type>
void multiply_packed(InterleavedForm& form, int most_tiles) {
    const auto i = static_cast<std::size_t>(type);
    form.most_packed_tiles[i] = most_tiles;
    form.multiply_packed[i] = kMultiplyCodes<type, From::Packed>;
    if constexpr (!has_plain_scales(type)) form.unpack_scales[i] = unpack_scales_of<type>;
}

InterleavedForm make_form() {
    // One type stands for those whose scales and offsets lie alike, once they are unpacked.
    constexpr auto& kPlain = kMultiplyCodes<DType::Q4_0, From::Unpacked>;
    constexpr auto& kWithOffset = kMultiplyCodes<DType::Q4_1, From::Unpacked>;
    constexpr auto& kScalesTo16 = kMultiplyCodes<DType::Q6_K, From::Unpacked>;
    InterleavedForm form = interleaved_form_avx512();
    form.code_tile_tokens = 8;
    form.code_groups = kGroups;
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
    multiply_packed<DType::Q8_0>(form, kAnyTiles);
    multiply_packed<DType::Q4_0>(form, kPackedTilesOf4Bits);
    multiply_packed<DType::Q4_1>(form, kPackedTilesOf4Bits);
    multiply_packed<DType::Q4_K>(form, kPackedTilesOf4Bits);
    multiply_packed<DType::Q5_0>(form, 1);
    multiply_packed<DType::Q5_1>(form, 1);
    multiply_packed<DType::Q3_K>(form, 1);
    multiply_packed<DType::Q5_K>(form, 1);
    multiply_packed<DType::Q6_K>(form, 1);
    return form;
}

}  // namespace

const InterleavedForm& interleaved_form_avx512_vnni() {
    static const InterleavedForm form = make_form();
    return form;
}

CpuScratch matmul_scratch_avx512_vnni(const WorkspaceShapes& shapes) {
    return matmul_scratch_interleaved(shapes, interleaved_form_avx512_vnni());
}

void matmul_avx512_vnni(ExecRef exec, const MatmulArgs& args) {
    matmul_interleaved(exec, args, interleaved_form_avx512_vnni());
}

}  // namespace slipstream::cpu
#endif
