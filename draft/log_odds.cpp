#include "draft/log_odds.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

namespace slipstream::draft {

namespace {

constexpr float kMaxLogOdds = 10.0F;
constexpr float kStepsPerUnit = 32.0F;
constexpr std::size_t kSteps = 640;  // 2 * kMaxLogOdds * kStepsPerUnit

const std::array<float, kSteps + 2> kLogistic = [] {
    std::array<float, kSteps + 2> table{};
    for (std::size_t i = 0; i < table.size(); ++i)
        table[i] = 1.0F / (1.0F + std::exp(kMaxLogOdds - static_cast<float>(i) / kStepsPerUnit));
    return table;
}();

}  // namespace

float logistic(float log_odds) {
    const float x = (std::clamp(log_odds, -kMaxLogOdds, kMaxLogOdds) + kMaxLogOdds) * kStepsPerUnit;
    const auto below = static_cast<std::size_t>(x);
    return kLogistic[below] + (x - static_cast<float>(below)) * (kLogistic[below + 1] - kLogistic[below]);
}

}  // namespace slipstream::draft
