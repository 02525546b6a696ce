// What the length of a match says about the token after it: buckets for calibration, and the estimate before
// calibration has any data. The estimates are our own guesses between two known ends: one repeated token says little, a
// match of twenty tokens is nearly always a copy.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace slipstream::draft {

inline constexpr std::uint16_t kMatchBuckets = 8;

/// Returns the bucket, 0 to 7, of a match of 1, 2, 3, 4-5, 6-8, 9-12, 13-20, or 21 and more tokens.
[[nodiscard]] constexpr std::uint16_t match_bucket(std::uint32_t length) {
    constexpr std::array<std::uint32_t, kMatchBuckets - 1> longest = {1, 2, 3, 5, 8, 12, 20};
    std::uint16_t bucket = 0;
    while (bucket < longest.size() && length > longest[bucket]) ++bucket;
    return bucket;
}

/// Returns the assumed probability that the token after a match of this bucket is the one that followed before.
[[nodiscard]] constexpr float match_prior(std::uint16_t bucket) {
    constexpr std::array<float, kMatchBuckets> priors = {0.25F, 0.4F, 0.5F, 0.6F, 0.7F, 0.8F, 0.9F, 0.95F};
    return priors[bucket];
}

}  // namespace slipstream::draft
