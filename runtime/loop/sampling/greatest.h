// The greatest of many numbers, computed in lanes so that compilers vectorise it: the first comparison of a sweep over
// a vocabulary.
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <span>

namespace slipstream {

/// Returns the greatest of `values`; -inf if there are none. NaN never wins.
[[nodiscard]] inline float greatest_of(std::span<const float> values) {
    constexpr std::size_t n_lanes = 16;
    constexpr float nothing = -std::numeric_limits<float>::infinity();
    float lanes[n_lanes];
    std::ranges::fill(lanes, nothing);
    std::size_t i = 0;
    for (; i + n_lanes <= values.size(); i += n_lanes)
        for (std::size_t lane = 0; lane < n_lanes; ++lane)
            lanes[lane] = values[i + lane] > lanes[lane] ? values[i + lane] : lanes[lane];
    float greatest = *std::ranges::max_element(lanes);
    for (; i < values.size(); ++i) greatest = values[i] > greatest ? values[i] : greatest;
    return greatest;
}

}  // namespace slipstream
