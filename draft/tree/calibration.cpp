#include "draft/tree/calibration.h"

#include <algorithm>
#include <cmath>

#include "draft/log_odds.h"
#include "kernels/base/check.h"

namespace slipstream::draft {

namespace {

constexpr float kTrust = 4.0F;      // prior of a bin, in expected hits: weight of the source's own estimate
constexpr float kMemory = 256.0F;   // expected hits after which both counts of a bin are halved
constexpr float kMaxRatio = 12.0F;  // greatest correction of a probability, in either direction
// Upper bound of an estimate under noise. Above Votes' own bound of 0.98 only by a ratio that was learnt.
constexpr float kHighestEstimate = 0.995F;
// Expected hits assumed for tables before any data: with kTrust = 4 their estimates under noise start at half.
constexpr float kTablePriorCount = 4.0F;
constexpr float kMostHits = kMaxRatio * kMemory;  // greatest count of a bin's hits
constexpr float kMaxWeight = 2.0F;                // upper bound of a source's weight
constexpr float kMaxBias = 16.0F;                 // bound of the constant's absolute value
constexpr float kWeightRate = 0.004F;             // step of gradient descent on the weights
constexpr float kBiasRate = 0.002F;               // step of gradient descent on the constant

// Weight of each vote before any data if tables alone vote, by the number of votes on the token (1 to 4). With several
// votes the weights sum to a little more than 1, so agreeing tables together weigh more than the mean of their votes.
constexpr std::array<float, 4> kShares = {1.0F, 0.55F, 0.4F, 0.325F};
// Weight of the most expensive model that votes, before any data, by the number of votes on the token.
constexpr std::array<float, 4> kModelShare = {1.0F, 0.9F, 0.9F, 0.9F};
// Weight of each other source that votes beside a model, before any data, by the number of votes on the token.
constexpr std::array<float, 4> kSharesBesideModel = {0.0F, 0.2F, 0.12F, 0.08F};

}  // namespace

Calibration::Calibration(std::span<const std::uint16_t> n_bins, std::size_t n_models)
    : n_models_(n_models), estimates_((1 + n_models) * kEstimateBins), weights_((1 + n_models) * kMaxAgreeing) {
    CHECK(n_bins.size() <= kMaxSources && n_models <= n_bins.size(), "{} sources", n_bins.size());
    std::size_t n = 0;
    for (const std::uint16_t of_source : n_bins) {
        first_bin_.push_back(n);
        n += of_source;
    }
    bins_.resize(n);
    reset();
}

void Calibration::reset() {
    std::ranges::fill(bins_, Bin{});
    std::ranges::fill(estimates_, Bin{});
    estimates_[0].expected = kTablePriorCount;
    refresh(estimates_[0]);
    const std::size_t n_tables = first_bin_.size() - n_models_;
    for (std::size_t set = 0; set < weights_.size(); ++set) {
        const std::size_t agreeing = set % kMaxAgreeing;
        const std::size_t dearest = set / kMaxAgreeing;  // 1 + the most expensive model that votes; 0: tables alone
        weights_[set].fill(dearest == 0 ? kShares[agreeing] : kSharesBesideModel[agreeing]);
        if (dearest > 0) weights_[set][n_tables + dearest - 1] = kModelShare[agreeing];
    }
    for (Weights& weights : weights_) weights.back() = 0.0F;
}

void Calibration::refresh(Bin& bin) {
    bin.ratio = std::clamp((bin.hits + kTrust) / (bin.expected + kTrust), 1.0F / kMaxRatio, kMaxRatio);
}

void Calibration::learn(std::span<const Input> inputs, float merged, float truth) {
    Weights& weights = weights_[set_of(inputs)];
    const float error = truth - merged;
    for (const Input& input : inputs) {
        weights[input.source] =
            std::clamp(weights[input.source] + kWeightRate * error * (input.log_odds - kUnknown), 0.0F, kMaxWeight);
    }
    learn_bins(inputs, truth);
    weights.back() = std::clamp(weights.back() + kBiasRate * error, -kMaxBias, kMaxBias);
}

void Calibration::learn_bins(std::span<const Input> inputs, float truth) {
    for (const Input& input : inputs) count(bins_[first_bin_[input.source] + input.bin], input.probability, truth);
}

void Calibration::count(Bin& bin, float expected, float hit) {
    bin.hits += hit;
    bin.expected += expected;
    if (bin.expected > kMemory || bin.hits > kMostHits) {
        bin.hits *= 0.5F;
        bin.expected *= 0.5F;
    }
    refresh(bin);
}

std::size_t Calibration::estimate_bin(float merged, float estimate, std::int32_t model) {
    const auto bucket = [](float p) {
        const int below = -std::ilogb(std::max(p, 1e-6F));  // binary exponent: 1 for p in [1/2, 1), 2 for [1/4, 1/2)
        return std::clamp(below - 1, 0, static_cast<int>(kEstimateBuckets) - 1);
    };
    return first_estimate(model) + 1 + bucket(merged) * kEstimateBuckets + bucket(estimate);
}

float Calibration::combined_estimate(float merged, float estimate, std::int32_t model) const {
    const Bin& all = estimates_[first_estimate(model)];
    return std::min(estimate * all.ratio * estimates_[estimate_bin(merged, estimate, model)].ratio, kHighestEstimate);
}

void Calibration::learn_estimate(float merged, float estimate, std::int32_t model, float hit) {
    Bin& all = estimates_[first_estimate(model)];
    // The common ratio learns from the estimate itself, a pair of buckets from what the common ratio leaves to correct.
    count(estimates_[estimate_bin(merged, estimate, model)], estimate * all.ratio, hit);
    count(all, estimate, hit);
}

std::vector<float> Calibration::state() const {
    std::vector<float> state;
    const auto put = [&state](std::span<const Bin> bins) {
        for (const Bin& bin : bins) {
            state.push_back(bin.hits);
            state.push_back(bin.expected);
        }
    };
    put(bins_);
    put(estimates_);
    for (const Weights& weights : weights_) state.insert(state.end(), weights.begin(), weights.end());
    return state;
}

bool Calibration::restore(std::span<const float> state) {
    const std::size_t n_counts = 2 * (bins_.size() + estimates_.size());
    if (state.size() != n_counts + weights_.size() * weights_.front().size()) return false;
    // Whether value i is one that learning can produce; false for NaN.
    const auto within = [&](std::size_t i) {
        if (i < n_counts) return state[i] >= 0.0F && state[i] <= kMostHits;
        const bool is_bias = (i - n_counts + 1) % weights_.front().size() == 0;
        return is_bias ? std::abs(state[i]) <= kMaxBias : state[i] >= 0.0F && state[i] <= kMaxWeight;
    };
    for (std::size_t i = 0; i < state.size(); ++i)
        if (!within(i)) return false;
    auto next = state.begin();
    const auto take = [&next](std::span<Bin> bins) {
        for (Bin& bin : bins) {
            bin.hits = *next++;
            bin.expected = *next++;
            refresh(bin);
        }
    };
    take(bins_);
    take(estimates_);
    for (Weights& weights : weights_)
        for (float& weight : weights) weight = *next++;
    return true;
}

}  // namespace slipstream::draft
