// The greatest of many numbers, in lanes, so that compilers make vectors of it: what a sweep over a vocabulary compares
// with first.
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <span>

namespace slipstream {

/// Values that are compared at once.
inline constexpr std::size_t kGreatestBlock = 16;

/// The greatest of kGreatestBlock numbers; -inf where all are NaN, which never wins.
[[nodiscard]] inline float greatest_of_block(const float* values) {
    constexpr std::size_t n_lanes = 4;
    constexpr float nothing = -std::numeric_limits<float>::infinity();
    float lanes[n_lanes] = {nothing, nothing, nothing, nothing};
    for (std::size_t i = 0; i < kGreatestBlock; i += n_lanes)
        for (std::size_t lane = 0; lane < n_lanes; ++lane)
            lanes[lane] = values[i + lane] > lanes[lane] ? values[i + lane] : lanes[lane];
    return std::max(std::max(lanes[0], lanes[1]), std::max(lanes[2], lanes[3]));
}

/// The same of any number of them; -inf of none.
[[nodiscard]] inline float greatest_of(std::span<const float> values) {
    constexpr float nothing = -std::numeric_limits<float>::infinity();
    float lanes[kGreatestBlock];
    std::ranges::fill(lanes, nothing);
    std::size_t i = 0;
    for (; i + kGreatestBlock <= values.size(); i += kGreatestBlock)
        for (std::size_t lane = 0; lane < kGreatestBlock; ++lane)
            lanes[lane] = values[i + lane] > lanes[lane] ? values[i + lane] : lanes[lane];
    float greatest = greatest_of_block(lanes);
    for (; i < values.size(); ++i) greatest = values[i] > greatest ? values[i] : greatest;
    return greatest;
}

}  // namespace slipstream
