// Log-odds and back, quickly enough for a thousand candidates a tree.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace slipstream::draft {

/// log(x) of a positive normal float, within 2e-5 + 1 ulp: for what is ranked and learnt, never for what is sampled.
[[nodiscard]] inline float rough_log(float x) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    const auto exponent = static_cast<float>(static_cast<std::int32_t>(bits >> 23) - 127);
    const float m = std::bit_cast<float>((bits & 0x7fffffU) | 0x3f800000U) - 1.0F;  // in [0, 1)
    // log2(1 + m), exact at both ends; least-squares fit between.
    const float p = m * (1.44174F + m * (-0.70777F + m * (0.412344F + m * (-0.190319F + m * 0.0440047F))));
    return (exponent + p) * 0.69314718F;
}

/// log(p / (1 - p)) for p in (0, 1), normal, as is 1 - p; within 1e-4.
[[nodiscard]] inline float log_odds(float probability) {
    return rough_log(probability) - rough_log(1.0F - probability);
}

/// Four at once, in one vector.
using Float4 [[gnu::vector_size(16)]] = float;
[[nodiscard]] inline Float4 rough_log(Float4 x) {
    using Int4 [[gnu::vector_size(16)]] = std::int32_t;
    const auto bits = std::bit_cast<Int4>(x);
    const Float4 exponent = __builtin_convertvector((bits >> 23) - 127, Float4);
    const Float4 m = std::bit_cast<Float4>((bits & 0x7fffff) | 0x3f800000) - 1.0F;
    const Float4 p = m * (1.44174F + m * (-0.70777F + m * (0.412344F + m * (-0.190319F + m * 0.0440047F))));
    return (exponent + p) * 0.69314718F;
}
[[nodiscard]] inline Float4 log_odds(Float4 probability) {
    return rough_log(probability) - rough_log(1.0F - probability);
}

namespace log_odds_detail {
inline constexpr float kMaxLogOdds = 10.0F;
inline constexpr float kStepsPerUnit = 32.0F;
inline constexpr std::size_t kSteps = 640;  // 2 * kMaxLogOdds * kStepsPerUnit
extern const std::array<float, kSteps + 2> kLogistic;
}  // namespace log_odds_detail

/// 1 / (1 + exp(-x)), by linear interpolation in a table: within 2e-4 of it; x is clamped to [-10, 10].
[[nodiscard]] inline float logistic(float x) {
    using namespace log_odds_detail;
    const float place = (std::clamp(x, -kMaxLogOdds, kMaxLogOdds) + kMaxLogOdds) * kStepsPerUnit;
    const auto below = static_cast<std::size_t>(static_cast<std::int32_t>(place));
    return kLogistic[below] + (place - static_cast<float>(below)) * (kLogistic[below + 1] - kLogistic[below]);
}

}  // namespace slipstream::draft
