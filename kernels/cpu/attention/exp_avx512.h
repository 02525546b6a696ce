// exp_float() and Softcap (kernels/cpu/exp.h) for vectors of 16 floats in AVX-512. They do the same operations in the
// same order, so they give the same bits.
#pragma once

#include "kernels/cpu/exp.h"
#include "kernels/cpu/target.h"

#if defined(__x86_64__)
#include <immintrin.h>

namespace slipstream::cpu {

/// exp(x) of 16 floats in two parts, like ExpParts: exp(x) = (less_one + 1) * scale.
struct ExpParts16 {
    __m512 less_one;
    __m512 scale;
};
[[gnu::always_inline]] SLIPSTREAM_AVX512 inline ExpParts16 exp_parts16(__m512 x) {
    const __m512 round = _mm512_set1_ps(kExpRound);
    const __m512 shifted = _mm512_add_ps(_mm512_mul_ps(x, _mm512_set1_ps(kExpLog2e)), round);
    const __m512 n = _mm512_sub_ps(shifted, round);
    const __m512 r = _mm512_sub_ps(_mm512_sub_ps(x, _mm512_mul_ps(n, _mm512_set1_ps(kExpLn2High))),
                                   _mm512_mul_ps(n, _mm512_set1_ps(kExpLn2Low)));
    __m512 p = _mm512_set1_ps(kExpTaylor[0]);
#pragma GCC unroll 8
    for (int i = 1; i < kExpTerms; ++i) p = _mm512_add_ps(_mm512_mul_ps(p, r), _mm512_set1_ps(kExpTaylor[i]));
    const __m512i scale = _mm512_slli_epi32(_mm512_add_epi32(_mm512_castps_si512(shifted), _mm512_set1_epi32(127)), 23);
    return {_mm512_add_ps(_mm512_mul_ps(p, _mm512_mul_ps(r, r)), r), _mm512_castsi512_ps(scale)};
}

/// Returns exp_float() of each of the 16 floats of `x`, with the same bits.
[[gnu::always_inline]] SLIPSTREAM_AVX512 inline __m512 exp16(__m512 x) {
    const __m512 lowest = _mm512_set1_ps(-87.0F);
    const __mmask16 too_low = _mm512_cmp_ps_mask(x, lowest, _CMP_LT_OQ);
    const ExpParts16 parts = exp_parts16(_mm512_mask_mov_ps(x, too_low, lowest));
    return _mm512_maskz_mul_ps(static_cast<__mmask16>(~too_low), _mm512_add_ps(parts.less_one, _mm512_set1_ps(1.0F)),
                               parts.scale);
}

/// Returns Softcap(cap) of each of the 16 floats of `x`, with the same bits.
[[gnu::always_inline]] SLIPSTREAM_AVX512 inline __m512 softcap16(__m512 x, const Softcap& by) {
    const __m512 quotient = _mm512_mul_ps(x, _mm512_set1_ps(by.inverse));
    const __m512 sign_bit = _mm512_set1_ps(-0.0F);
    const __m512 sign = _mm512_and_ps(quotient, sign_bit);
    const __m512 size = _mm512_andnot_ps(sign_bit, quotient);
    const __mmask16 is_one = _mm512_cmp_ps_mask(size, _mm512_set1_ps(10.0F), _CMP_GT_OQ);
    const ExpParts16 parts =
        exp_parts16(_mm512_mask_mov_ps(_mm512_mul_ps(_mm512_set1_ps(2.0F), size), is_one, _mm512_set1_ps(20.0F)));
    const __m512 t =
        _mm512_add_ps(_mm512_mul_ps(parts.less_one, parts.scale), _mm512_sub_ps(parts.scale, _mm512_set1_ps(1.0F)));
    const __m512 tanh = _mm512_or_ps(_mm512_div_ps(t, _mm512_add_ps(t, _mm512_set1_ps(2.0F))), sign);
    return _mm512_mul_ps(_mm512_set1_ps(by.cap), tanh);
}

}  // namespace slipstream::cpu
#endif
