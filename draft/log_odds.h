// Log-odds and back, quickly enough for a thousand candidates a tree.
#pragma once

#include "kernels/base/noise.h"

namespace slipstream::draft {

/// log(p / (1 - p)) for p in (0, 1), normal, as is 1 - p.
[[nodiscard]] inline float log_odds(float probability) {
    return log_float(probability / (1.0F - probability));
}

/// 1 / (1 + exp(-x)), by linear interpolation in a table: within 2e-4 of it; x is clamped to [-10, 10].
[[nodiscard]] float logistic(float log_odds);

}  // namespace slipstream::draft
