#include "draft/tree/votes.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "draft/log_odds.h"
#include "kernels/base/check.h"

namespace slipstream::draft {

namespace {

constexpr float kUnnamed = 2e-3F;       // probability of a token that a model was asked about and did not propose
constexpr float kMostCertain = 0.98F;   // upper bound of the probability of a node's most probable child
constexpr float kAllCertain = 0.99F;    // upper bound of the probability of all children of a node together
constexpr float kLeastCertain = 1e-5F;  // lower bound of a probability before its logarithm
// Exponent: how far the probabilities of tables are trusted if noise decides (1: fully, 0: not at all). Tuned on the
// bundled pair of models at temperature 0.8.
constexpr float kTableTrust = 0.6F;
// Weight of the tokens that the model did not propose. 0.1 to 0.3 give the same surprise; 1, with a rank_error() of
// 0.4, gives 0.6 nats.
constexpr float kRestHeard = 0.2F;

// Returns the number of bins of each source: `n_bins`, with one more for each model (the last n_models sources), which
// is for the model's votes against tokens.
std::vector<std::uint16_t> with_against(std::span<const std::uint16_t> n_bins, std::size_t n_models) {
    std::vector<std::uint16_t> bins(n_bins.begin(), n_bins.end());
    for (std::size_t i = bins.size() - n_models; i < bins.size(); ++i) ++bins[i];
    return bins;
}

}  // namespace

Votes::Votes(std::span<const std::uint16_t> n_bins, std::span<const float> rank_errors, std::int64_t vocab)
    : first_model_(n_bins.size() - rank_errors.size()),
      rank_errors_(rank_errors.begin(), rank_errors.end()),
      calibration_(with_against(n_bins, rank_errors.size()), rank_errors.size()),
      slots_(vocab) {
    CHECK(std::ranges::all_of(rank_errors_, [](float error) { return error > 0.0F; }), "an error of 0 or less");
}

void Votes::begin(bool noisy) {
    noisy_ = noisy;
    tokens_.clear();
    inputs_.clear();
}

void Votes::open() {
    votes_.clear();
    first_ = tokens_.size();
}

void Votes::add(std::uint16_t source, std::span<const Proposal> proposals) {
    const bool is_model = source >= first_model_;
    if (is_model)
        for (VotedToken& token : std::span(tokens_).subspan(first_)) token.by_model = false;
    for (const Proposal& proposal : proposals) {
        std::uint32_t& slot = slots_[proposal.token];
        if (slot == 0) {
            tokens_.push_back({.token = proposal.token});
            slot = static_cast<std::uint32_t>(tokens_.size() - first_);
        }
        tokens_[first_ + slot - 1].by_model = is_model;
        add_vote(slot - 1, source, static_cast<std::uint16_t>(proposal.bin + (is_model ? 1 : 0)), proposal.probability);
    }
    for (std::size_t slot = 0; is_model && first_ + slot < tokens_.size(); ++slot)
        if (!tokens_[first_ + slot].by_model) add_vote(slot, source, kAgainst, kUnnamed);
}

void Votes::add_vote(std::size_t slot, std::uint16_t source, std::uint16_t bin, float probability) {
    ++tokens_[first_ + slot].n_votes;
    votes_.push_back({.slot = static_cast<std::uint32_t>(slot),
                      .input = {.source = source,
                                .bin = bin,
                                .probability = probability,
                                .log_odds = calibration_.corrected_log_odds(source, bin, probability)}});
}

Votes::Range Votes::count(const Range& known, std::int32_t model, std::int64_t position, const PathNoise& noise) {
    const std::span<VotedToken> made = std::span(tokens_).subspan(first_);
    for (const VotedToken& before : of(known))
        if (const std::uint32_t slot = slots_[before.token]; slot != 0) made[slot - 1].node = before.node;
    auto place = static_cast<std::uint32_t>(inputs_.size());
    for (VotedToken& token : made) {
        slots_[token.token] = 0;
        token.first_vote = place;
        place += token.n_votes;
        token.n_votes = 0;
    }
    inputs_.resize(place);
    for (const Vote& vote : votes_) {
        VotedToken& token = made[vote.slot];
        inputs_[token.first_vote + token.n_votes++] = vote.input;
    }
    for (VotedToken& token : made) token.merged = calibration_.merge(that_count(token));
    estimate(made, model, position, noise);
    return {static_cast<std::int32_t>(first_), static_cast<std::int32_t>(made.size()), model};
}

// With noise, only the last vote counts if it is one of the most expensive model; otherwise all votes count.
std::span<const Calibration::Input> Votes::that_count(const VotedToken& token) const {
    const std::span<const Calibration::Input> votes = votes_for(token);
    return noisy_ && token.by_model ? votes.last(1) : votes;
}

// With noise the target takes the greatest log p + gumbel. Given its own noise, a token of probability c wins against
// all others with probability exp(-(1 - c) / c e^-gumbel). But q, the tables' probability, is a mean over values that c
// may have at this position: it is taken as c = q^trust with probability q^(1 - trust), else c = 0. With full trust
// that is the exact probability; with none the noise has no influence, and q stays.
void Votes::chance_by_tables(VotedToken& token, std::int64_t position, const PathNoise& noise) {
    const float likely = std::exp(kTableTrust * rough_log(std::max(token.merged, kLeastCertain)));
    token.chance =
        token.merged / likely * std::exp(-(1.0F - likely) / likely * std::exp(-noise.gumbel(position, token.token)));
}

// A model's probabilities are for this very position, so its candidates compete by log p + gumbel, by a softmax of
// which `rank_error` is the temperature: the smaller it is, the more certain is the best one. They also compete with
// the rest of the vocabulary, whose greatest log p + gumbel is Gumbel-distributed around the log of its mass. But the
// candidates were proposed because of the known noise, so the rest has already lost against them, and only kRestHeard
// of it counts.
void Votes::chances_by_model(std::span<VotedToken> tokens, float rank_error, std::int64_t position,
                             const PathNoise& noise) {
    float best = -std::numeric_limits<float>::infinity();
    float mass = 0.0F;
    for (VotedToken& token : tokens) {
        if (!token.by_model) continue;
        mass += token.merged;
        token.chance = noise.rank(std::max(token.merged, kLeastCertain), position, token.token);
        best = std::max(best, token.chance);
    }
    const float rest = 1.0F - std::min(mass, kMostCertain);
    float total = 0.0F;
    for (VotedToken& token : tokens) {
        if (!token.by_model) continue;
        const float rank = token.chance;
        const float weight = std::exp((rank - best) / rank_error);
        total += weight;
        token.chance = weight * std::exp(-kRestHeard * rest * std::exp(-rank));
    }
    for (VotedToken& token : tokens)
        if (token.by_model) token.chance /= total;
}

void Votes::estimate(std::span<VotedToken> tokens, std::int32_t model, std::int64_t position,
                     const PathNoise& noise) const {
    if (tokens.empty()) return;
    for (VotedToken& token : tokens) {
        token.chance = token.merged;
        if (!noisy_ || token.by_model) continue;
        // A token that the model did not propose is below its filters, probably also below the target's; tables cannot
        // know better.
        if (model >= 0) {
            token.chance = 0.0F;
        } else {
            chance_by_tables(token, position, noise);
        }
    }
    if (noisy_ && model >= 0) chances_by_model(tokens, rank_errors_[model], position, noise);
    float sum = 0.0F;
    for (const VotedToken& token : tokens) sum += token.chance;
    const auto likeliest = std::ranges::max_element(tokens, {}, &VotedToken::chance);
    const float most = likeliest->chance;
    // If the sum is too great, the other candidates are scaled down: many doubtful votes do not make a certain one less
    // certain.
    const float most_left = std::min(most, kMostCertain);
    const float scale = sum > kAllCertain ? (kAllCertain - most_left) / std::max(sum - most, kLeastCertain) : 1.0F;
    for (VotedToken& token : tokens) {
        token.chance = &token == &*likeliest ? most_left : token.chance * std::min(scale, 1.0F);
        token.estimate = noisy_ ? calibration_.combined_estimate(token.merged, token.chance, model) : token.chance;
    }
}

void Votes::learn(const Range& range, TokenId came, const TargetProbabilities* target) {
    const std::span<VotedToken> tokens = of(range);
    for (const VotedToken& token : tokens) {
        const float hit = token.token == came ? 1.0F : 0.0F;
        const std::span<const Calibration::Input> votes = votes_for(token);
        const std::span<const Calibration::Input> counted = that_count(token);
        if (!noisy_) {
            calibration_.learn(counted, token.merged, hit);
            continue;
        }
        if (target != nullptr) {
            const float truth = target->probability(token.token);
            calibration_.learn(counted, token.merged, truth);
            calibration_.learn_bins(votes.first(votes.size() - counted.size()), truth);
        }
        if (token.chance > 0.0F) calibration_.learn_estimate(token.merged, token.chance, range.model, hit);
    }
}

}  // namespace slipstream::draft
