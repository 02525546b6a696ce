// Calibration: learns online how far the sources' estimates can be trusted (README.md, "Decisions").
//
// Each source divides its proposals into bins. For the proposals of a bin whose parent was accepted, the calibration
// counts how many were right and how many the estimates predicted. The ratio corrects the source's probabilities. If
// several sources propose the same token, their log-odds are summed with learnt weights: one set for each number of
// agreeing sources and for each model that is the most expensive among them. Sources read the same text, so their votes
// are not independent; noisy-or would count one observation several times (figures: NOTES.md).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "draft/log_odds.h"
#include "draft/sources/table_source.h"

namespace slipstream::draft {

/// Learns how far the estimates of sources can be trusted, corrects them, and merges votes. Not thread-safe.
class Calibration {
public:
    /// Most sources of one Calibration: each set of weights has room for as many.
    static constexpr std::size_t kMaxSources = 16;

    /// One source's vote on one token.
    struct Input {
        std::uint16_t source = 0;
        std::uint16_t bin = 0;
        float probability = 0.0F;  // the source's estimate, not corrected
        float log_odds = 0.0F;     // log-odds of the corrected estimate
    };

    /// `n_bins`: bins of each source, in the order of Input::source: tables, then `n_models` models, cheap to
    /// expensive. At most kMaxSources sources (CHECKed). The votes of models start with the greater weights.
    explicit Calibration(std::span<const std::uint16_t> n_bins, std::size_t n_models = 0);
    /// Forgets everything learnt.
    void reset();

    /// Returns the log-odds of the source's `probability`, corrected by the accuracy of this bin's proposals.
    [[nodiscard]] float corrected_log_odds(std::uint16_t source, std::uint16_t bin, float probability) const {
        const Bin& found = bins_[first_bin_[source] + bin];
        return log_odds(std::clamp(probability * found.ratio, kLeastProbability, kSurestWord));
    }
    /// Returns the probability of a token by all its votes. `inputs`: at least one, one per source, in the order of the
    /// sources.
    [[nodiscard]] float merge(std::span<const Input> inputs) const {
        const Weights& weights = weights_[set_of(inputs)];
        float sum = weights.back();
        for (const Input& input : inputs) sum += weights[input.source] * (input.log_odds - kUnknown);
        return logistic(kUnknown + sum);
    }

    /// Learns weights and bins from a token that could have come. `inputs`: its votes. `merged`: what merge() returned
    /// for them. `truth`: 1 if the token came, 0 if not, or the target's probability of it if that is known.
    void learn(std::span<const Input> inputs, float merged, float truth);
    /// Learns the bins of votes that merge() did not use; weights stay.
    void learn_bins(std::span<const Input> inputs, float truth);

    /// Returns the probability of acceptance under noise: `estimate`, computed from `merged` and the noise, corrected
    /// by the accuracy of such estimates. The correction accounts for what the computation leaves out, above all the
    /// target's filters. `model`: index among the models of the most expensive one that was asked; -1: only tables.
    [[nodiscard]] float combined_estimate(float merged, float estimate, std::int32_t model) const;
    /// Learns that an estimate, as combined_estimate() got it, was right (hit = 1) or wrong (0).
    void learn_estimate(float merged, float estimate, std::int32_t model, float hit);

    /// Returns the learnt state, for a file.
    [[nodiscard]] std::vector<float> state() const;
    /// Replaces the state. Returns false, and changes nothing, if `state` does not fit these sources or has values out
    /// of range.
    [[nodiscard]] bool restore(std::span<const float> state);

private:
    // Log-odds of a token about which nothing is known: votes count by their distance from it.
    static constexpr float kUnknown = -6.0F;
    // Bounds of a corrected probability, least and greatest: its log-odds stay finite.
    static constexpr float kLeastProbability = 1e-6F;
    static constexpr float kSurestWord = 0.995F;
    // Right and predicted proposals of one kind.
    struct Bin {
        float hits = 0.0F;
        float expected = 0.0F;
        float ratio = 1.0F;  // hits / expected, with a prior of kTrust in both
    };
    static constexpr std::size_t kMaxAgreeing = 4;       // votes on a token; more count as this many
    using Weights = std::array<float, kMaxSources + 1>;  // a weight for each source; last, a constant

    // Returns the index of the weights for these votes.
    [[nodiscard]] std::size_t set_of(std::span<const Input> inputs) const {
        const std::size_t agreeing = (inputs.size() < kMaxAgreeing ? inputs.size() : kMaxAgreeing) - 1;
        const std::size_t n_tables = first_bin_.size() - n_models_;
        const std::size_t last = inputs.back().source;
        return (last < n_tables ? 0 : last - n_tables + 1) * kMaxAgreeing + agreeing;
    }
    // Computes bin.ratio.
    static void refresh(Bin& bin);
    // Adds one proposal to the bin. `expected`: its estimate. `hit`: 1 if it was right, 0 if not, or its true
    // probability.
    static void count(Bin& bin, float expected, float hit);
    static constexpr std::size_t kEstimateBuckets = 10;  // powers of two of a probability
    // Bins of the estimates of one model: one for all estimates, then one for each pair of buckets.
    static constexpr std::size_t kEstimateBins = 1 + kEstimateBuckets * kEstimateBuckets;
    [[nodiscard]] static std::size_t first_estimate(std::int32_t model) {
        return static_cast<std::size_t>(model + 1) * kEstimateBins;
    }
    // Returns the bin of a pair of probabilities: bucket of `merged` x bucket of `estimate`.
    [[nodiscard]] static std::size_t estimate_bin(float merged, float estimate, std::int32_t model);

    std::vector<std::size_t> first_bin_;  // [n_sources]
    std::vector<Bin> bins_;
    std::size_t n_models_;
    // Accuracy of estimates under noise, [1 + n_models, kEstimateBins]. Row 0: only tables were asked; row 1 + i: model
    // i was the most expensive one that was asked.
    std::vector<Bin> estimates_;
    // [1 + n_models, kMaxAgreeing]: by the most expensive model that votes (row 0: tables alone), by number of votes
    std::vector<Weights> weights_;
};

}  // namespace slipstream::draft
