// Logarithms, log-odds and their inverse, fast enough for a thousand candidates per tree.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace slipstream::draft {

/// Returns log(x) of a positive normal float, within 2e-5 + 1 ulp. For ranking and learning, never for sampling.
[[nodiscard]] inline float rough_log(float x) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    const auto exponent = static_cast<float>(static_cast<std::int32_t>(bits >> 23) - 127);
    const float m = std::bit_cast<float>((bits & 0x7fffffU) | 0x3f800000U) - 1.0F;  // in [0, 1)
    // Polynomial for log2(1 + m): exact at m = 0 and m = 1, a least-squares fit between them.
    const float p = m * (1.44174F + m * (-0.70777F + m * (0.412344F + m * (-0.190319F + m * 0.0440047F))));
    return (exponent + p) * 0.69314718F;
}

/// Returns log(p / (1 - p)), within 1e-4. The probability p must be in (0, 1), and p and 1 - p normal floats.
[[nodiscard]] inline float log_odds(float probability) {
    return rough_log(probability) - rough_log(1.0F - probability);
}

/// Returns 1 / (1 + exp(-x)), with x clamped to [-10, 10].
[[nodiscard]] inline float logistic(float x) {
    return 1.0F / (1.0F + std::exp(-std::clamp(x, -10.0F, 10.0F)));
}

}  // namespace slipstream::draft
