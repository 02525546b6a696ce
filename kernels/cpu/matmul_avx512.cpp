// Inner kernels of matmul for AVX-512 (F, BW, VL, DQ): an output's 32 partial sums are two registers.

#if defined(__x86_64__)
#if defined(__GNUC__) && !defined(__clang__)
// GCC 12's own header passes a deliberately undefined register and then warns of it (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#include <immintrin.h>

#include <cstring>

#include "kernels/cpu/decode_codes.h"
#include "kernels/cpu/matmul_tiled.h"

namespace slipstream::cpu {

namespace {

#define SLIPSTREAM_INLINE_AVX512 SLIPSTREAM_AVX512 __attribute__((always_inline)) static inline

/// 32 consecutive weights.
struct Group {
    __m512 low;
    __m512 high;
};

/// Decoder<type>: kUnit weights of kUnitBytes share what open() reads; group(unit, g) decodes 32 of them.
template <DType type>
struct Decoder {
    using Codec = BlockCodec<type>;
    using Unit = typename Codec::Unit;
    SLIPSTREAM_INLINE_AVX512 Unit open(const std::byte* block) { return Codec::open(block); }
    SLIPSTREAM_INLINE_AVX512 Group group(const Unit& unit, int g) {
        const __m256i codes = Codec::codes(unit, g);
        const __m512 low = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm256_castsi256_si128(codes)));
        const __m512 high = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm256_extracti128_si256(codes, 1)));
        if constexpr (Codec::kScaleRun == 16) {
            return {_mm512_mul_ps(_mm512_set1_ps(unit.scale[2 * g]), low),
                    _mm512_mul_ps(_mm512_set1_ps(unit.scale[2 * g + 1]), high)};
        } else if constexpr (Codec::kHasOffset) {
            const __m512 scale = _mm512_set1_ps(unit.scale[g]);
            const __m512 offset = _mm512_set1_ps(unit.offset[g]);
            return {_mm512_fmadd_ps(scale, low, offset), _mm512_fmadd_ps(scale, high, offset)};
        } else {
            const __m512 scale = _mm512_set1_ps(unit.scale[g]);
            return {_mm512_mul_ps(scale, low), _mm512_mul_ps(scale, high)};
        }
    }
};

struct PlainUnit {
    const std::byte* data;
};

template <>
struct Decoder<DType::F32> {
    using Unit = PlainUnit;
    SLIPSTREAM_INLINE_AVX512 Unit open(const std::byte* data) { return {data}; }
    SLIPSTREAM_INLINE_AVX512 Group group(const Unit& unit, int) {
        return {_mm512_loadu_ps(unit.data), _mm512_loadu_ps(unit.data + 64)};
    }
};

template <>
struct Decoder<DType::F16> {
    using Unit = PlainUnit;
    SLIPSTREAM_INLINE_AVX512 Unit open(const std::byte* data) { return {data}; }
    SLIPSTREAM_INLINE_AVX512 Group group(const Unit& unit, int) {
        return {_mm512_cvtph_ps(load_32(unit.data)), _mm512_cvtph_ps(load_32(unit.data + 32))};
    }
};

template <>
struct Decoder<DType::BF16> {
    using Unit = PlainUnit;
    SLIPSTREAM_INLINE_AVX512 Unit open(const std::byte* data) { return {data}; }
    SLIPSTREAM_INLINE_AVX512 __m512 widen(__m256i bits) {
        return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
    }
    SLIPSTREAM_INLINE_AVX512 Group group(const Unit& unit, int) {
        return {widen(load_32(unit.data)), widen(load_32(unit.data + 32))};
    }
};

template <int T>
SLIPSTREAM_INLINE_AVX512 void accumulate(const Group& w, const float* x, std::int64_t x_stride, __m512 (&sums)[T][2]) {
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
        sums[t][0] = _mm512_fmadd_ps(w.low, _mm512_loadu_ps(x + t * x_stride), sums[t][0]);
        sums[t][1] = _mm512_fmadd_ps(w.high, _mm512_loadu_ps(x + t * x_stride + 16), sums[t][1]);
    }
}

