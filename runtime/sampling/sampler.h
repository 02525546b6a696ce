// From logits to a token: filters with memory, then the drafter-invariant draw (design: E2).
//
// Order: repetition penalty over the path's tokens; temperature; top-k; top-p; min-p; then the argmax of
// log p + gumbel(seed, position, token) over the survivors. Temperature 0 is the argmax of the penalised logits. Ties
// go to the lowest id, in filters as well. Nothing depends on earlier draws: the same (seed, position, path) always
// gives the same token, which is what makes speculation invisible.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/model_config.h"

namespace slipstream {

struct SamplerOptions {
    double temperature = 0.8;  // 0 = greedy
    std::int64_t top_k = 40;   // 0 = off
    double top_p = 0.95;       // 1 = off
    double min_p = 0.0;        // 0 = off
    double repeat_penalty = 1.0;  // 1 = off; logits > 0 are divided, others multiplied (CTRL, Keskar et al. 2019, section 4.1)
    std::int64_t repeat_window = 64;  // tokens back that the penalty remembers, the prompt's included
    std::uint64_t seed = 0;
};

/// A token that survived the filters. Candidates are ordered by falling logit, ties by id.
struct Candidate {
    TokenId id;
    float logit;        // penalised, divided by temperature
    double probability;  // after filters, sums to 1
};

class Sampler {
public:
    /// Throws RequestError where an option is out of its range (NaN, negative temperature, ...).
    explicit Sampler(const SamplerOptions& options, std::int64_t vocab);

    /// The token at absolute position `position` given `logits` [vocab] (position of the token that is drawn).
    /// `path`: the last tokens before it on its own path, committed ones first (E4); only the last repeat_window count.
    /// Allocates nothing after the first call. NaN logits never win; all NaN throws Unsupported ("the model's logits are not numbers").
    [[nodiscard]] TokenId sample(std::span<const float> logits, std::int64_t position, std::span<const TokenId> path);

    /// The filtered distribution that sample() draws from, for tests and for E3. Greedy: one candidate with p = 1. Valid until the next call.
    [[nodiscard]] std::span<const Candidate> distribution(std::span<const float> logits, std::span<const TokenId> path);

    [[nodiscard]] const SamplerOptions& options() const { return options_; }

private:
    SamplerOptions options_;
    std::int64_t vocab_;
    std::vector<float> penalised_;
    std::vector<Candidate> candidates_;
};

}  // namespace slipstream
