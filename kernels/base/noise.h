// Noise of drafter-invariant sampling (E2), one source for host and device:
//
//   key     = (seed low 32 bits, seed high 32 bits)
//   counter = (token / 4, position low, position high, stream); the token gets output word token % 4
//   u       = (2 word + 1) / 2^33          32 bits, exact, never 0 or 1
//   gumbel  = -log(-log(u))                in [-3.14, 22.9]
//
// The logarithm is computed here in float: each multiply-add is an explicit fma, and all else is single IEEE operations
// whose contraction could change no bit. So the bits are the same for every compiler, optimisation level and device.
// Any change here changes the text of every seeded run; tests/golden/philox pins the bits.
#pragma once

#include <cstdint>

#include "kernels/base/philox.h"

namespace slipstream {

/// Independent streams of noise under one seed (word 3 of the counter).
enum class NoiseStream : std::uint32_t {
    Sampling = 0,   // Gumbel noise of drafter-invariant sampling
    Rejection = 1,  // uniform draws of distribution-exact sampling (E3: classical speculative sampling)
    Hierarchy = 2,  // uniform draws of draft models that verify each other's draft tokens
};

/// Returns the random words of the four tokens 4 * group to 4 * group + 3 at `position`.
[[nodiscard]] SLIPSTREAM_HOST_DEVICE constexpr PhiloxBlock noise_block(std::uint64_t seed, std::uint64_t position,
                                                                       std::uint32_t group, NoiseStream stream) {
    return philox4x32_10({{group, static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(position >> 32),
                           static_cast<std::uint32_t>(stream)}},
                         {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
}

namespace noise_detail {

[[nodiscard]] SLIPSTREAM_HOST_DEVICE inline float fma(float a, float b, float c) {
#ifdef __CUDA_ARCH__
    return __fmaf_rn(a, b, c);
#else
    return __builtin_fmaf(a, b, c);
#endif
}

/// Returns log((1 + f) 2^exponent) for f in [sqrt(1/2) - 1, sqrt(2) - 1] as f - f^2/2 + f^3 P(f) + exponent log(2). The
/// polynomial P of degree 7 was fitted for the least relative error, 8e-9 with these coefficients (our own fit, by
/// Lawson's iteration on Chebyshev nodes).
[[nodiscard]] SLIPSTREAM_HOST_DEVICE inline float log_reduced(float f, float exponent) {
    float p = -0x1.38b4ccp-4F;
    p = fma(p, f, 0x1.055b46p-3F);
    p = fma(p, f, -0x1.0d8552p-3F);
    p = fma(p, f, 0x1.22da22p-3F);
    p = fma(p, f, -0x1.547244p-3F);
    p = fma(p, f, 0x1.99a008p-3F);
    p = fma(p, f, -0x1.000228p-2F);
    p = fma(p, f, 0x1.555554p-2F);
    const float square = f * f;
    p = fma(p, f, -0.5F);                                          // -1/2 + f P
    const float low = fma(exponent, 0x1.7f7d1cp-20F, p * square);  // log(2) = 0x1.62e4p-1 + 0x1.7f7d1cp-20
    return fma(exponent, 0x1.62e4p-1F, f + low);
}

/// Returns 2^exponent for `exponent` in [-126, 127].
[[nodiscard]] SLIPSTREAM_HOST_DEVICE inline float power_of_two(std::int32_t exponent) {
    return __builtin_bit_cast(float, static_cast<std::uint32_t>(exponent + 127) << 23);
}

/// Returns the exponent e for which value 2^-e is in [sqrt(1/2), sqrt(2)). `value` must be positive and normal.
[[nodiscard]] SLIPSTREAM_HOST_DEVICE inline std::int32_t balanced_exponent(float value) {
    const auto bits = __builtin_bit_cast(std::uint32_t, value);
    return static_cast<std::int32_t>((bits + (0x3f800000U - 0x3f3504f3U)) >> 23) - 127;
}

}  // namespace noise_detail

/// Returns -log(u) for u = (2 word + 1) / 2^33; the result is in [2^-33, 22.9]. The relative error is below 1.5e-7,
/// also next to u = 1: the distance of 2 word + 1 to the nearest power of two is computed in integers, without
/// rounding.
[[nodiscard]] SLIPSTREAM_HOST_DEVICE inline float exponential_noise(std::uint32_t word) {
    const std::int64_t numerator = 2 * static_cast<std::int64_t>(word) + 1;
    const std::int32_t exponent = noise_detail::balanced_exponent(static_cast<float>(numerator));
    const auto distance = static_cast<float>(numerator - (std::int64_t{1} << exponent));
    return -noise_detail::log_reduced(distance * noise_detail::power_of_two(-exponent),
                                      static_cast<float>(exponent - 33));
}

/// Returns log(value); `value` must be positive and normal. The relative error is below 1e-7, also next to 1.
[[nodiscard]] SLIPSTREAM_HOST_DEVICE inline float log_float(float value) {
    const std::int32_t exponent = noise_detail::balanced_exponent(value);
    const float scaled = value * noise_detail::power_of_two(-exponent);  // exact
    return noise_detail::log_reduced(scaled - 1.0F, static_cast<float>(exponent));
}

/// Returns the Gumbel noise of a random word, within 1.5e-7 + 1 ulp of the exact -log(-log(u)).
[[nodiscard]] SLIPSTREAM_HOST_DEVICE inline float gumbel_of(std::uint32_t word) {
    return -log_float(exponential_noise(word));
}

/// The largest value of gumbel_of(), which is gumbel_of(0xffffffff).
inline constexpr float kMaxGumbel = 0x1.6dfb52p+4F;

/// Returns an upper bound of gumbel_of(word), from the number n of leading ones of `word` alone: 1 - u >= 2^-(n + 1),
/// and -log(u) >= 1 - u. With it, an argmax skips the logarithms of tokens that cannot win. log(2) is rounded up by
/// more than the error of gumbel_of().
[[nodiscard]] SLIPSTREAM_HOST_DEVICE constexpr float gumbel_upper_bound(std::uint32_t word) {
    std::int32_t n = 0;
    for (; n < 32 && (word & 0x80000000U) != 0; ++n) word <<= 1;
    constexpr float log_2_rounded_up = 0.69317F;
    return static_cast<float>(n + 1) * log_2_rounded_up;
}

/// Returns the Gumbel noise of `token` at `position`: the only randomness of drafter-invariant sampling.
[[nodiscard]] SLIPSTREAM_HOST_DEVICE inline float gumbel_noise(std::uint64_t seed, std::uint64_t position,
                                                               std::uint32_t token) {
    return gumbel_of(noise_block(seed, position, token / 4, NoiseStream::Sampling).word[token % 4]);
}

}  // namespace slipstream
