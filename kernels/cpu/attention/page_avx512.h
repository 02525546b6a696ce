// What the AVX-512 variants of attention over a view page have in common.
#pragma once

#include <cstdint>

#include "kernels/cpu/attention/page_layout.h"
#include "kernels/cpu/target.h"

#if defined(__x86_64__)
#include <immintrin.h>

namespace slipstream::cpu {

using Page = PageParts<const std::byte>;

inline constexpr __mmask16 kAllLanes = 0xffff;
inline constexpr int kScoreVectors = kPageSlots / 16;

/// Returns a mask of the elements that exist of the 16 from `at` on.
[[gnu::always_inline]] inline __mmask16 mask_of(std::int64_t at, std::int64_t n) {
    return n - at >= 16 ? kAllLanes : static_cast<__mmask16>((1U << (n - at)) - 1U);
}

/// Returns the elements [at, at + 16) of `halves` that `mask` has, and 0 for the others.
[[gnu::always_inline]] SLIPSTREAM_AVX512 inline __m512 load_halves(const Half* halves, std::int64_t at,
                                                                   __mmask16 mask) {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, halves + at));
}

/// Returns the sum of 16 floats, by halves.
[[gnu::always_inline]] SLIPSTREAM_AVX512 inline float sum_of(__m512 x) {
    const __m256 sum8 = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    const __m128 sum4 = _mm_add_ps(_mm256_castps256_ps128(sum8), _mm256_extractf128_ps(sum8, 1));
    const __m128 sum2 = _mm_add_ps(sum4, _mm_movehl_ps(sum4, sum4));
    return _mm_cvtss_f32(_mm_add_ss(sum2, _mm_movehdup_ps(sum2)));
}

}  // namespace slipstream::cpu
#endif
