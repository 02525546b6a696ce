// Inner kernels of matmul for AVX2 with FMA and F16C: an output's 32 partial sums are four registers. The same chains
// and the same halving as in matmul_avx512.cpp, so the same bits.

#if defined(__x86_64__)
#include <immintrin.h>

#include <cstring>

#include "kernels/cpu/decode_codes.h"
#include "kernels/cpu/matmul_tiled.h"

namespace slipstream::cpu {

namespace {

constexpr int kParts = kLanes / 8;  // registers of a group

/// 32 consecutive weights.
struct Group {
    __m256 part[kParts];
};

SLIPSTREAM_INLINE_AVX2 __m128i load_16(const std::byte* src) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(src));
}

/// Decoder<type>: kUnit weights of kUnitBytes share what open() reads; group(unit, g) decodes 32 of them.
template <DType type>
struct Decoder {
    using Codec = BlockCodec<type>;
    using Unit = typename Codec::Unit;
    SLIPSTREAM_INLINE_AVX2 Unit open(const std::byte* block) { return Codec::open(block); }
    SLIPSTREAM_INLINE_AVX2 Group group(const Unit& unit, int g) {
        const __m256i codes = Codec::codes(unit, g);
        const __m128i halves[2] = {_mm256_castsi256_si128(codes), _mm256_extracti128_si256(codes, 1)};
        Group w;
#pragma GCC unroll 4
        for (int i = 0; i < kParts; ++i) {
            const __m128i eight = i % 2 == 0 ? halves[i / 2] : _mm_unpackhi_epi64(halves[i / 2], halves[i / 2]);
            const __m256 code = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(eight));
            const __m256 scale = _mm256_set1_ps(unit.scale[Codec::kScaleRun == 16 ? 2 * g + i / 2 : g]);
            if constexpr (Codec::kHasOffset) {
                w.part[i] = _mm256_fmadd_ps(scale, code, _mm256_set1_ps(unit.offset[g]));
            } else {
                w.part[i] = _mm256_mul_ps(scale, code);
            }
        }
        return w;
    }
};

struct PlainUnit {
    const std::byte* data;
};

template <>
struct Decoder<DType::F32> {
    using Unit = PlainUnit;
    SLIPSTREAM_INLINE_AVX2 Unit open(const std::byte* data) { return {data}; }
    SLIPSTREAM_INLINE_AVX2 Group group(const Unit& unit, int) {
        Group w;
#pragma GCC unroll 4
        for (int i = 0; i < kParts; ++i) w.part[i] = _mm256_castsi256_ps(load_32(unit.data + 32 * i));
        return w;
    }
};

template <>
struct Decoder<DType::F16> {
    using Unit = PlainUnit;
    SLIPSTREAM_INLINE_AVX2 Unit open(const std::byte* data) { return {data}; }
    SLIPSTREAM_INLINE_AVX2 Group group(const Unit& unit, int) {
        Group w;
#pragma GCC unroll 4
        for (int i = 0; i < kParts; ++i) w.part[i] = _mm256_cvtph_ps(load_16(unit.data + 16 * i));
        return w;
    }
};

template <>
struct Decoder<DType::BF16> {
    using Unit = PlainUnit;
    SLIPSTREAM_INLINE_AVX2 Unit open(const std::byte* data) { return {data}; }
    SLIPSTREAM_INLINE_AVX2 Group group(const Unit& unit, int) {
        Group w;
#pragma GCC unroll 4
        for (int i = 0; i < kParts; ++i) {
            const __m256i wide = _mm256_cvtepu16_epi32(load_16(unit.data + 16 * i));
            w.part[i] = _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
        }
        return w;
    }
};

SLIPSTREAM_INLINE_AVX2 void accumulate(const Group& w, const float* x, __m256 (&sums)[kParts]) {
#pragma GCC unroll 4
    for (int i = 0; i < kParts; ++i) sums[i] = _mm256_fmadd_ps(w.part[i], _mm256_loadu_ps(x + 8 * i), sums[i]);
}

