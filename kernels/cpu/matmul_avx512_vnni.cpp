// Inner kernels of matmul for AVX-512 with VNNI: codes by vpdpbusd, unsigned weights times signed activations, four k
// of a row a lane, activations broadcast from memory. The float kernels are those of AVX-512.

#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels/cpu/activations.h"
#include "kernels/cpu/matmul_interleaved.h"
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

/// dots[t] += codes [first, first + count) of a sub-block times the activations of token t.
template <int T>
SLIPSTREAM_INLINE_VNNI void add_products(const std::uint32_t (*codes)[16], const std::byte* x, int first, int count,
                                         __m512i (&dots)[T]) {
#pragma GCC unroll 8
    for (int g = first; g < first + count; ++g) {
        const __m512i w = _mm512_load_si512(codes[g]);
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) dots[t] = _mm512_dpbusd_epi32(dots[t], w, broadcast_word(x + 4 * (g * T + t)));
    }
}

template <DType type, int T>
SLIPSTREAM_AVX512_VNNI void multiply_codes(const CodeTile& tile) {
    using At = BlockOffsets<T>;
    constexpr CodeTraits kTraits = code_traits(type);
    const UnpackedChunk& weights = *tile.weights;
    __m512 sums[T];
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) sums[t] = _mm512_loadu_ps(tile.sums + 16 * t);
    const std::byte* x = tile.x;
    const std::byte* prefetch = tile.prefetch;
    for (int s = 0; s < tile.n_sub; ++s, x += At::kBytes, prefetch += tile.prefetch_bytes) {
        for (std::int64_t line = 0; line < tile.prefetch_bytes; line += 64) {
            _mm_prefetch(prefetch + kL2PrefetchBytes + line, _MM_HINT_T1);
            _mm_prefetch(prefetch + kL1PrefetchBytes + line, _MM_HINT_T0);
        }
        __m512i dots[T];
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) dots[t] = broadcast_word(x + At::kStart0 + 4 * t);
        if constexpr (kTraits.scale_run == 32) {
            add_products<T>(weights.codes[s], x, 0, 8, dots);
            const __m512 scale = _mm512_load_ps(weights.scale[s]);
#pragma GCC unroll 8
            for (int t = 0; t < T; ++t) {
                const __m512 both = _mm512_mul_ps(scale, broadcast_float(x + At::kD + 4 * t));
                sums[t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots[t]), both, sums[t]);
            }
            if constexpr (kTraits.has_offset) {
                const __m512 offset = _mm512_load_ps(weights.offset[s]);
#pragma GCC unroll 8
                for (int t = 0; t < T; ++t)
                    sums[t] = _mm512_fmadd_ps(offset, broadcast_float(x + At::kSum + 4 * t), sums[t]);
            }
        } else {
            add_products<T>(weights.codes[s], x, 0, 4, dots);
            const __m512 scale0 = _mm512_load_ps(weights.scale[2 * s]);
            const __m512 scale1 = _mm512_load_ps(weights.scale[2 * s + 1]);
            __m512 first[T];
#pragma GCC unroll 8
            for (int t = 0; t < T; ++t) {
                first[t] = _mm512_mul_ps(scale0, _mm512_cvtepi32_ps(dots[t]));
                dots[t] = broadcast_word(x + At::kStart1 + 4 * t);
            }
            add_products<T>(weights.codes[s], x, 4, 4, dots);
#pragma GCC unroll 8
            for (int t = 0; t < T; ++t) {
                const __m512 both = _mm512_fmadd_ps(scale1, _mm512_cvtepi32_ps(dots[t]), first[t]);
                sums[t] = _mm512_fmadd_ps(both, broadcast_float(x + At::kD + 4 * t), sums[t]);
            }
        }
    }
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) _mm512_storeu_ps(tile.sums + 16 * t, sums[t]);
}

template <DType type>
constexpr std::array<InterleavedForm::CodeFn, kMaxTileTokens> kMultiplyCodes{
    multiply_codes<type, 1>, multiply_codes<type, 2>, multiply_codes<type, 3>, multiply_codes<type, 4>,
    multiply_codes<type, 5>, multiply_codes<type, 6>, multiply_codes<type, 7>, multiply_codes<type, 8>};

InterleavedForm make_form() {
    InterleavedForm form = interleaved_form_avx512();
    form.code_tile_tokens = 8;
    form.multiply_codes = {{{},
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
                            kMultiplyCodes<DType::Q6_K>}};
    return form;
}

}  // namespace

const InterleavedForm& interleaved_form_avx512_vnni() {
    static const InterleavedForm form = make_form();
    return form;
}

void matmul_avx512_vnni(ExecRef exec, const MatmulArgs& args) {
    matmul_interleaved(exec, args, interleaved_form_avx512_vnni());
}

}  // namespace slipstream::cpu
#endif
