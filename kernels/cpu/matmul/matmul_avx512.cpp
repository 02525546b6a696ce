// Inner kernels of matmul for AVX-512 (F, BW, VL, DQ): a register holds a row group of 16 rows. Only for float weights.
// Codes are multiplied by the AVX2 kernels: vpmaddubsw on two wide ports takes 3/4 of the time of three narrow ones at
// best, on machines that lower their clock for it, and every AVX-512 machine since 2019 has VNNI.

#if defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "kernels/cpu/matmul/activations.h"
#include "kernels/cpu/matmul/matmul_interleaved.h"
#include "kernels/cpu/matmul/packed_codes.h"
#include "kernels/cpu/target.h"

namespace slipstream::cpu {

namespace {

#define SLIPSTREAM_INLINE_AVX512 SLIPSTREAM_AVX512 __attribute__((always_inline)) static inline

/// Elements k (even) and k + 1 of 16 rows.
struct Pair {
    __m512 even;
    __m512 odd;
};

template <DType type>
// Bytes of two elements of 16 rows: from one step of two k to the next.
constexpr int kTwoBytes = type == DType::F32 ? 128 : 64;

template <DType type>
SLIPSTREAM_INLINE_AVX512 Pair load_pair(const std::byte* src) {
    if constexpr (type == DType::F32) {
        return {_mm512_loadu_ps(src), _mm512_loadu_ps(src + 64)};
    } else if constexpr (type == DType::F16) {
        return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(src))),
                _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(src + 32)))};
    } else {
        const __m512i words = _mm512_loadu_si512(src);
        return {_mm512_castsi512_ps(_mm512_slli_epi32(words, 16)),
                _mm512_castsi512_ps(_mm512_and_si512(words, _mm512_set1_epi32(static_cast<int>(0xffff0000U))))};
    }
}

/// Returns the last element of an odd K of 16 rows.
template <DType type>
SLIPSTREAM_INLINE_AVX512 __m512 load_last(const std::byte* src) {
    if constexpr (type == DType::F32) {
        return _mm512_loadu_ps(src);
    } else {
        const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(src));
        if constexpr (type == DType::F16) return _mm512_cvtph_ps(halves);
        return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
    }
}

/// Returns the number of row groups (16 rows each) whose sums of T = `t` tokens stay in registers, at most 24 sums,
/// beside weights, a broadcast and a mask. A loaded activation serves all of them.
constexpr int groups_of(int t) {
    return t <= 6 ? 4 : t <= 8 ? 3 : t <= 12 ? 2 : 1;
}

template <DType type, int T, int kGroups>
SLIPSTREAM_INLINE_AVX512 void multiply_groups(const FloatTile& tile, int first) {
    const std::byte* weights = tile.weights + first * tile.group_bytes;
    const std::byte* into_l1 = tile.ahead.into_l1 + first * tile.group_bytes;
    const std::byte* into_l2 = tile.ahead.into_l2 + first * tile.group_bytes;
    const std::int64_t group_bytes = tile.group_bytes;
    float* const sums = tile.sums + first * tile.sums_stride;
    __m512 sum[kGroups][T];
#pragma GCC unroll 4
    for (int g = 0; g < kGroups; ++g)
#pragma GCC unroll 16
        for (int t = 0; t < T; ++t)
            sum[g][t] = tile.from_zero ? _mm512_setzero_ps() : _mm512_loadu_ps(sums + g * tile.sums_stride + t * 16);
    const auto* x = reinterpret_cast<const float*>(tile.x);
    for (std::int64_t k = 0; k + 2 <= tile.k; k += 2, weights += kTwoBytes<type>, x += 2 * T) {
        Pair w[kGroups];
#pragma GCC unroll 4
        for (int g = 0; g < kGroups; ++g) {
            w[g] = load_pair<type>(weights + g * group_bytes);
#pragma GCC unroll 2
            for (int line = 0; line < kTwoBytes<type>; line += 64) {
                _mm_prefetch(into_l2 + g * group_bytes + line, _MM_HINT_T1);
                _mm_prefetch(into_l1 + g * group_bytes + line, _MM_HINT_T0);
            }
        }
        into_l1 += tile.ahead.step_bytes;
        into_l2 += tile.ahead.step_bytes;
#pragma GCC unroll 16
        for (int t = 0; t < T; ++t)
#pragma GCC unroll 4
            for (int g = 0; g < kGroups; ++g) sum[g][t] = _mm512_fmadd_ps(w[g].even, _mm512_set1_ps(x[t]), sum[g][t]);
#pragma GCC unroll 16
        for (int t = 0; t < T; ++t)
#pragma GCC unroll 4
            for (int g = 0; g < kGroups; ++g)
                sum[g][t] = _mm512_fmadd_ps(w[g].odd, _mm512_set1_ps(x[T + t]), sum[g][t]);
    }
    if (tile.k % 2 != 0) {
#pragma GCC unroll 4
        for (int g = 0; g < kGroups; ++g) {
            const __m512 w = load_last<type>(weights + g * group_bytes);
#pragma GCC unroll 16
            for (int t = 0; t < T; ++t) sum[g][t] = _mm512_fmadd_ps(w, _mm512_set1_ps(x[t]), sum[g][t]);
        }
    }
#pragma GCC unroll 4
    for (int g = 0; g < kGroups; ++g)
#pragma GCC unroll 16
        for (int t = 0; t < T; ++t) _mm512_storeu_ps(sums + g * tile.sums_stride + t * 16, sum[g][t]);
}

