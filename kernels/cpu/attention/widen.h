// Loads of elements of the KV types F32, F16 and BF16, and of codes of Q8_0, as vectors of floats. The conversions are
// exact.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/base/dtype.h"
#include "kernels/cpu/target.h"

#if defined(__x86_64__)
#include <immintrin.h>

namespace slipstream::cpu {

/// Returns the elements [index, index + 8) of the array `base` of kType (F32, F16, BF16, or codes of Q8_0) as floats;
/// any alignment.
template <DType kType>
[[gnu::always_inline]] SLIPSTREAM_AVX2 inline __m256 load8(const std::byte* base, std::int64_t index) {
    if constexpr (kType == DType::F32) {
        return _mm256_loadu_ps(reinterpret_cast<const float*>(base) + index);
    } else if constexpr (kType == DType::Q8_0) {
        const __m128i codes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(base + index));
        return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(codes));
    } else {
        const __m128i bits =
            _mm_loadu_si128(reinterpret_cast<const __m128i*>(reinterpret_cast<const std::uint16_t*>(base) + index));
        if constexpr (kType == DType::F16) return _mm256_cvtph_ps(bits);
        return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
    }
}

/// Returns the elements [index, index + 16) of the array `base` of kType (F32, F16, BF16, or codes of Q8_0) as floats;
/// any alignment. Elements whose bit in `mask` is 0 are not read and become 0.
template <DType kType>
[[gnu::always_inline]] SLIPSTREAM_AVX512 inline __m512 load16(const std::byte* base, std::int64_t index,
                                                              __mmask16 mask) {
    if constexpr (kType == DType::F32) {
        return _mm512_maskz_loadu_ps(mask, reinterpret_cast<const float*>(base) + index);
    } else if constexpr (kType == DType::Q8_0) {
        const __m128i codes = _mm_maskz_loadu_epi8(mask, base + index);
        return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(codes));
    } else {
        const __m256i bits = _mm256_maskz_loadu_epi16(mask, reinterpret_cast<const std::uint16_t*>(base) + index);
        if constexpr (kType == DType::F16) return _mm512_cvtph_ps(bits);
        return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
    }
}

}  // namespace slipstream::cpu
#endif