SLIPSTREAM_INLINE_AVX2 float halve(const __m256 (&sums)[kParts]) {
    const __m256 v8 = _mm256_add_ps(_mm256_add_ps(sums[0], sums[2]), _mm256_add_ps(sums[1], sums[3]));
    const __m128 v4 = _mm_add_ps(_mm256_castps256_ps128(v8), _mm256_extractf128_ps(v8, 1));
    const __m128 v2 = _mm_add_ps(v4, _mm_movehl_ps(v4, v4));
    return _mm_cvtss_f32(_mm_add_ss(v2, _mm_movehdup_ps(v2)));
}

/// Elements behind the last whole step, as one step with zeros behind.
template <DType type>
SLIPSTREAM_INLINE_AVX2 Group decode_tail(const std::byte* src, std::int64_t count) {
    alignas(32) std::byte padded[kUnitBytes<type>] = {};
    std::memcpy(padded, src, static_cast<std::size_t>(count * kUnitBytes<type> / kLanes));
    return Decoder<type>::group(Decoder<type>::open(padded), 0);
}

/// One token: its sums for R rows of the tile from `first` on, 4 R registers.
template <DType type, int R>
SLIPSTREAM_AVX2 void fused_rows(const FusedTile& tile, int first) {
    using D = Decoder<type>;
    constexpr int kGroups = static_cast<int>(kUnit<type>) / kLanes;
    const std::int64_t n_units = tile.k / kUnit<type>;
    __m256 sums[R][kParts];
#pragma GCC unroll 4
    for (auto& row : sums) {
#pragma GCC unroll 4
        for (__m256& part : row) part = _mm256_setzero_ps();
    }
    const float* x = tile.x;
    for (std::int64_t u = 0; u < n_units; ++u, x += kUnit<type>) {
        typename D::Unit units[R];
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) {
            const std::byte* at = tile.rows[static_cast<std::size_t>(first + r)] + u * kUnitBytes<type>;
            units[r] = D::open(at);
            for (std::int64_t line = 0; line < kUnitBytes<type>; line += 64)
                _mm_prefetch(at + tile.prefetch_bytes + line, _MM_HINT_T0);
        }
#pragma GCC unroll 8
        for (int g = 0; g < kGroups; ++g) {
#pragma GCC unroll 4
            for (int r = 0; r < R; ++r) accumulate(D::group(units[r], g), x + g * kLanes, sums[r]);
        }
    }
    const std::int64_t count = tile.k % kUnit<type>;
    if (kIsPlain<type> && count != 0) {
        alignas(32) float x_tail[kLanes] = {};
        std::memcpy(x_tail, x, static_cast<std::size_t>(count) * sizeof(float));
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) {
            const std::byte* at = tile.rows[static_cast<std::size_t>(first + r)] + n_units * kUnitBytes<type>;
            accumulate(decode_tail<type>(at, count), x_tail, sums[r]);
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) tile.sums[first + r] = halve(sums[r]);
}

template <DType type>
SLIPSTREAM_AVX2 void fused(const FusedTile& tile) {
    for (int first = 0; first < kTileRows; first += 2) fused_rows<type, 2>(tile, first);
}

template <DType type>
SLIPSTREAM_AVX2 void decode_row(const std::byte* row, float* dst, std::int64_t k) {
    using D = Decoder<type>;
    std::int64_t i = 0;
    for (; i + kUnit<type> <= k; i += kUnit<type>, row += kUnitBytes<type>) {
        for (std::int64_t line = 0; line < kUnitBytes<type>; line += 64)
            _mm_prefetch(row + kDecodePrefetchBytes + line, _MM_HINT_T0);
        const typename D::Unit unit = D::open(row);
#pragma GCC unroll 8
        for (int g = 0; g < static_cast<int>(kUnit<type>) / kLanes; ++g) {
            const Group w = D::group(unit, g);
#pragma GCC unroll 4
            for (int part = 0; part < kParts; ++part) _mm256_storeu_ps(dst + i + g * kLanes + 8 * part, w.part[part]);
        }
    }
    if (kIsPlain<type> && i < k) {
        const Group w = decode_tail<type>(row, k - i);
#pragma GCC unroll 4
        for (int part = 0; part < kParts; ++part) _mm256_storeu_ps(dst + i + 8 * part, w.part[part]);
    }
}