SLIPSTREAM_INLINE_AVX512 float halve(__m512 low, __m512 high) {
    const __m512 v16 = _mm512_add_ps(low, high);
    const __m256 v8 = _mm256_add_ps(_mm512_castps512_ps256(v16), _mm512_extractf32x8_ps(v16, 1));
    const __m128 v4 = _mm_add_ps(_mm256_castps256_ps128(v8), _mm256_extractf128_ps(v8, 1));
    const __m128 v2 = _mm_add_ps(v4, _mm_movehl_ps(v4, v4));
    return _mm_cvtss_f32(_mm_add_ss(v2, _mm_movehdup_ps(v2)));
}

/// Elements behind the last whole step, as one step with zeros behind.
template <DType type>
SLIPSTREAM_INLINE_AVX512 Group decode_tail(const std::byte* src, std::int64_t count) {
    alignas(64) std::byte padded[kUnitBytes<type>] = {};
    std::memcpy(padded, src, static_cast<std::size_t>(count * kUnitBytes<type> / kLanes));
    return Decoder<type>::group(Decoder<type>::open(padded), 0);
}

template <DType type, int T>
SLIPSTREAM_AVX512 void fused(const FusedTile& tile) {
    using D = Decoder<type>;
    constexpr int kGroups = static_cast<int>(kUnit<type>) / kLanes;
    const std::int64_t n_units = tile.k / kUnit<type>;
    __m512 sums[kTileRows][T][2];
#pragma GCC unroll 4
    for (auto& row : sums) {
#pragma GCC unroll 8
        for (auto& token : row) token[0] = token[1] = _mm512_setzero_ps();
    }
    const float* x = tile.x;
    for (std::int64_t u = 0; u < n_units; ++u, x += kUnit<type>) {
        typename D::Unit units[kTileRows];
#pragma GCC unroll 4
        for (std::size_t r = 0; r < kTileRows; ++r) {
            const std::byte* at = tile.rows[r] + u * kUnitBytes<type>;
            units[r] = D::open(at);
            for (std::int64_t line = 0; line < kUnitBytes<type>; line += 64)
                _mm_prefetch(at + tile.prefetch_bytes + line, _MM_HINT_T0);
        }
#pragma GCC unroll 8
        for (int g = 0; g < kGroups; ++g) {
#pragma GCC unroll 4
            for (int r = 0; r < kTileRows; ++r)
                accumulate<T>(D::group(units[r], g), x + g * kLanes, tile.x_stride, sums[r]);
        }
    }
    const std::int64_t count = tile.k % kUnit<type>;
    if (kIsPlain<type> && count != 0) {
        alignas(64) float x_tail[T][kLanes] = {};
        for (int t = 0; t < T; ++t)
            std::memcpy(x_tail[t], x + t * tile.x_stride, static_cast<std::size_t>(count) * sizeof(float));
#pragma GCC unroll 4
        for (int r = 0; r < kTileRows; ++r) {
            const std::byte* at = tile.rows[static_cast<std::size_t>(r)] + n_units * kUnitBytes<type>;
            accumulate<T>(decode_tail<type>(at, count), x_tail[0], kLanes, sums[r]);
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) tile.sums[r * T + t] = halve(sums[r][t][0], sums[r][t][1]);
    }
}

template <DType type>
SLIPSTREAM_AVX512 void decode_row(const std::byte* row, float* dst, std::int64_t k) {
    using D = Decoder<type>;
    std::int64_t i = 0;
    for (; i + kUnit<type> <= k; i += kUnit<type>, row += kUnitBytes<type>) {
        for (std::int64_t line = 0; line < kUnitBytes<type>; line += 64)
            _mm_prefetch(row + kDecodePrefetchBytes + line, _MM_HINT_T0);
        const typename D::Unit unit = D::open(row);
#pragma GCC unroll 8
        for (int g = 0; g < static_cast<int>(kUnit<type>) / kLanes; ++g) {
            const Group w = D::group(unit, g);
            _mm512_storeu_ps(dst + i + g * kLanes, w.low);
            _mm512_storeu_ps(dst + i + g * kLanes + 16, w.high);
        }
    }
    if (kIsPlain<type> && i < k) {
        const Group w = decode_tail<type>(row, k - i);
        _mm512_storeu_ps(dst + i, w.low);
        _mm512_storeu_ps(dst + i + 16, w.high);
    }
}

