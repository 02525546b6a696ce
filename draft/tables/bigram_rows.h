// The bigram table under the target's temperature, as the sources read it, and its extension: the row's best token,
// then that token's best, and so on (N-Grammys, Stewart et al. 2024, section 4.2, "extended bigram").
//
// Only the best k candidates are kept of a distribution, so its sum at temperature T is estimated: what lies behind the
// k-th candidate, of mass r at T = 1, is taken to be as (im)probable as that candidate p_k, so that it sums to
// r p_k^(1/T - 1). For T < 1 this is at least the truth, for T > 1 at most.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "draft/tables/model_ngrams.h"
#include "draft/tree/path_noise.h"

namespace slipstream::draft {

class BigramRows {
public:
    /// `temperature` as the target samples; 0 (greedy) leaves probabilities as at 1. Of every row the best
    /// min(k, table.k) candidates are kept.
    BigramRows(const BigramTable& table, double temperature, std::int64_t k);

    [[nodiscard]] std::int64_t vocab() const { return vocab_; }
    /// Most candidates of a token.
    [[nodiscard]] std::int64_t k() const { return k_; }

    /// Candidates after `token`, most probable first; fewer than k where the model gave no more.
    [[nodiscard]] std::span<const std::int32_t> tokens(TokenId token) const;
    /// Their probabilities, in (0, 1).
    [[nodiscard]] std::span<const Half> probabilities(TokenId token) const;
    /// The best candidate after `token`, which would stand at `position`: by noise.rank(), without noise the most
    /// probable. -1 where there is none.
    [[nodiscard]] TokenId best(TokenId token, std::int64_t position, const PathNoise& noise) const;

    [[nodiscard]] std::size_t memory_bytes() const;

private:
    std::int64_t vocab_;
    std::int64_t k_;
    std::vector<std::int32_t> tokens_;        // [vocab, k]
    std::vector<Half> probabilities_;         // [vocab, k]
    std::vector<std::uint8_t> n_candidates_;  // [vocab]
};

}  // namespace slipstream::draft
