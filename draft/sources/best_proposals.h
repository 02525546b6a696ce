// The order in which every source hands out its proposals: by log p + gumbel, best first (design E2), ties to the
// lowest token, so that nothing depends on how they were found.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "draft/source.h"
#include "kernels/base/check.h"

namespace slipstream::draft {

/// Most candidates that one propose() looks at.
inline constexpr std::size_t kMaxCandidates = 64;

/// Writes the best of `found` (at most kMaxCandidates, distinct tokens) to `out`, best first; returns how many.
inline std::size_t take_best(std::span<const Proposal> found, std::int64_t position, const PathNoise& noise,
                             std::span<Proposal> out) {
    struct Ranked {
        float rank;
        std::uint32_t index;
    };
    CHECK(found.size() <= kMaxCandidates, "{} candidates", found.size());
    std::array<Ranked, kMaxCandidates> ranked;
    for (std::uint32_t i = 0; i < found.size(); ++i)
        ranked[i] = {noise.rank(found[i].probability, position, found[i].token), i};
    const std::size_t n = std::min(found.size(), out.size());
    const auto end = ranked.begin() + static_cast<std::ptrdiff_t>(found.size());
    std::partial_sort(ranked.begin(), ranked.begin() + static_cast<std::ptrdiff_t>(n), end,
                      [&found](const Ranked& a, const Ranked& b) {
                          if (a.rank != b.rank) return a.rank > b.rank;
                          return found[a.index].token < found[b.index].token;
                      });
    for (std::size_t i = 0; i < n; ++i) out[i] = found[ranked[i].index];
    return n;
}

}  // namespace slipstream::draft
