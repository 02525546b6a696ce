// The order in which all sources return their proposals: by log p + gumbel, best first (drafter-invariant sampling, E2;
// without noise by p), ties to the lowest token. So the order does not depend on how proposals were found.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "draft/sources/table_source.h"
#include "kernels/base/check.h"

namespace slipstream::draft {

/// Most candidates that one propose() ranks; the size of its scratch arrays.
inline constexpr std::size_t kMaxCandidates = 1024;

/// Writes the best of `found` (distinct tokens, at most kMaxCandidates, CHECKed) to `out`, best first by noise.rank()
/// at the absolute position `position`, without noise by probability; ties to the lower token. Returns how many were
/// written: the smaller of the two sizes.
inline std::size_t take_best(std::span<const Proposal> found, std::int64_t position, const PathNoise& noise,
                             std::span<Proposal> out) {
    struct Ranked {
        float rank;
        std::uint32_t index;
    };
    CHECK(found.size() <= kMaxCandidates, "{} candidates", found.size());
    std::array<Ranked, kMaxCandidates> ranked;
    for (std::uint32_t i = 0; i < found.size(); ++i) {
        const auto& [token, probability, bin] = found[i];
        ranked[i] = {noise.present() ? noise.rank(probability, position, token) : probability, i};
    }
    const auto better = [&found](const Ranked& a, const Ranked& b) {
        if (a.rank != b.rank) return a.rank > b.rank;
        return found[a.index].token < found[b.index].token;
    };
    const std::size_t n = std::min(found.size(), out.size());
    const auto end = ranked.begin() + static_cast<std::ptrdiff_t>(found.size());
    std::partial_sort(ranked.begin(), ranked.begin() + static_cast<std::ptrdiff_t>(n), end, better);
    for (std::size_t i = 0; i < n; ++i) out[i] = found[ranked[i].index];
    return n;
}

/// Writes the best of `row`, which must be sorted by falling probability, to `out`, in the order of take_best():
/// without noise it only copies the first ones. Returns how many were written: the smaller of the two sizes.
inline std::size_t take_best_of_row(std::span<const Proposal> row, std::int64_t position, const PathNoise& noise,
                                    std::span<Proposal> out) {
    if (noise.present()) return take_best(row, position, noise, out);
    const std::size_t n = std::min(row.size(), out.size());
    std::copy_n(row.begin(), n, out.begin());
    return n;
}

}  // namespace slipstream::draft
