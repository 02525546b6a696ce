// What a draft model says behind a node that was expanded: the second part of DraftModel.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "draft/rungs/draft_model.h"
#include "draft/stopwatch.h"
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

std::uint16_t DraftModel::n_cells() const {
    return kRankClasses * kCertainties;
}

std::span<const float> DraftModel::logits(std::int32_t node) const {
    CHECK(best_.empty(), "a draft model that keeps the best of a row alone");
    return {reinterpret_cast<const float*>(logits_.data()) + index_of(node) * n_ids_, static_cast<std::size_t>(n_ids_)};
}

// The tokens that the penalty sees in front of a node's children; none where there is no penalty.
std::span<const TokenId> DraftModel::path_of(std::int32_t index) {
    history_.resize(n_history_);
    if (n_history_ == 0) return {};
    for (std::int32_t at = index; at > 0; at = expanded_[static_cast<std::size_t>(at)].parent)
        history_.push_back(expanded_[static_cast<std::size_t>(at)].token);
    std::reverse(history_.begin() + static_cast<std::ptrdiff_t>(n_history_), history_.end());
    return history_;
}

std::span<const Candidate> DraftModel::distribution(std::int32_t node) {
    return sampler_.distribution(logits(node), path_of(index_of(node)));
}

// ranked_ becomes the best `n_wanted` of the list and one more: the survivors of the filters, by the noise, then
// others.
void DraftModel::rank(std::int64_t position, const PathNoise& noise, std::size_t n_wanted) {
    const auto better = [](const Ranked& a, const Ranked& b) {
        return a.value > b.value || (a.value == b.value && a.token < b.token);
    };
    const std::span<const Guess> guesses = list_.guesses();
    const std::span<const Guess> surviving = guesses.first(list_.n_surviving());
    const std::size_t n_kept = std::min(n_wanted + 1, guesses.size());
    // log p is the logit, but for a constant.
    const auto value_of = [&](const Guess& guess) { return guess.logit + noise.gumbel(position, guess.token); };
    const auto most_of = [&](const Guess& guess) {
        const auto id = static_cast<std::uint32_t>(guess.token);
        const PhiloxBlock block =
            noise_block(noise.seed(), static_cast<std::uint64_t>(position), id / 4, NoiseStream::Sampling);
        return guess.logit + (noise.present() ? gumbel_upper_bound(block.word[id % 4]) : 0.0F);
    };
    ranked_.clear();
    for (const Guess& guess : surviving) {
        const bool full = ranked_.size() == n_kept;
        // The list falls and the worst that is kept rises, so that most of a long list ends here.
        if (full && most_of(guess) < ranked_.front().value) continue;
        const Ranked child{value_of(guess), guess.token, guess.probability};
        if (full && !better(child, ranked_.front())) continue;
        if (full) {
            std::ranges::pop_heap(ranked_, better);
            ranked_.pop_back();
        }
        ranked_.push_back(child);
        std::ranges::push_heap(ranked_, better);
    }
    std::ranges::sort_heap(ranked_, better);
    for (std::size_t i = surviving.size(); i < guesses.size() && ranked_.size() < n_kept; ++i)
        ranked_.push_back({guesses[i].logit, guesses[i].token, guesses[i].probability});
}

void DraftModel::fill_list(std::int32_t node) {
    const std::int32_t index = index_of(node);
    if (best_.empty()) return list_.fill(logits(node), path_of(index));
    const BestTokens& best = best_[static_cast<std::size_t>(index)];
    list_.fill(std::span(best.ids).first(best.n), std::span(best.logits).first(best.n), path_of(index));
}

std::size_t DraftModel::propose(std::int32_t node, std::int64_t position, const PathNoise& noise,
                                std::span<Proposal> out) {
    const auto start = Clock::now();
    fill_list(node);
    rank(position, noise, out.size());
    const std::size_t n = std::min(out.size(), ranked_.size());
    for (std::size_t i = 0; i < n; ++i) {
        const Ranked& child = ranked_[i];
        std::uint16_t certainty = certainty_of_probability(child.probability);
        if (noise.present()) {
            // What the filters cut off is as good as lost, and whoever they leave alone as good as sure.
            const std::size_t other = i == 0 ? 1 : 0;
            const bool compared = std::max(i, other) < list_.n_surviving();
            certainty = certainty_of_gap(compared ? std::abs(child.value - ranked_[other].value)
                                                  : std::numeric_limits<float>::infinity());
        }
        out[i] = {.token = child.token,
                  .probability = std::min(child.probability, 1.0F - 0x1p-24F),
                  .cell = static_cast<std::uint16_t>(rank_class(i) * kCertainties + certainty)};
    }
    constexpr double rate = 0.1;
    propose_seconds_ += rate * (seconds_since(start) - propose_seconds_);
    return n;
}

}  // namespace slipstream::draft