/// Two passes over the chunk, one for each half of the partial sums: 4 x T sums, T activations and a weight in
/// registers.
template <int T>
SLIPSTREAM_AVX512 void panel(const PanelTile& tile) {
    for (int half = 0; half < 2; ++half) {
        float* lanes = tile.lanes + 16 * half;
        __m512 sums[T][kTileRows];
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) {
#pragma GCC unroll 4
            for (int r = 0; r < kTileRows; ++r) sums[t][r] = _mm512_loadu_ps(lanes + (t * kTileRows + r) * kLanes);
        }
        const float* w = tile.weights + 16 * half;
        const float* x = tile.x + 16 * half;
        for (std::int64_t step = 0; step < tile.n_steps; ++step, w += kLanes, x += kLanes) {
            __m512 weights[kTileRows];
#pragma GCC unroll 4
            for (int r = 0; r < kTileRows; ++r) weights[r] = _mm512_loadu_ps(w + r * tile.weights_stride);
#pragma GCC unroll 8
            for (int t = 0; t < T; ++t) {
                const __m512 activations = _mm512_loadu_ps(x + t * tile.x_stride);
#pragma GCC unroll 4
                for (int r = 0; r < kTileRows; ++r) sums[t][r] = _mm512_fmadd_ps(weights[r], activations, sums[t][r]);
            }
        }
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) {
#pragma GCC unroll 4
            for (int r = 0; r < kTileRows; ++r) _mm512_storeu_ps(lanes + (t * kTileRows + r) * kLanes, sums[t][r]);
        }
    }
}

SLIPSTREAM_AVX512 void reduce(const float* lanes, float* sums, std::int64_t n_outputs) {
    for (std::int64_t i = 0; i < n_outputs; ++i)
        sums[i] = halve(_mm512_loadu_ps(lanes + i * kLanes), _mm512_loadu_ps(lanes + i * kLanes + 16));
}

template <DType type>
constexpr std::array<TiledForm::FusedFn, kMaxFusedTokens> kFused{fused<type, 1>, fused<type, 2>, fused<type, 3>};

// In the order of DType.
constexpr TiledForm kForm{
    .max_fused_tokens = 3,
    .max_panel_tokens = 6,
    .fused = {kFused<DType::F32>, kFused<DType::F16>, kFused<DType::BF16>, kFused<DType::Q8_0>, kFused<DType::Q4_0>,
              kFused<DType::Q4_1>, kFused<DType::Q5_0>, kFused<DType::Q5_1>, kFused<DType::Q3_K>, kFused<DType::Q4_K>,
              kFused<DType::Q5_K>, kFused<DType::Q6_K>},
    .panel = {panel<1>, panel<2>, panel<3>, panel<4>, panel<5>, panel<6>},
    .decode_row = {decode_row<DType::F32>, decode_row<DType::F16>, decode_row<DType::BF16>, decode_row<DType::Q8_0>,
                   decode_row<DType::Q4_0>, decode_row<DType::Q4_1>, decode_row<DType::Q5_0>, decode_row<DType::Q5_1>,
                   decode_row<DType::Q3_K>, decode_row<DType::Q4_K>, decode_row<DType::Q5_K>, decode_row<DType::Q6_K>},
    .reduce = reduce,
};

}  // namespace

const TiledForm& tiled_form_avx512() {
    return kForm;
}

void matmul_avx512(ExecRef exec, const MatmulArgs& args) {
    matmul_tiled(exec, args, kForm);
}

}  // namespace slipstream::cpu
#endif
