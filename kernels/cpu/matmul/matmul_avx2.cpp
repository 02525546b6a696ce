// Inner kernels of matmul for AVX2 with FMA and F16C. A register holds 8 of a row group's 16 rows, so a row group is
// processed in two halves. Kernels for codes: matmul_avx2_codes.h.

#if defined(__x86_64__)
#include <immintrin.h>

#include <cstring>

#include "kernels/cpu/matmul/activations.h"
#include "kernels/cpu/matmul/matmul_avx2_codes.h"
#include "kernels/cpu/matmul/matmul_few.h"
#include "kernels/cpu/matmul/matmul_interleaved.h"
#include "kernels/cpu/target.h"

namespace slipstream::cpu {

namespace {

using namespace avx2;

/// Elements k (even) and k + 1 of 8 rows.
struct Pair {
    __m256 even;
    __m256 odd;
};

SLIPSTREAM_INLINE_AVX2 __m128i load_16(const std::byte* src) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(src));
}
SLIPSTREAM_INLINE_AVX2 __m256 load_floats(const std::byte* src) {
    return _mm256_castsi256_ps(load_32(src));
}

template <DType type>
// Bytes of two elements of 16 rows: from one step of two k to the next.
constexpr int kPairBytes = type == DType::F32 ? 128 : 64;

/// Returns elements k and k + 1 of the 8 rows of half `half` (0 or 1) of a row group; `src` is element k of its first
/// row.
template <DType type>
SLIPSTREAM_INLINE_AVX2 Pair load_pair(const std::byte* src, int half) {
    if constexpr (type == DType::F32) {
        return {load_floats(src + 32 * half), load_floats(src + 64 + 32 * half)};
    } else if constexpr (type == DType::F16) {
        return {_mm256_cvtph_ps(load_16(src + 16 * half)), _mm256_cvtph_ps(load_16(src + 32 + 16 * half))};
    } else {
        const __m256i words = load_32(src + 32 * half);
        return {_mm256_castsi256_ps(_mm256_slli_epi32(words, 16)),
                _mm256_castsi256_ps(_mm256_and_si256(words, _mm256_set1_epi32(static_cast<int>(0xffff0000U))))};
    }
}

/// Returns the last element of an odd K, of the 8 rows of half `half` of a row group.
template <DType type>
SLIPSTREAM_INLINE_AVX2 __m256 load_last(const std::byte* src, int half) {
    if constexpr (type == DType::F32) {
        return load_floats(src + 32 * half);
    } else if constexpr (type == DType::F16) {
        return _mm256_cvtph_ps(load_16(src + 16 * half));
    } else {
        return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_16(src + 16 * half)), 16));
    }
}

/// Returns the number of row groups (16 rows each) whose sums of T = `t` tokens are kept in registers, both halves of
/// each, 12 registers at most. So a loaded activation serves all of them, and one token has enough independent chains
/// to hide their latency.
constexpr int groups_of(int t) {
    return t <= 2 ? 2 : 1;
}

