// exp for kernels: plain float arithmetic that the compiler vectorises, so that every form gives the same bits.
#pragma once

#include <bit>
#include <cstdint>

namespace slipstream::cpu {

/// exp(x) for x <= 88; below -87 the result is 0 (also for -infinity); exactly 1 at 0. NaN stays NaN.
/// x = n ln 2 + r with |r| <= ln 2 / 2; Taylor to degree 7 leaves r^8 / 8! < 6e-9; 2 ulp in all (tested).
[[gnu::always_inline]] inline float exp_float(float x) {
    constexpr float kLog2e = 1.44269504F;
    constexpr float kLn2High = 0.693359375F;    // 10 bits: n * kLn2High is exact
    constexpr float kLn2Low = -2.12194440e-4F;  // ln 2 - kLn2High
    constexpr float kRound = 12582912.0F;       // 1.5 * 2^23: adding it rounds to an integer
    const float clamped = x < -87.0F ? -87.0F : x;
    const float shifted = clamped * kLog2e + kRound;
    const float n = shifted - kRound;
    const float r = (clamped - n * kLn2High) - n * kLn2Low;
    float p = 1.0F / 5040.0F;
    p = p * r + 1.0F / 720.0F;
    p = p * r + 1.0F / 120.0F;
    p = p * r + 1.0F / 24.0F;
    p = p * r + 1.0F / 6.0F;
    p = p * r + 0.5F;
    p = p * (r * r) + r + 1.0F;
    // The low bits of `shifted` hold n; moved into the exponent they make 2^n.
    const std::uint32_t scale_bits = (std::bit_cast<std::uint32_t>(shifted) + 127U) << 23;
    const float result = p * std::bit_cast<float>(scale_bits);
    return x < -87.0F ? 0.0F : result;
}

}  // namespace slipstream::cpu