template <DType type, int T>
SLIPSTREAM_AVX512 void multiply_floats(const FloatTile& tile) {
    constexpr int kGroups = groups_of(T);
    int g = 0;
    for (; g + kGroups <= tile.n_groups; g += kGroups) multiply_groups<type, T, kGroups>(tile, g);
    if constexpr (kGroups > 1)
        for (; g < tile.n_groups; ++g) multiply_groups<type, T, 1>(tile, g);
}

/// Quantises activations as quantize_token() (activations.h) does, with the same operations, a block in two registers.
/// kRun: activations that share a scale, 32 or 256.
template <int kRun>
SLIPSTREAM_AVX512 void quantize_runs(const float* x, std::int64_t k, int t, int n_tile, const CodeTraits& traits,
                                     std::byte* tile) {
    const __m512i magnitude_bits = _mm512_set1_epi32(0x7fffffff);
    const __m512 round = _mm512_set1_ps(0x1.8p23F);
    for (const float* const end = x + k; x < end;) {
        __m512i largest = _mm512_setzero_si512();
#pragma GCC unroll 16
        for (int i = 0; i < kRun; i += 16)
            largest = _mm512_max_epu32(largest,
                                       _mm512_and_si512(_mm512_castps_si512(_mm512_loadu_ps(x + i)), magnitude_bits));
        const float d = activation_step(_mm512_reduce_max_epu32(largest));
        const __m512 inverse = _mm512_set1_ps(d == 0.0F ? 0.0F : 1.0F / d);
        std::int32_t sum_before = 0;
        for (int block = 0; block < kRun / 32; ++block, x += 32, tile += kBlockBytesPerToken * n_tile) {
            const __m512 low = _mm512_mul_ps(_mm512_loadu_ps(x), inverse);
            const __m512 high = _mm512_mul_ps(_mm512_loadu_ps(x + 16), inverse);
            const __m128i q_low = _mm512_cvtepi32_epi8(_mm512_castps_si512(_mm512_add_ps(low, round)));
            const __m128i q_high = _mm512_cvtepi32_epi8(_mm512_castps_si512(_mm512_add_ps(high, round)));
            const __m256i q = _mm256_set_m128i(q_high, q_low);
            __m256i sums = _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), q), _mm256_set1_epi16(1));
            sums = _mm256_hadd_epi32(sums, sums);
            sums = _mm256_hadd_epi32(sums, sums);
            const std::int32_t halves[2] = {_mm256_cvtsi256_si32(sums), _mm256_extract_epi32(sums, 4)};
            alignas(32) std::uint32_t q_words[8];
            _mm256_store_si256(reinterpret_cast<__m256i*>(q_words), q);
            auto* words = reinterpret_cast<std::uint32_t*>(tile) + t;