template <DType type, int T, int kGroups>
SLIPSTREAM_INLINE_AVX2 void multiply_groups(const FloatTile& tile, int first) {
    constexpr int kHalves = 2 * kGroups;
    const std::int64_t group_bytes = tile.group_bytes;
    const std::byte* weights = tile.weights + first * group_bytes;
    const std::byte* into_l1 = tile.ahead.into_l1 + first * group_bytes;
    const std::byte* into_l2 = tile.ahead.into_l2 + first * group_bytes;
    float* const sums = tile.sums + first * tile.sums_stride;
    __m256 sum[kHalves][T];
#pragma GCC unroll 4
    for (int h = 0; h < kHalves; ++h)
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t)
            sum[h][t] = tile.from_zero ? _mm256_setzero_ps()
                                       : _mm256_loadu_ps(sums + h / 2 * tile.sums_stride + t * 16 + h % 2 * kHalfRows);
    const auto* x = reinterpret_cast<const float*>(tile.x);
    for (std::int64_t k = 0; k + 2 <= tile.k; k += 2, weights += kPairBytes<type>, x += 2 * T) {
        Pair w[kHalves];
#pragma GCC unroll 4
        for (int h = 0; h < kHalves; ++h) w[h] = load_pair<type>(weights + h / 2 * group_bytes, h % 2);
#pragma GCC unroll 2
        for (int g = 0; g < kGroups; ++g)
#pragma GCC unroll 2
            for (int line = 0; line < kPairBytes<type>; line += 64) {
                _mm_prefetch(into_l2 + g * group_bytes + line, _MM_HINT_T1);
                _mm_prefetch(into_l1 + g * group_bytes + line, _MM_HINT_T0);
            }
        into_l1 += tile.ahead.step_bytes;
        into_l2 += tile.ahead.step_bytes;
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t)
#pragma GCC unroll 4
            for (int h = 0; h < kHalves; ++h)
                sum[h][t] = _mm256_fmadd_ps(w[h].even, _mm256_broadcast_ss(x + t), sum[h][t]);
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t)
#pragma GCC unroll 4
            for (int h = 0; h < kHalves; ++h)
                sum[h][t] = _mm256_fmadd_ps(w[h].odd, _mm256_broadcast_ss(x + T + t), sum[h][t]);
    }
    if (tile.k % 2 != 0) {
#pragma GCC unroll 4
        for (int h = 0; h < kHalves; ++h) {
            const __m256 w = load_last<type>(weights + h / 2 * group_bytes, h % 2);
#pragma GCC unroll 8
            for (int t = 0; t < T; ++t) sum[h][t] = _mm256_fmadd_ps(w, _mm256_broadcast_ss(x + t), sum[h][t]);
        }
    }
#pragma GCC unroll 4
    for (int h = 0; h < kHalves; ++h)
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t)
            _mm256_storeu_ps(sums + h / 2 * tile.sums_stride + t * 16 + h % 2 * kHalfRows, sum[h][t]);
}

template <DType type, int T>
SLIPSTREAM_AVX2 void multiply_floats(const FloatTile& tile) {
    constexpr int kGroups = groups_of(T);
    int g = 0;
    for (; g + kGroups <= tile.n_groups; g += kGroups) multiply_groups<type, T, kGroups>(tile, g);
    if constexpr (kGroups > 1)
        for (; g < tile.n_groups; ++g) multiply_groups<type, T, 1>(tile, g);
}

SLIPSTREAM_AVX2 void quantize(const float* __restrict x, std::int64_t k, int t, int n_tile, const CodeTraits& traits,
                              std::byte* __restrict tile) {
    quantize_token(x, k, t, n_tile, traits, tile);
}

template <DType type>
SLIPSTREAM_AVX2 void unpack(const std::byte* __restrict src, std::size_t block_bytes, int n_sub,
                            UnpackedChunk& __restrict out) {
    unpack_chunk<type>(src, block_bytes, n_sub, out);
    if constexpr (has_code_table(type)) {
        auto* const codes = reinterpret_cast<std::byte*>(out.codes);
        for (std::size_t at = 0; at < n_sub * sizeof(out.codes[0]); at += 32)
            _mm256_store_si256(reinterpret_cast<__m256i*>(codes + at),
                               looked_up(kCodeTable<type>, load_32(codes + at)));
    }
}

template <DType type>
constexpr std::array<InterleavedForm::FloatFn, kMaxTileTokens> kMultiplyFloats{
    multiply_floats<type, 1>, multiply_floats<type, 2>, multiply_floats<type, 3>,
    multiply_floats<type, 4>, multiply_floats<type, 5>, multiply_floats<type, 6>};
template <DType type>
constexpr std::array<InterleavedForm::CodeFn, kMaxTileTokens> kMultiplyCodes{
    multiply_codes<type, 1>, multiply_codes<type, 2>, multiply_codes<type, 3>, multiply_codes<type, 4>};

