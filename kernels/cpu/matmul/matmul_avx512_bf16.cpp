// Inner kernels of matmul for AVX-512 with BF16: vdpbf16ps multiplies the two k of a row that a lane holds with two
// activations rounded to bfloat16. Codes are multiplied with VNNI, in the form that is fastest on AMD's cores; all else
// is as with AVX-512.

#if defined(__x86_64__)
#include <immintrin.h>

#include <array>
#include <cstdint>
#include <utility>

#include "kernels/base/float16.h"
#include "kernels/cpu/matmul/matmul_interleaved.h"
#include "kernels/cpu/matmul/matmul_vnni.h"
#include "kernels/cpu/target.h"

namespace slipstream::cpu {

namespace {

#define SLIPSTREAM_INLINE_BF16 SLIPSTREAM_AVX512_BF16 __attribute__((always_inline)) static inline

constexpr int kTileTokens = 8;
// Bytes of two k of a row group of 16 rows: from one step to the next.
constexpr std::int64_t kWeightBytes = 64;

/// Returns the row groups whose sums of T = `t` tokens stay in registers, beside their weights: at most 24 sums.
constexpr int groups_of(int t) {
    return t <= 6 ? 4 : 3;
}

SLIPSTREAM_INLINE_BF16 __m512bh load_pairs(const std::byte* src) {
    return reinterpret_cast<__m512bh>(_mm512_loadu_si512(src));
}
/// Returns the last element of an odd K of 16 rows, each with 0 as the odd element of its pair.
SLIPSTREAM_INLINE_BF16 __m512bh load_last(const std::byte* src) {
    return reinterpret_cast<__m512bh>(_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(src))));
}
SLIPSTREAM_INLINE_BF16 __m512bh broadcast_pair(const std::byte* src) {
    return reinterpret_cast<__m512bh>(_mm512_set1_epi32(*reinterpret_cast<const int*>(src)));
}

template <int T, int kGroups>
SLIPSTREAM_INLINE_BF16 void multiply_groups(const FloatTile& tile, int first) {
    const std::int64_t group_bytes = tile.group_bytes;
    const std::byte* weights = tile.weights + first * group_bytes;
    const std::byte* into_l1 = tile.ahead.into_l1 + first * group_bytes;
    const std::byte* into_l2 = tile.ahead.into_l2 + first * group_bytes;
    float* const sums = tile.sums + first * tile.sums_stride;
    __m512 sum[kGroups][T];
#pragma GCC unroll 4
    for (int g = 0; g < kGroups; ++g)
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t)
            sum[g][t] = tile.from_zero ? _mm512_setzero_ps() : _mm512_loadu_ps(sums + g * tile.sums_stride + t * 16);
    const std::byte* x = tile.x;
    for (std::int64_t k = 0; k + 2 <= tile.k; k += 2, weights += kWeightBytes, x += kPairBytes * T) {
        __m512bh w[kGroups];
#pragma GCC unroll 4
        for (int g = 0; g < kGroups; ++g) {
            w[g] = load_pairs(weights + g * group_bytes);
            if (tile.ahead.by_l2) _mm_prefetch(into_l2 + g * group_bytes, _MM_HINT_T1);
            _mm_prefetch(into_l1 + g * group_bytes, _MM_HINT_T0);
        }
        into_l1 += tile.ahead.step_bytes;
        into_l2 += tile.ahead.step_bytes;
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t)
#pragma GCC unroll 4
            for (int g = 0; g < kGroups; ++g)
                sum[g][t] = _mm512_dpbf16_ps(sum[g][t], w[g], broadcast_pair(x + kPairBytes * t));
    }
    if (tile.k % 2 != 0) {
#pragma GCC unroll 4
        for (int g = 0; g < kGroups; ++g) {
            const __m512bh w = load_last(weights + g * group_bytes);
#pragma GCC unroll 8
            for (int t = 0; t < T; ++t) sum[g][t] = _mm512_dpbf16_ps(sum[g][t], w, broadcast_pair(x + kPairBytes * t));
        }
    }
#pragma GCC unroll 4
    for (int g = 0; g < kGroups; ++g)
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) _mm512_storeu_ps(sums + g * tile.sums_stride + t * 16, sum[g][t]);
}

template <int T>
SLIPSTREAM_AVX512_BF16 void multiply_pairs(const FloatTile& tile) {
    constexpr int kGroups = groups_of(T);
    int g = 0;
    for (; g + kGroups <= tile.n_groups; g += kGroups) multiply_groups<T, kGroups>(tile, g);
    for (; g < tile.n_groups; ++g) multiply_groups<T, 1>(tile, g);
}

