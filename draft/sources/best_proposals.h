// The order in which every source hands out its proposals: by log p + gumbel, best first (E2), ties to the
// lowest token, so that nothing depends on how they were found.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "draft/sources/table_source.h"
#include "draft/tree/noise_bar.h"
#include "kernels/base/check.h"

namespace slipstream::draft {

/// Most candidates that one propose() looks at.
inline constexpr std::size_t kMaxCandidates = 64;

/// Writes the best of `found` (at most kMaxCandidates, distinct tokens) to `out`, best first; returns how many. Where
/// few are wanted, most are passed over by their random words alone.
inline std::size_t take_best(std::span<const Proposal> found, std::int64_t position, const PathNoise& noise,
                             std::span<Proposal> out) {
    struct Ranked {
        float rank;
        std::uint32_t index;
    };
    CHECK(found.size() <= kMaxCandidates, "{} candidates", found.size());
    std::array<Ranked, kMaxCandidates> ranked;
    const auto better = [&found](const Ranked& a, const Ranked& b) {
        if (a.rank != b.rank) return a.rank > b.rank;
        return found[a.index].token < found[b.index].token;
    };
    const std::size_t most = std::min(found.size(), out.size());
    std::size_t n = 0;
    NoiseBar bar;
    for (std::uint32_t i = 0; i < found.size() && most > 0; ++i) {
        const Proposal& proposal = found[i];
        const bool full = n == most;
        if (full && noise.present() && !bar.may_pass(proposal.probability, noise.word(position, proposal.token)))
            continue;
        const Ranked next{noise.rank(proposal.probability, position, proposal.token), i};
        if (full && !better(next, ranked[n - 1])) continue;
        std::size_t place = full ? n - 1 : n++;
        for (; place > 0 && better(next, ranked[place - 1]); --place) ranked[place] = ranked[place - 1];
        ranked[place] = next;
        if (n == most && noise.present()) bar.raise(ranked[n - 1].rank);
    }
    for (std::size_t i = 0; i < n; ++i) out[i] = found[ranked[i].index];
    return n;
}

}  // namespace slipstream::draft