/// Four passes over the chunk, one for each quarter of the partial sums: 4 x T sums, T activations and a weight in
/// registers (T = 3 fills the sixteen).
template <int T>
SLIPSTREAM_AVX2 void panel(const PanelTile& tile) {
    for (int part = 0; part < kParts; ++part) {
        float* lanes = tile.lanes + 8 * part;
        __m256 sums[T][kTileRows];
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) {
#pragma GCC unroll 4
            for (int r = 0; r < kTileRows; ++r) sums[t][r] = _mm256_loadu_ps(lanes + (t * kTileRows + r) * kLanes);
        }
        const float* w = tile.weights + 8 * part;
        const float* x = tile.x + 8 * part;
        for (std::int64_t step = 0; step < tile.n_steps; ++step, w += kLanes, x += kLanes) {
            __m256 activations[T];
#pragma GCC unroll 8
            for (int t = 0; t < T; ++t) activations[t] = _mm256_loadu_ps(x + t * tile.x_stride);
#pragma GCC unroll 4
            for (int r = 0; r < kTileRows; ++r) {
                const __m256 weights = _mm256_loadu_ps(w + r * tile.weights_stride);
#pragma GCC unroll 8
                for (int t = 0; t < T; ++t) sums[t][r] = _mm256_fmadd_ps(weights, activations[t], sums[t][r]);
            }
        }
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) {
#pragma GCC unroll 4
            for (int r = 0; r < kTileRows; ++r) _mm256_storeu_ps(lanes + (t * kTileRows + r) * kLanes, sums[t][r]);
        }
    }
}

SLIPSTREAM_AVX2 void reduce(const float* lanes, float* sums, std::int64_t n_outputs) {
    for (std::int64_t i = 0; i < n_outputs; ++i) {
        const float* four = lanes + i * kLanes;
        const __m256 parts[kParts] = {_mm256_loadu_ps(four), _mm256_loadu_ps(four + 8), _mm256_loadu_ps(four + 16),
                                      _mm256_loadu_ps(four + 24)};
        sums[i] = halve(parts);
    }
}

template <DType type>
constexpr std::array<TiledForm::FusedFn, kMaxFusedTokens> kFused{fused<type>, nullptr, nullptr};

// In the order of DType.
constexpr TiledForm kForm{
    .max_fused_tokens = 1,
    .max_panel_tokens = 3,
    .fused = {kFused<DType::F32>, kFused<DType::F16>, kFused<DType::BF16>, kFused<DType::Q8_0>, kFused<DType::Q4_0>,
              kFused<DType::Q4_1>, kFused<DType::Q5_0>, kFused<DType::Q5_1>, kFused<DType::Q3_K>, kFused<DType::Q4_K>,
              kFused<DType::Q5_K>, kFused<DType::Q6_K>},
    .panel = {panel<1>, panel<2>, panel<3>, nullptr, nullptr, nullptr},
    .decode_row = {decode_row<DType::F32>, decode_row<DType::F16>, decode_row<DType::BF16>, decode_row<DType::Q8_0>,
                   decode_row<DType::Q4_0>, decode_row<DType::Q4_1>, decode_row<DType::Q5_0>, decode_row<DType::Q5_1>,
                   decode_row<DType::Q3_K>, decode_row<DType::Q4_K>, decode_row<DType::Q5_K>, decode_row<DType::Q6_K>},
    .reduce = reduce,
};

}  // namespace

const TiledForm& tiled_form_avx2() {
    return kForm;
}

void matmul_avx2(ExecRef exec, const MatmulArgs& args) {
    matmul_tiled(exec, args, kForm);
}

}  // namespace slipstream::cpu
#endif
