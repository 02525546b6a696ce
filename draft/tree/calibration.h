// What the sources' estimates are worth, learnt online (README.md, "Why").
//
// Each source tells kinds of guesses apart, its bins. A bin keeps how many of its guesses were right, beside how many
// should have been by what was predicted, over guesses whose parent was accepted; their ratio corrects the source's own
// probability. Sources that name the same token are merged in log-odds, with a weight each, one set for every number of
// agreeing sources, and others for each model that is among them: they draw on the same text, so what they say is not
// independent, and noisy-or would count one observation twice (the folder's page has the figures).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "draft/log_odds.h"
#include "draft/sources/table_source.h"

namespace slipstream::draft {

class Calibration {
public:
    static constexpr std::size_t kMaxSources = 16;

    /// One source's word for one token.
    struct Input {
        std::uint16_t source = 0;
        std::uint16_t bin = 0;
        float probability = 0.0F;  // the source's own
        float log_odds = 0.0F;     // of the corrected one
    };

    /// `n_bins`: of each source, in the order in which inputs name them: tables, then `n_models` models, cheap to
    /// dear, whose votes outweigh the others'.
    explicit Calibration(std::span<const std::uint16_t> n_bins, std::size_t n_models = 0);
    void reset();

    /// Log-odds of the source's own `probability`, corrected by what guesses of this bin turned out to be worth.
    [[nodiscard]] float corrected_log_odds(std::uint16_t source, std::uint16_t bin, float probability) const {
        const Bin& found = bins_[first_bin_[source] + bin];
        return log_odds(std::clamp(probability * found.ratio, kLeastProbability, kSurestWord));
    }
    /// The probability that the sources together give a token: `inputs`, one a source that names it, in
    /// the order of the sources.
    [[nodiscard]] float merge(std::span<const Input> inputs) const {
        const Weights& weights = weights_[set_of(inputs)];
        float sum = weights.back();
        for (const Input& input : inputs) sum += weights[input.source] * (input.log_odds - kUnknown);
        return logistic(kUnknown + sum);
    }

    /// A token that those sources named could have come; `truth`: whether it did (1 or 0), or its probability where the
    /// target tells. `merged`: what merge() gave.
    void learn(std::span<const Input> inputs, float merged, float truth);
    /// The same of words that were not merged: what their bins are worth, not their weights.
    void learn_bins(std::span<const Input> inputs, float truth);

    /// The chance of acceptance in truth, where noise decides: `estimate` as it was reckoned from the noise, corrected
    /// by what such estimates turned out to be worth; filters of the target, above all, are not in the reckoning.
    /// `model`: the dearest that was asked, by its place among models; -1: tables alone.
    [[nodiscard]] float combined_estimate(float merged, float estimate, std::int32_t model) const;
    /// An estimate that combined_estimate() was asked about came true (1) or not (0).
    void learn_estimate(float merged, float estimate, std::int32_t model, float hit);

    [[nodiscard]] std::vector<float> state() const;
    /// False, and nothing changed, where `state` does not fit these sources.
    [[nodiscard]] bool restore(std::span<const float> state);

private:
    // Log-odds of a token of which nothing is known: what agreement is measured from.
    static constexpr float kUnknown = -6.0F;
    static constexpr float kLeastProbability = 1e-6F;
    static constexpr float kSurestWord = 0.995F;
    struct Bin {
        float hits = 0.0F;
        float expected = 0.0F;
        float ratio = 1.0F;  // of hits to expected, with some trust in the source
    };
    static constexpr std::size_t kMaxAgreeing = 4;       // and more
    using Weights = std::array<float, kMaxSources + 1>;  // the constant last

    [[nodiscard]] std::size_t set_of(std::span<const Input> inputs) const {
        const std::size_t agreeing = (inputs.size() < kMaxAgreeing ? inputs.size() : kMaxAgreeing) - 1;
        const std::size_t n_tables = first_bin_.size() - n_models_;
        const std::size_t last = inputs.back().source;
        return (last < n_tables ? 0 : last - n_tables + 1) * kMaxAgreeing + agreeing;
    }
    static void refresh(Bin& bin);
    static void count(Bin& bin, float expected, float hit);
    static constexpr std::size_t kEstimateBuckets = 10;                                    // by powers of two
    static constexpr std::size_t kEstimateBins = 1 + kEstimateBuckets * kEstimateBuckets;  // all; then by bucket
    [[nodiscard]] static std::size_t first_estimate(std::int32_t model) {
        return static_cast<std::size_t>(model + 1) * kEstimateBins;
    }
    [[nodiscard]] static std::size_t estimate_bin(float merged, float estimate, std::int32_t model);

    std::vector<std::size_t> first_bin_;  // [n_sources]
    std::vector<Bin> bins_;
    std::size_t n_models_;
    std::vector<Bin> estimates_;    // [1 + n_models][kEstimateBins]: by tables, then by each model
    std::vector<Weights> weights_;  // [1 + n_models][kMaxAgreeing]: by the dearest model that votes, by how many agree
};

}  // namespace slipstream::draft
