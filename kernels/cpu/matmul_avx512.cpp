// Inner kernels of matmul for AVX-512 (F, BW, VL, DQ): a register is a group of 16 rows. Float weights only; codes are
// multiplied by the AVX2 kernels, since without VNNI the wide registers gain little (the machines in question lower
// their clock for them).

#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels/cpu/activations.h"
#include "kernels/cpu/matmul_interleaved.h"
#include "kernels/cpu/target.h"

namespace slipstream::cpu {

namespace {

#define SLIPSTREAM_INLINE_AVX512 SLIPSTREAM_AVX512 __attribute__((always_inline)) static inline

/// Element k (even) and k + 1 of 16 rows.
struct Pair {
    __m512 even;
    __m512 odd;
};

template <DType type>
constexpr int kPairBytes = type == DType::F32 ? 128 : 64;

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

/// The last element of an odd K.
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

template <DType type, int T>
SLIPSTREAM_AVX512 void multiply_floats(const FloatTile& tile) {
    __m512 even[T];
    __m512 odd[T];
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
        even[t] = _mm512_loadu_ps(tile.sums + t * 16);
        odd[t] = _mm512_loadu_ps(tile.sums + (T + t) * 16);
    }
    const std::byte* weights = tile.weights;
    const float* x = tile.x;
#pragma GCC unroll 2
    for (std::int64_t k = 0; k + 2 <= tile.k; k += 2, weights += kPairBytes<type>, x += 2 * T) {
        for (int line = 0; line < kPairBytes<type>; line += 64) {
            _mm_prefetch(weights + tile.l2_prefetch_bytes + line, _MM_HINT_T1);
            _mm_prefetch(weights + tile.l1_prefetch_bytes + line, _MM_HINT_T0);
        }
        const Pair w = load_pair<type>(weights);
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) even[t] = _mm512_fmadd_ps(w.even, _mm512_set1_ps(x[t]), even[t]);
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) odd[t] = _mm512_fmadd_ps(w.odd, _mm512_set1_ps(x[T + t]), odd[t]);
    }
    if (tile.k % 2 != 0) {
        const __m512 w = load_last<type>(weights);
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) even[t] = _mm512_fmadd_ps(w, _mm512_set1_ps(x[t]), even[t]);
    }
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
        _mm512_storeu_ps(tile.sums + t * 16, even[t]);
        _mm512_storeu_ps(tile.sums + (T + t) * 16, odd[t]);
    }
}

SLIPSTREAM_AVX512_LOOPS void quantize(const float* __restrict x, std::int64_t k, int t, int n_tile,
                                      const CodeTraits& traits, std::byte* __restrict tile) {
    quantize_token(x, k, t, n_tile, traits, tile);
}

template <DType type>
SLIPSTREAM_AVX512_LOOPS void unpack(const std::byte* __restrict src, std::size_t block_bytes, int n_sub,
                                    UnpackedChunk& __restrict out) {
    unpack_chunk<type>(src, block_bytes, n_sub, out);
}

template <DType type>
constexpr std::array<InterleavedForm::FloatFn, kMaxTileTokens> kMultiplyFloats{
    multiply_floats<type, 1>, multiply_floats<type, 2>, multiply_floats<type, 3>, multiply_floats<type, 4>,
    multiply_floats<type, 5>, multiply_floats<type, 6>, multiply_floats<type, 7>, multiply_floats<type, 8>};

InterleavedForm make_form() {
    InterleavedForm form = interleaved_form_avx2();
    form.float_tile_tokens = 8;
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
                   unpack<DType::Q6_K>};
    form.quantize = quantize;
    return form;
}

}  // namespace

const InterleavedForm& interleaved_form_avx512() {
    static const InterleavedForm form = make_form();
    return form;
}

void matmul_avx512(ExecRef exec, const MatmulArgs& args) {
    matmul_interleaved(exec, args, interleaved_form_avx512());
}

}  // namespace slipstream::cpu
#endif
