// How many experts a pass reads and, where experts have slots (device memory of one expert of a layer), copies: what a
// plan expects before the text is known.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/experts/distinct_experts.h"

namespace slipstream {

/// Returns the probability that a pass of `n_tokens` tokens, which choose experts independently and evenly, reads an
/// expert that a token chooses with probability `chosen_share`. Real tokens choose more alike, so a pass reads at most
/// so much.
[[nodiscard]] double expected_share(double chosen_share, double n_tokens);

/// Experts of a layer, and how many of them a token chooses: 1 <= n_chosen <= n_experts.
struct ExpertChoice {
    std::int64_t n_experts = 0;
    std::int64_t n_chosen = 0;
    friend bool operator==(const ExpertChoice&, const ExpertChoice&) = default;
};

/// How texts of earlier runs used the experts of a layer. An empty vector: too little is known.
struct CountedExperts {
    std::vector<double> hits{};             // [n_experts + 1]: hits with 0, 1, ... slots
    std::vector<DistinctPoint> distinct{};  // DistinctExperts::points()
};

/// Returns D(n), the distinct experts of a layer that a pass of n = `n_tokens` (>= 1) tokens is expected to need:
/// n_chosen of one token, at most n_experts; never falls with the tokens. `counted`: measured points of D(n), as
/// CountedExperts has them. If there are none, tokens choose independently and evenly (expected_share()). Otherwise
/// D(n) is that of m tokens that choose so: at a measured point, m follows from D; between two points, m is
/// interpolated linearly in log m over log n; past the last one that line goes on, with a slope of at most 1.
[[nodiscard]] double expected_distinct(const ExpertChoice& choice, double n_tokens,
                                       std::span<const DistinctPoint> counted = {});

/// Returns the expected hits of a layer with `n_slots` slots: the share, 0 to 1, of the experts chosen by a token that
/// have a slot by then. Rises with the slots from 0 to 1. `counted`, [n_experts + 1], are the hits that earlier texts
/// had with 0, 1, ... slots; empty: they are a prior from a few public traces, whose limits are with its figures in
/// expert_misses.cpp. `miss_factor` (>= 0) multiplies misses, 1 - hits.
[[nodiscard]] double expected_hits(const ExpertChoice& choice, std::int64_t n_slots, double miss_factor = 1.0,
                                   std::span<const double> counted = {});

/// Returns [n_experts + 1]: how many experts of a layer a pass of `n_tokens` tokens is expected to copy if the layer
/// has 0, 1, ... slots. Never rises with the slots: from all that the pass reads (expected_distinct()) to 0. Never
/// falls with the tokens. At most what tokens miss that choose evenly and independently among the experts without a
/// slot.
[[nodiscard]] std::vector<double> expected_misses(const ExpertChoice& choice, double n_tokens, double miss_factor = 1.0,
                                                  const CountedExperts& counted = {});

}  // namespace slipstream
