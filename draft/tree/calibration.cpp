#include "draft/tree/calibration.h"

#include <algorithm>
#include <cmath>

#include "draft/tree/log_odds.h"
#include "kernels/base/check.h"

namespace slipstream::draft {

namespace {

constexpr float kTrust = 4.0F;     // guesses that the source's own word is worth
constexpr float kMemory = 256.0F;  // expected hits after which a cell begins to forget
constexpr float kMaxRatio = 12.0F;
constexpr float kSurest = 0.98F;      // that an estimate may be
constexpr float kTablesBoast = 4.0F;  // hits that tables, under noise, are in debt with before anything is learnt
constexpr float kMostHits = kMaxRatio * kMemory;  // more say no more
constexpr float kMaxWeight = 2.0F;
constexpr float kMaxBias = 16.0F;
constexpr float kWeightRate = 0.004F;
constexpr float kBiasRate = 0.002F;

// Weights before anything is learnt, by how many agree: those who agree are worth a little more than their mean.
constexpr std::array<float, 4> kShares = {1.0F, 0.55F, 0.4F, 0.325F};
constexpr std::array<float, 4> kModelShare = {1.0F, 0.9F, 0.9F, 0.9F};
constexpr std::array<float, 4> kSharesBesideModel = {0.0F, 0.2F, 0.12F, 0.08F};

}  // namespace

Calibration::Calibration(std::span<const std::uint16_t> n_cells, std::size_t n_models)
    : n_models_(n_models), estimates_((1 + n_models) * kEstimateCells), weights_((1 + n_models) * kMaxAgreeing) {
    CHECK(n_cells.size() <= kMaxSources && n_models <= n_cells.size(), "{} sources", n_cells.size());
    std::size_t n = 0;
    for (const std::uint16_t of_source : n_cells) {
        first_cell_.push_back(n);
        n += of_source;
    }
    cells_.resize(n);
    reset();
}

void Calibration::reset() {
    std::ranges::fill(cells_, Cell{});
    std::ranges::fill(estimates_, Cell{});
    estimates_[0].expected = kTablesBoast;
    refresh(estimates_[0]);
    const std::size_t n_tables = first_cell_.size() - n_models_;
    for (std::size_t set = 0; set < weights_.size(); ++set) {
        const std::size_t agreeing = set % kMaxAgreeing;
        const std::size_t dearest = set / kMaxAgreeing;  // 0: tables alone
        weights_[set].fill(dearest == 0 ? kShares[agreeing] : kSharesBesideModel[agreeing]);
        if (dearest > 0) weights_[set][n_tables + dearest - 1] = kModelShare[agreeing];
    }
    for (Weights& weights : weights_) weights.back() = 0.0F;
}

void Calibration::refresh(Cell& cell) {
    cell.ratio = std::clamp((cell.hits + kTrust) / (cell.expected + kTrust), 1.0F / kMaxRatio, kMaxRatio);
}

void Calibration::learn(std::span<const Input> inputs, float merged, float truth) {
    Weights& weights = weights_[set_of(inputs)];
    const float error = truth - merged;
    for (const Input& input : inputs) {
        weights[input.source] =
            std::clamp(weights[input.source] + kWeightRate * error * (input.log_odds - kUnknown), 0.0F, kMaxWeight);
    }
    learn_cells(inputs, truth);
    weights.back() = std::clamp(weights.back() + kBiasRate * error, -kMaxBias, kMaxBias);
}

void Calibration::learn_cells(std::span<const Input> inputs, float truth) {
    for (const Input& input : inputs) count(cells_[first_cell_[input.source] + input.cell], input.probability, truth);
}

void Calibration::count(Cell& cell, float expected, float hit) {
    cell.hits += hit;
    cell.expected += expected;
    if (cell.expected > kMemory || cell.hits > kMostHits) {
        cell.hits *= 0.5F;
        cell.expected *= 0.5F;
    }
    refresh(cell);
}

std::size_t Calibration::estimate_cell(float merged, float estimate, std::int32_t model) {
    const auto bucket = [](float p) {
        const int below = -std::ilogb(std::max(p, 1e-6F));  // 1: from 1/2 up
        return static_cast<std::size_t>(std::clamp(below - 1, 0, static_cast<int>(kEstimateBuckets) - 1));
    };
    return first_estimate(model) + 1 + bucket(merged) * kEstimateBuckets + bucket(estimate);
}

float Calibration::combined_estimate(float merged, float estimate, std::int32_t model) const {
    const Cell& all = estimates_[first_estimate(model)];
    return std::min(estimate * all.ratio * estimates_[estimate_cell(merged, estimate, model)].ratio, kSurest);
}

void Calibration::learn_estimate(float merged, float estimate, std::int32_t model, float hit) {
    Cell& all = estimates_[first_estimate(model)];
    // The common ratio learns at once, a bucket's what is left.
    count(estimates_[estimate_cell(merged, estimate, model)], estimate * all.ratio, hit);
    count(all, estimate, hit);
}

std::vector<float> Calibration::state() const {
    std::vector<float> state;
    const auto put = [&state](std::span<const Cell> cells) {
        for (const Cell& cell : cells) {
            state.push_back(cell.hits);
            state.push_back(cell.expected);
        }
    };
    put(cells_);
    put(estimates_);
    for (const Weights& weights : weights_) state.insert(state.end(), weights.begin(), weights.end());
    return state;
}

bool Calibration::restore(std::span<const float> state) {
    const std::size_t n_counts = 2 * (cells_.size() + estimates_.size());
    if (state.size() != n_counts + weights_.size() * weights_.front().size()) return false;
    const auto within = [&](std::size_t i) {  // what learning can have come to; NaN is not
        if (i < n_counts) return state[i] >= 0.0F && state[i] <= kMostHits;
        const bool is_bias = (i - n_counts + 1) % weights_.front().size() == 0;
        return is_bias ? std::abs(state[i]) <= kMaxBias : state[i] >= 0.0F && state[i] <= kMaxWeight;
    };
    for (std::size_t i = 0; i < state.size(); ++i)
        if (!within(i)) return false;
    auto next = state.begin();
    const auto take = [&next](std::span<Cell> cells) {
        for (Cell& cell : cells) {
            cell.hits = *next++;
            cell.expected = *next++;
            refresh(cell);
        }
    };
    take(cells_);
    take(estimates_);
    for (Weights& weights : weights_)
        for (float& weight : weights) weight = *next++;
    return true;
}

}  // namespace slipstream::draft
