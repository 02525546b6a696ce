#include "draft/sources/context_mixer.h"

#include <algorithm>

#include "draft/log_odds.h"

namespace slipstream::draft {

namespace {

constexpr float kLowest = 0.0003F;  // least probability of a bin when log-odds are computed (kHighest: greatest)
constexpr float kHighest = 0.995F;
constexpr float kMemory = 400.0F;                // most observations that a bin's mean spans
constexpr float kConfidence = 8.0F;              // observations that a bin's built-in probability counts as
constexpr float kWeightRate = 0.005F;            // step of gradient descent on the weights of orders
constexpr float kMostWeight = 8.0F;              // bound of a weight's absolute value
constexpr float kBiasRate = 0.3F * kWeightRate;  // step of gradient descent on the constant

float log_odds_of(float probability) {
    return log_odds(std::clamp(probability, kLowest, kHighest));
}

}  // namespace

ContextMixer::ContextMixer() : bins_(kOrders * kBuckets * kBuckets * kRanks) {
    reset();
}

void ContextMixer::reset() {
    constexpr std::array<float, kBuckets> typical = {0.0F, 1.0F, 2.0F, 3.0F, 4.5F, 7.0F, 14.0F, 30.0F};
    for (int order = 0; order < kOrders; ++order)
        for (int count = 0; count < kBuckets; ++count)
            for (int rest = 0; rest < kBuckets; ++rest)
                for (int rank = 0; rank < kRanks; ++rank) {
                    const float c = typical[count];
                    const float r = typical[rest];
                    float p = (c + (order > 0 ? 0.05F : 0.001F)) / (c + r + (order > 0 ? 2.0F : 4.0F));
                    if (count == 0) p = 0.02F / (1.0F + r);
                    p = std::clamp(p, 0.0005F, 0.98F);
                    bins_[bin(order, count, rest, rank)] = {.probability = p, .log_odds = log_odds_of(p)};
                }
    for (int longest = 0; longest < kOrders; ++longest)
        for (int gap = 0; gap < 4; ++gap) {
            Weights& weights = weights_[longest * 4 + gap];
            for (int order = 0; order < kOrders; ++order)
                weights[order] = order > longest ? 0.0F : order == longest ? 0.5F : 0.25F;
            weights.back() = 0.0F;
        }
    changed_.clear();
}

void ContextMixer::learn(std::span<const BinIndex> bins, int longest, int highest, float predicted, float hit) {
    Weights& weights = weights_[set_of(longest, highest)];
    const float error = hit - predicted;
    for (std::size_t order = 0; order < bins.size(); ++order) {
        Bin& bin = bins_[bins[order]];
        weights[order] = std::clamp(weights[order] + kWeightRate * error * bin.log_odds, -kMostWeight, kMostWeight);
        bin.n = std::min(bin.n + 1.0F, kMemory);
        bin.probability += (hit - bin.probability) / (bin.n + kConfidence);
        if (!bin.changed) changed_.push_back(bins[order]);
        bin.changed = true;
    }
    weights.back() = std::clamp(weights.back() + kBiasRate * error, -kMostWeight, kMostWeight);
}

void ContextMixer::refresh() {
    for (const BinIndex index : changed_) {
        bins_[index].changed = false;
        bins_[index].log_odds = log_odds_of(bins_[index].probability);
    }
    changed_.clear();
}

std::vector<float> ContextMixer::state() const {
    std::vector<float> state;
    for (const Bin& bin : bins_) {
        state.push_back(bin.probability);
        state.push_back(bin.n);
    }
    for (const Weights& weights : weights_) state.insert(state.end(), weights.begin(), weights.end());
    return state;
}

bool ContextMixer::restore(std::span<const float> state) {
    const std::size_t n_weights = weights_.size() * weights_.front().size();
    if (state.size() != 2 * bins_.size() + n_weights) return false;
    for (std::size_t i = 0; i < state.size(); ++i) {
        // Accepts only values that learning can produce; NaN fails the comparisons.
        const bool of_bin = i < 2 * bins_.size();
        const float most = !of_bin ? kMostWeight : i % 2 == 0 ? 1.0F : kMemory;
        if (!(state[i] >= (of_bin ? 0.0F : -most) && state[i] <= most)) return false;
    }
    for (std::size_t i = 0; i < bins_.size(); ++i)
        bins_[i] = {.probability = state[2 * i], .n = state[2 * i + 1], .log_odds = log_odds_of(state[2 * i])};
    auto weight = state.begin() + static_cast<std::ptrdiff_t>(2 * bins_.size());
    for (Weights& weights : weights_) {
        std::copy_n(weight, weights.size(), weights.begin());
        weight += static_cast<std::ptrdiff_t>(weights.size());
    }
    changed_.clear();
    return true;
}

}  // namespace slipstream::draft