/// Stores eight outputs, or only the first `n` if `n` is less. `sums`, `bias` (null: none) and `y` point at those of
/// the first output.
SLIPSTREAM_INLINE_AVX2 void finish_half(const FinishTile& tile, const float* sums, const float* bias, float* y,
                                        std::int64_t n) {
    alignas(32) float padded[2][kHalfRows] = {};
    const bool whole = n >= kHalfRows;
    if (!whole) {
        const auto bytes = n * sizeof(float);
        if (bias != nullptr) std::memcpy(padded[0], bias, bytes);
        if (tile.store == MatmulStore::Add) std::memcpy(padded[1], y, bytes);
    }
    __m256 result = _mm256_loadu_ps(sums);
    if (bias != nullptr) result = _mm256_add_ps(result, _mm256_loadu_ps(whole ? bias : padded[0]));
    if (tile.store == MatmulStore::Add) result = _mm256_add_ps(_mm256_loadu_ps(whole ? y : padded[1]), result);
    _mm256_storeu_ps(whole ? y : padded[1], result);
    if (!whole) std::memcpy(y, padded[1], n * sizeof(float));
}

SLIPSTREAM_AVX2 void finish(const FinishTile& tile) {
    for (std::int64_t t = 0; t < tile.n_tokens; ++t) {
        auto* const y = reinterpret_cast<float*>(tile.y + t * tile.y_stride_bytes);
        for (std::int64_t row = 0; row < tile.n_rows; row += kHalfRows)
            finish_half(tile, tile.sums + row / 16 * tile.sums_stride + 16 * t + row % 16,
                        tile.bias == nullptr ? nullptr : tile.bias + row, y + row, tile.n_rows - row);
    }
}

// The kernels for any number of tokens. Arrays by type are in the order of DType.
constexpr InterleavedForm kManyTokens{
    .float_tile_tokens = 6,
    .code_tile_tokens = 4,
    .float_groups = {groups_of(1), groups_of(2), groups_of(3), groups_of(4), groups_of(5), groups_of(6)},
    .code_groups = 1,
    .multiply_floats = {kMultiplyFloats<DType::F32>, kMultiplyFloats<DType::F16>, kMultiplyFloats<DType::BF16>},
    .multiply_codes = {{{},
                        {},
                        {},
                        kMultiplyCodes<DType::Q8_0>,
                        kMultiplyCodes<DType::Q4_0>,
                        kMultiplyCodes<DType::Q4_1>,
                        kMultiplyCodes<DType::Q5_0>,
                        kMultiplyCodes<DType::Q5_1>,
                        kMultiplyCodes<DType::Q3_K>,
                        kMultiplyCodes<DType::Q4_K>,
                        kMultiplyCodes<DType::Q5_K>,
                        kMultiplyCodes<DType::Q6_K>,
                        kMultiplyCodes<DType::Q8_0>,  // IQ4_NL by the kernels of Q8_0: codes of both have 8 bits
                        kMultiplyCodes<DType::Q5_0>,  // MXFP4 by those of Q5_0: unpacked codes have 5 bits
                        kMultiplyCodes<DType::IQ4_XS>,
                        kMultiplyCodes<DType::Q2_K>}},
    .unpack = {nullptr, nullptr, nullptr, unpack<DType::Q8_0>, unpack<DType::Q4_0>, unpack<DType::Q4_1>,
               unpack<DType::Q5_0>, unpack<DType::Q5_1>, unpack<DType::Q3_K>, unpack<DType::Q4_K>, unpack<DType::Q5_K>,
               unpack<DType::Q6_K>, unpack<DType::IQ4_NL>, unpack<DType::MXFP4>, unpack<DType::IQ4_XS>,
               unpack<DType::Q2_K>},
    .quantize = quantize,
    .finish = finish,
};

InterleavedForm make_form() {
    InterleavedForm form = kManyTokens;
    set_few_avx2_blocks(form.multiply_few);
    set_few_avx2_k(form.multiply_few);
    return form;
}

}  // namespace

const InterleavedForm& interleaved_form_avx2() {
    static const InterleavedForm form = make_form();
    return form;
}

CpuScratch matmul_scratch_avx2(const WorkspaceShapes& shapes) {
    return matmul_scratch_interleaved(shapes, interleaved_form_avx2());
}

void matmul_avx2(ExecRef exec, const MatmulArgs& args) {
    matmul_interleaved(exec, args, interleaved_form_avx2());
}

}  // namespace slipstream::cpu
#endif