#pragma GCC unroll 8
            for (int g = 0; g < 8; ++g) words[g * n_tile] = q_words[g];
            put_block_sums(traits, halves, sum_before, block % 2 != 0, d, n_tile, words);
            sum_before = halves[0] + halves[1];
        }
    }
}

SLIPSTREAM_AVX512 void quantize(const float* x, std::int64_t k, int t, int n_tile, const CodeTraits& traits,
                                std::byte* tile) {
    if (traits.activation_run == 32) {
        quantize_runs<32>(x, k, t, n_tile, traits, tile);
    } else {
        quantize_runs<256>(x, k, t, n_tile, traits, tile);
    }
}

template <DType type>
SLIPSTREAM_AVX512 void unpack(const std::byte* src, std::size_t, int n_sub, UnpackedChunk& out) {
    unpack_packed<type>(src, n_sub, out);
}

SLIPSTREAM_AVX512 void finish(const FinishTile& tile) {
    for (std::int64_t t = 0; t < tile.n_tokens; ++t) {
        auto* const y = reinterpret_cast<float*>(tile.y + t * tile.y_stride_bytes);
        const float* sums = tile.sums + 16 * t;
        for (std::int64_t row = 0; row < tile.n_rows; row += 16, sums += tile.sums_stride) {
            const auto mask = static_cast<__mmask16>(tile.n_rows - row >= 16 ? 0xffff : (1 << (tile.n_rows - row)) - 1);
            __m512 result = _mm512_loadu_ps(sums);
            if (tile.bias != nullptr) result = _mm512_add_ps(result, _mm512_maskz_loadu_ps(mask, tile.bias + row));
            if (tile.store == MatmulStore::Add) result = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, y + row), result);
            _mm512_mask_storeu_ps(y + row, mask, result);
        }
    }
}

template <DType type, std::size_t... i>
constexpr std::array<InterleavedForm::FloatFn, kMaxTileTokens> all_widths(std::index_sequence<i...>) {
    return {multiply_floats<type, static_cast<int>(i) + 1>...};
}
template <DType type>
constexpr auto kMultiplyFloats = all_widths<type>(std::make_index_sequence<kMaxTileTokens>());

InterleavedForm make_form() {
    InterleavedForm form = interleaved_form_avx2();
    form.float_tile_tokens = kMaxTileTokens;
    for (int t = 1; t <= kMaxTileTokens; ++t) form.float_groups[t - 1] = std::max(groups_of(t), 2);
    form.multiply_floats = {kMultiplyFloats<DType::F32>, kMultiplyFloats<DType::F16>, kMultiplyFloats<DType::BF16>};
    form.unpack = {nullptr,
                   nullptr,
                   nullptr,
                   unpack<DType::Q8_0>,
                   unpack<DType::Q4_0>,
                   unpack<DType::Q4_1>,
                   unpack<DType::Q5_0>,
                   unpack<DType::Q5_1>,
                   unpack<DType::Q3_K>,
                   unpack<DType::Q4_K>,
                   unpack<DType::Q5_K>,
                   unpack<DType::Q6_K>,
                   unpack<DType::IQ4_NL>,
                   unpack<DType::MXFP4>,
                   unpack<DType::IQ4_XS>,
                   unpack<DType::Q2_K>};
    form.quantize = quantize;
    form.finish = finish;
    return form;
}

}  // namespace

const InterleavedForm& interleaved_form_avx512() {
    static const InterleavedForm form = make_form();
    return form;
}

CpuScratch matmul_scratch_avx512(const WorkspaceShapes& shapes) {
    return matmul_scratch_interleaved(shapes, interleaved_form_avx512());
}

void matmul_avx512(ExecRef exec, const MatmulArgs& args) {
    matmul_interleaved(exec, args, interleaved_form_avx512());
}

}  // namespace slipstream::cpu
#endif
