// exp_float() (kernels/cpu/exp.h) for vectors of 16 floats in AVX-512. It does the same operations in the same order,
// so it gives the same bits.
#pragma once

#include "kernels/cpu/exp.h"
#include "kernels/cpu/target.h"

#if defined(__x86_64__)
#include <immintrin.h>

namespace slipstream::cpu {

/// Returns exp_float() of each of the 16 floats of `x`, with the same bits.
[[gnu::always_inline]] SLIPSTREAM_AVX512 inline __m512 exp16(__m512 x) {
    const __m512 lowest = _mm512_set1_ps(-87.0F);
    const __mmask16 too_low = _mm512_cmp_ps_mask(x, lowest, _CMP_LT_OQ);
    const __m512 clamped = _mm512_mask_mov_ps(x, too_low, lowest);
    const __m512 round = _mm512_set1_ps(kExpRound);
    const __m512 shifted = _mm512_add_ps(_mm512_mul_ps(clamped, _mm512_set1_ps(kExpLog2e)), round);
    const __m512 n = _mm512_sub_ps(shifted, round);
    const __m512 r = _mm512_sub_ps(_mm512_sub_ps(clamped, _mm512_mul_ps(n, _mm512_set1_ps(kExpLn2High))),
                                   _mm512_mul_ps(n, _mm512_set1_ps(kExpLn2Low)));
    __m512 p = _mm512_set1_ps(kExpTaylor[0]);
#pragma GCC unroll 8
    for (int i = 1; i < kExpTerms; ++i) p = _mm512_add_ps(_mm512_mul_ps(p, r), _mm512_set1_ps(kExpTaylor[i]));
    p = _mm512_add_ps(_mm512_add_ps(_mm512_mul_ps(p, _mm512_mul_ps(r, r)), r), _mm512_set1_ps(1.0F));
    const __m512i scale = _mm512_slli_epi32(_mm512_add_epi32(_mm512_castps_si512(shifted), _mm512_set1_epi32(127)), 23);
    return _mm512_maskz_mul_ps(static_cast<__mmask16>(~too_low), p, _mm512_castsi512_ps(scale));
}

}  // namespace slipstream::cpu
#endif
