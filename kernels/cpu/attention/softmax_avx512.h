// softmax_step() of attention_step.h in AVX-512.
#pragma once

#include <cstdint>
#include <limits>

#include "kernels/cpu/attention/attention_step.h"
#include "kernels/cpu/attention/exp_avx512.h"
#include "kernels/cpu/target.h"

#if defined(__x86_64__)
#include <immintrin.h>

namespace slipstream::cpu {

/// Returns a bit for each visible slot of the step.
[[gnu::always_inline]] inline std::uint64_t visible_slots(const AttentionStep& step) {
    return (~std::uint64_t{0} << step.first_slot) & (~std::uint64_t{0} >> (64 - step.end_slot));
}

/// Writes the weights that softmax_step() computes from the scores `raw` to `weights`, [64], updates `state`, and
/// returns the factor for o; all with the bits of softmax_step().
template <bool kSoftcap>
[[gnu::always_inline]] SLIPSTREAM_AVX512 inline float softmax(const __m512 (&raw)[kStepTokens / 16],
                                                              const AttentionStep& step, QueryState& state,
                                                              float* weights) {
    constexpr int kVectors = kStepTokens / 16;
    const std::uint64_t visible = visible_slots(step);
    const __m512 minus_infinity = _mm512_set1_ps(-std::numeric_limits<float>::infinity());
    const __m512 scale = _mm512_set1_ps(step.scale);
    __m512 score[kVectors];
#pragma GCC unroll 4
    for (int i = 0; i < kVectors; ++i) {
        const auto mask = static_cast<__mmask16>(visible >> (16 * i));
        if constexpr (kSoftcap)
            score[i] = _mm512_mask_mov_ps(minus_infinity, mask,
                                          softcap16(_mm512_mul_ps(raw[i], scale), Softcap(step.softcap)));
        else
            score[i] = _mm512_mask_mul_ps(minus_infinity, mask, raw[i], scale);
    }
    const __m512 best = _mm512_max_ps(_mm512_max_ps(score[3], score[2]), _mm512_max_ps(score[1], score[0]));
    const float highest = _mm512_reduce_max_ps(best);
    const float m = highest > state.m ? highest : state.m;
    const __m512 shift = _mm512_set1_ps(m);
#pragma GCC unroll 4
    for (int i = 0; i < kVectors; ++i) {
        score[i] = exp16(_mm512_sub_ps(score[i], shift));
        _mm512_store_ps(weights + 16 * i, score[i]);
    }
    const __m512 sum16 = _mm512_add_ps(_mm512_add_ps(score[0], score[1]), _mm512_add_ps(score[2], score[3]));
    const __m256 sum8 = _mm256_add_ps(_mm512_castps512_ps256(sum16), _mm512_extractf32x8_ps(sum16, 1));
    const __m128 sum4 = _mm_add_ps(_mm256_castps256_ps128(sum8), _mm256_extractf128_ps(sum8, 1));
    const __m128 sum2 = _mm_add_ps(sum4, _mm_movehl_ps(sum4, sum4));
    const float sum = _mm_cvtss_f32(_mm_add_ss(sum2, _mm_movehdup_ps(sum2)));
    const float keep = exp_float(state.m - m);
    state.m = m;
    state.l = state.l * keep + sum;
    return keep;
}

}  // namespace slipstream::cpu
#endif
