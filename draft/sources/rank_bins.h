// Calibration bins of sources that know probabilities: buckets of rank x buckets of probability.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "draft/sources/table_source.h"

namespace slipstream::draft {

inline constexpr std::uint16_t kRankBuckets = 5;
/// Returns the bucket of a rank (0: the best): 0, 1, 2-3, 4-7, or 8 and more.
[[nodiscard]] constexpr std::uint16_t rank_bucket(std::size_t rank) {
    std::uint16_t bucket = 0;
    for (; rank > 0 && bucket + 1 < kRankBuckets; rank /= 2) ++bucket;
    return bucket;
}

inline constexpr std::uint16_t kProbabilityBuckets = 5;
/// Returns the bucket of a probability: 0 for 1/2 and more, 1 for 1/4 and more, 2 for 1/16, 3 for 1/128, 4 below.
[[nodiscard]] constexpr std::uint16_t probability_bucket(float probability) {
    constexpr float borders[] = {0.5F, 0.25F, 0.0625F, 0.0078125F};
    std::uint16_t bucket = 0;
    for (const float border : borders) bucket = static_cast<std::uint16_t>(bucket + (probability < border ? 1 : 0));
    return bucket;
}

inline constexpr std::uint16_t kRankProbabilityBins = kRankBuckets * kProbabilityBuckets;
/// Returns the calibration bin, in [0, kRankProbabilityBins), of a proposal at position `rank` (0: the best) of its
/// source's list.
[[nodiscard]] constexpr std::uint16_t rank_probability_bin(std::size_t rank, float probability) {
    return static_cast<std::uint16_t>(rank_bucket(rank) * kProbabilityBuckets + probability_bucket(probability));
}
/// Sets the bins of `proposals`, which must be sorted by rank, best first.
inline void set_rank_bins(std::span<Proposal> proposals) {
    for (std::size_t i = 0; i < proposals.size(); ++i)
        proposals[i].bin = rank_probability_bin(i, proposals[i].probability);
}

}  // namespace slipstream::draft
