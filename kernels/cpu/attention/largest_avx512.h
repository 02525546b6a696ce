// The largest magnitude of floats, in AVX-512: what numbers that are rounded together are divided by.
#pragma once

#include <bit>

#include "kernels/cpu/target.h"

#if defined(__x86_64__)
#include <immintrin.h>

namespace slipstream::cpu {

/// Returns the larger of `most` (not negative) and the magnitude of `x`, compared as integers, which have the order of
/// floats. So a NaN is the largest, and reaches the result by the factor.
[[gnu::always_inline]] SLIPSTREAM_AVX512 inline __m512i larger(__m512i most, __m512 x) {
    return _mm512_max_epi32(most, _mm512_castps_si512(_mm512_abs_ps(x)));
}
/// Returns the largest of the 16 numbers that larger() gave.
[[gnu::always_inline]] SLIPSTREAM_AVX512 inline float largest(__m512i most) {
    return std::bit_cast<float>(_mm512_reduce_max_epi32(most));
}

}  // namespace slipstream::cpu
#endif
