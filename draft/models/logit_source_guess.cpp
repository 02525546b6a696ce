// The proposals for an expanded node: the second part of LogitSource.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "draft/models/logit_source.h"
#include "draft/sources/best_proposals.h"
#include "kernels/base/check.h"

namespace slipstream::draft {

namespace {

constexpr std::uint16_t kCertainties = 10;
constexpr std::uint16_t kRankClasses = 6;

std::uint16_t rank_class(std::size_t rank) {
    if (rank < 4) return static_cast<std::uint16_t>(rank);
    return rank < 8 ? 4 : 5;
}

using Borders = std::array<float, kCertainties - 1>;

std::uint16_t certainty_of_probability(float p) {
    constexpr Borders borders = {0.9F, 0.75F, 0.6F, 0.45F, 0.3F, 0.2F, 0.1F, 0.05F, 0.02F};
    return static_cast<std::uint16_t>(std::ranges::count_if(borders, [p](float border) { return p < border; }));
}

std::uint16_t certainty_of_gap(float gap) {
    constexpr Borders borders = {0.1F, 0.25F, 0.5F, 0.8F, 1.2F, 1.7F, 2.4F, 3.3F, 4.5F};
    return static_cast<std::uint16_t>(std::ranges::count_if(borders, [gap](float border) { return gap > border; }));
}

}  // namespace

std::uint16_t LogitSource::n_bins() const {
    return kRankClasses * kCertainties;
}

std::span<const float> LogitSource::logits(TreeNode node) const {
    CHECK(!logits_.empty(), "a source that keeps the best of a row alone");
    return {logits_.data() + index_of(node) * n_ids_, static_cast<std::size_t>(n_ids_)};
}

// Returns the tokens that the penalty sees before the children of expanded_[index], valid until the next call; empty if
// there is no penalty.
std::span<const TokenId> LogitSource::path_of(std::int32_t index) {
    history_.resize(n_history_);
    if (n_history_ == 0) return {};
    for (std::int32_t at = index; at > 0; at = expanded_[at].parent) history_.push_back(expanded_[at].token);
    std::reverse(history_.begin() + static_cast<std::ptrdiff_t>(n_history_), history_.end());
    return history_;
}

std::span<const Candidate> LogitSource::distribution(TreeNode node) {
    return sampler_.distribution(logits(node), path_of(index_of(node)));
}

std::size_t LogitSource::propose(TreeNode node, std::int64_t position, const PathNoise& noise,
                                 std::span<Proposal> out) {
    const std::int32_t index = index_of(node);
    list_.fill(best_of(index), path_of(index));
    const std::span<const Guess> guesses = list_.guesses();
    std::array<Proposal, kMaxCandidates> found;
    for (std::size_t i = 0; i < guesses.size(); ++i)
        found[i] = {.token = guesses[i].token, .probability = std::min(guesses[i].probability, 1.0F - 0x1p-24F)};
    // Ranks the survivors of the filters by the noise; other tokens follow. One proposal more than is wanted is ranked,
    // since the certainty of the best is its distance to the second.
    std::array<Proposal, kMaxCandidates> ranked;
    const std::size_t n_ranked = take_best_of_row(std::span(found).first(list_.n_surviving()), position, noise,
                                                  std::span(ranked).first(std::min(out.size() + 1, kMaxCandidates)));
    const auto value = [&](std::size_t i) { return noise.rank(ranked[i].probability, position, ranked[i].token); };
    const std::size_t n = std::min(out.size(), guesses.size());
    for (std::size_t i = 0; i < n; ++i) {
        out[i] = i < n_ranked ? ranked[i] : found[i];
        std::uint16_t certainty = certainty_of_probability(out[i].probability);
        if (noise.present()) {
            // Certainty is the gap in log p + gumbel to the best other candidate. If one of the two did not survive the
            // filters, the gap counts as infinite.
            const std::size_t other = i == 0 ? 1 : 0;
            const bool compared = std::max(i, other) < n_ranked;
            certainty =
                certainty_of_gap(compared ? std::abs(value(i) - value(other)) : std::numeric_limits<float>::infinity());
        }
        out[i].bin = static_cast<std::uint16_t>(rank_class(i) * kCertainties + certainty);
    }
    return n;
}

}  // namespace slipstream::draft
