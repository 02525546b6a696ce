// How the tokens of a text use the experts of a layer: counts, by which slots are given, and hits that slots would have
// had, by their number. It outlives a run (tools/engine/kept_expert_counts).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/experts/slot_choice.h"

namespace slipstream {

/// How committed tokens, in their order, used the experts of a layer. The rank of an expert is the number of experts
/// with higher counts. Slots go to the experts of the highest counts, so a chosen expert had a slot if its rank was
/// below the number of slots; an expert whose count has just risen gets its slot some tokens later. The rank of a
/// chosen expert is taken before the token itself is counted. Another estimate of hits is too high: the share that the
/// highest counts have of all counts. Counts cover about 50 tokens, so some are high by chance ("Experts: hits by rank"
/// in runtime/NOTES.md).
class ExpertUse {
public:
    /// Tokens that counts need to settle: the sum of the weights that they give to tokens, 1 / (1 - kDecay). Ranks are
    /// noted from then on.
    static constexpr std::uint64_t kSettlingTokens = 50;
    /// Each token multiplies the ranks that are noted by this: about the last 4096 tokens count, few enough to follow
    /// what the user writes.
    static constexpr float kRankDecay = 1.0F - 1.0F / 4096.0F;
    /// Tokens with ranks that hits() requires. Each chooses some experts: with 4, the standard deviation of a layer's
    /// share is at most sqrt(.25 / (4 * 256)) = .016 if choices were independent. Neighbours are alike, so it is more;
    /// the mean over tens of layers is less.
    static constexpr std::uint64_t kLeastRankedTokens = 256;

    /// A layer without experts, or of which nothing is known.
    ExpertUse() : ExpertUse(0) {}
    explicit ExpertUse(std::int64_t n_experts)
        : counts_(n_experts), ranks_(static_cast<std::size_t>(n_experts), 0.0F) {}
    /// Returns the use with these members. Returns no value unless both spans have `n_experts` numbers, each finite, at
    /// least 0, and no larger than add() makes them.
    [[nodiscard]] static std::optional<ExpertUse> restored(std::int64_t n_experts, std::span<const float> counts,
                                                           std::span<const float> ranks, std::uint64_t n_tokens);

    /// `chosen`: the experts that a token chose, each once; empty if that is not known.
    void add(std::span<const std::uint16_t> chosen);

    [[nodiscard]] std::int64_t n_experts() const { return static_cast<std::int64_t>(ranks_.size()); }
    [[nodiscard]] const ExpertCounts& counts() const { return counts_; }
    /// Returns [n_experts]: how often tokens chose the expert of that rank, each token's share decayed by kRankDecay.
    [[nodiscard]] std::span<const float> ranks() const { return ranks_; }
    /// Returns the tokens that were added, those of which nothing was known left out.
    [[nodiscard]] std::uint64_t n_tokens() const { return n_tokens_; }
    /// Returns [n_experts + 1]: with 0, 1, ... slots, the share, 0 to 1, of chosen experts that had one. Empty if too
    /// few tokens were added.
    [[nodiscard]] std::vector<double> hits() const;

private:
    ExpertCounts counts_;
    std::vector<float> ranks_;  // [n_experts]
    std::uint64_t n_tokens_ = 0;
};

/// Returns up to `n` experts that tokens chose, those of the highest counts first (ties: lower id).
[[nodiscard]] std::vector<std::int32_t> most_used(std::span<const float> counts, std::int64_t n);

}  // namespace slipstream