/// The place in its row from which lane l of the v-th vector of a tile of T tokens comes: pair (16 v + l) / T of token
/// (16 v + l) % T.
template <int T>
struct TileLanes {
    alignas(64) std::array<std::array<std::int32_t, 16>, T> pair{};
    std::array<std::array<std::uint16_t, T>, T> of_token{};  // [v][t]: mask of the lanes that belong to token t

    constexpr TileLanes() {
        for (std::size_t at = 0; at < 16 * T; ++at) {
            pair[at / 16][at % 16] = static_cast<std::int32_t>(at / T);
            of_token[at / 16][at % T] |= static_cast<std::uint16_t>(1U << at % 16);
        }
    }
};

/// Rounds T tokens, x[T][k] with rows `row_stride_bytes` apart, to pairs of bfloat16, [ceil(k / 2)][T] at `tile`; past
/// an odd k the pair ends with 0. It converts 32 elements of each token at a time, then moves the pairs of all tokens
/// to their places, a vector at a time.
template <int T>
SLIPSTREAM_AVX512_BF16 void round_tile(const float* x, std::size_t row_stride_bytes, std::int64_t k, std::byte* tile) {
    static constexpr TileLanes<T> lanes;
    const auto row = [&](int t) {
        return reinterpret_cast<const float*>(reinterpret_cast<const std::byte*>(x) + t * row_stride_bytes);
    };
    std::int64_t i = 0;
    for (; i + 32 <= k; i += 32, tile += 64 * T) {
        __m512i words[T];
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t)
            words[t] = reinterpret_cast<__m512i>(
                _mm512_cvtne2ps_pbh(_mm512_loadu_ps(row(t) + i + 16), _mm512_loadu_ps(row(t) + i)));
#pragma GCC unroll 8
        for (int v = 0; v < T; ++v) {
            const auto place = static_cast<std::size_t>(v);
            const __m512i pair = _mm512_load_si512(lanes.pair[place].data());
            __m512i out = words[0];
            if constexpr (T > 1) out = _mm512_permutexvar_epi32(pair, out);
#pragma GCC unroll 8
            for (int t = 1; t < T; ++t)
                out = _mm512_mask_permutexvar_epi32(out, lanes.of_token[place][t], pair, words[t]);
            _mm512_storeu_si512(tile + 64 * v, out);
        }
    }
    auto* out = reinterpret_cast<std::uint32_t*>(tile);
    for (; i < k; i += 2) {
        for (int t = 0; t < T; ++t) {
            const std::uint32_t even = to_bfloat16(row(t)[i]).bits;
            const std::uint32_t odd = i + 1 < k ? to_bfloat16(row(t)[i + 1]).bits : 0U;
            *out++ = even | odd << 16;
        }
    }
}

using RoundTileFn = void (*)(const float* x, std::size_t row_stride_bytes, std::int64_t k, std::byte* tile);
template <std::size_t... i>
constexpr std::array<RoundTileFn, kTileTokens> round_tiles(std::index_sequence<i...>) {
    return {round_tile<static_cast<int>(i) + 1>...};
}

void round_pairs(const float* x, std::size_t row_stride_bytes, std::int64_t k, int n_tile, std::byte* tile) {
    static constexpr auto of_width = round_tiles(std::make_index_sequence<kTileTokens>());
    of_width[n_tile - 1](x, row_stride_bytes, k, tile);
}

template <std::size_t... i>
constexpr std::array<InterleavedForm::FloatFn, kMaxTileTokens> all_widths(std::index_sequence<i...>) {
    return {multiply_pairs<static_cast<int>(i) + 1>...};
}

InterleavedForm make_form() {
    InterleavedForm form = vnni::make_form<vnni::CodeGroups::Two>();
    form.round_pairs = round_pairs;
    form.pair_tile_tokens = kTileTokens;
    for (int t = 1; t <= kTileTokens; ++t) form.pair_groups[t - 1] = groups_of(t);
    form.pair_streams.most_tokens_of_one = kTileTokens;
    form.multiply_pairs = all_widths(std::make_index_sequence<kTileTokens>());
    return form;
}

}  // namespace

const InterleavedForm& interleaved_form_avx512_bf16() {
    static const InterleavedForm form = make_form();
    return form;
}

CpuScratch matmul_scratch_avx512_bf16(const WorkspaceShapes& shapes) {
    return matmul_scratch_interleaved(shapes, interleaved_form_avx512_bf16());
}

void matmul_avx512_bf16(ExecRef exec, const MatmulArgs& args) {
    matmul_interleaved(exec, args, interleaved_form_avx512_bf16());
}

}  // namespace slipstream::cpu
#endif
