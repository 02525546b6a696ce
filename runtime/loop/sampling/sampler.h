// From logits to a token: filters with memory, then the drafter-invariant draw (design: E2).
//
// Order: penalties over the path's tokens and biases of tokens; top-k; temperature; top-p (of what top-k left,
// renormalised); min-p; then the argmax of log p + gumbel(seed, position, token) over the survivors
// (kernels/base/noise.h). Temperature 0 is the argmax of the penalised logits. Ties go to the lowest id, in filters as
// well. Nothing depends on earlier draws: the same (seed, position, path) always gives the same token, which is what
// makes speculation invisible.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/loop/sampling/best_blocks.h"
#include "runtime/model/model_config.h"
#include "runtime/pass/logit_rows.h"

namespace slipstream {

/// What is added to a token's logit; -inf: it never comes.
struct TokenBias {
    TokenId id = 0;
    float bias = 0.0F;
    friend bool operator==(const TokenBias&, const TokenBias&) = default;
};

struct SamplerOptions {
    double temperature = 0.8;  // 0 = greedy
    std::int64_t top_k = 40;   // 0 = off
    double top_p = 0.95;       // 1 = off
    double min_p = 0.0;        // 0 = off
    double repeat_penalty =
        1.0;  // 1 = off; logits > 0 are divided, others multiplied (CTRL, Keskar et al. 2019, section 4.1)
    std::int64_t repeat_window = 64;  // tokens back that penalties remember, the prompt's included
    double presence_penalty = 0.0;    // 0 = off; taken from the logit of each token in the window
    double frequency_penalty = 0.0;   // 0 = off; taken from it for each time that it stands there
    std::vector<TokenBias> bias{};    // of tokens, the last of equals counts; ids beyond the vocabulary are passed over
    std::uint64_t seed = 0;

    /// Whether logits depend on what the window holds.
    [[nodiscard]] bool remembers() const {
        return repeat_penalty != 1.0 || presence_penalty != 0.0 || frequency_penalty != 0.0;
    }
    /// Whether logits are changed in another way than by the repetition penalty alone.
    [[nodiscard]] bool adds() const { return presence_penalty != 0.0 || frequency_penalty != 0.0 || !bias.empty(); }
    friend bool operator==(const SamplerOptions&, const SamplerOptions&) = default;
};

/// A token that survived the filters. Candidates are ordered by falling logit, ties by id.
struct Candidate {
    TokenId id;
    float logit;         // penalised, less the greatest, divided by temperature: 0 for the best, all others below
    double probability;  // after filters, sums to 1
};

class Sampler {
public:
    /// Throws RequestError where an option is out of its range: temperature and min-p/top-p NaN or negative, a
    /// probability over 1, a penalty that is not positive and finite, or not finite where it is
    /// subtracted, a bias that is NaN or +inf, a negative count.
    explicit Sampler(const SamplerOptions& options, std::int64_t vocab);

    /// The token at absolute position `position` (of the token that is drawn) given `logits` [vocab].
    /// `path`: the last tokens before it on its own path, committed ones first (E4); only the last repeat_window count.
    /// Allocates nothing. NaN and -inf logits never win; where no logit is above -inf: Unsupported ("the model's logits
    /// are not numbers").
    [[nodiscard]] TokenId sample(std::span<const float> logits, std::int64_t position, std::span<const TokenId> path);

    /// The filtered distribution that sample() draws from, for tests and for E3. Greedy: one candidate with p = 1.
    /// Valid until the next call, as long as the sampler lives; so a temporary sampler has none.
    [[nodiscard]] std::span<const Candidate> distribution(std::span<const float> logits,
                                                          std::span<const TokenId> path) &;
    void distribution(std::span<const float> logits, std::span<const TokenId> path) && = delete;

    /// The same of row `row`, bit for bit: from its top logits where those decide (sampler_top_logits.cpp), else from
    /// the row.
    [[nodiscard]] TokenId sample(const LogitRows& rows, std::int64_t row, std::int64_t position,
                                 std::span<const TokenId> path);
    [[nodiscard]] std::span<const Candidate> distribution(const LogitRows& rows, std::int64_t row,
                                                          std::span<const TokenId> path) &;
    void distribution(const LogitRows& rows, std::int64_t row, std::span<const TokenId> path) && = delete;
    /// What top logits must hold to decide, most of the time, for sample() and for distribution().
    [[nodiscard]] LogitRequest sample_request() const;
    [[nodiscard]] LogitRequest distribution_request() const;

    [[nodiscard]] const SamplerOptions& options() const { return options_; }

private:
    [[nodiscard]] std::span<const TokenId> penalised_tokens(std::span<const TokenId> path) const;
    [[nodiscard]] float penalised(float logit) const;
    [[nodiscard]] float changed(TokenId id, float logit, std::int64_t n_times) const;
    [[nodiscard]] std::optional<TokenId> drawn(const TopLogits& top, std::int64_t position,
                                               std::span<const TokenId> path) const;
    [[nodiscard]] bool filter_top(const TopLogits& top, std::span<const TokenId> path);
    [[nodiscard]] bool keep_top(const TopLogits& top, std::span<const TokenId> path);
    [[nodiscard]] bool cut_top(const TopLogits& top, std::span<const TokenId> path, float last, float greatest,
                               double n_beyond);
    [[nodiscard]] std::span<const Candidate> weigh();
    [[noreturn]] void throw_no_numbers() const;
    void penalise(std::span<const float> logits, std::span<const TokenId> path);
    [[nodiscard]] TokenId best() const;
    void keep_top_k();
    void scale(float greatest);
    void keep_top_p();
    void keep_min_p();
    void filter();
    [[nodiscard]] TokenId draw(std::int64_t position) const;

    SamplerOptions options_;
    std::int64_t vocab_;
    std::vector<float> penalised_;       // [vocab], where there is a penalty or a bias
    std::vector<float> bias_;            // [vocab], where there is one
    std::vector<std::int32_t> n_times_;  // [vocab], that a token stands in the window; 0 between calls
    std::span<const float> logits_;      // [vocab] of the running call: the caller's, or penalised_
    BestBlocks blocks_;                  // of the row that is filtered
    std::vector<Candidate> candidates_;  // capacity vocab
    bool in_order_ = false;              // candidates_ of a row: best first
};

}  // namespace slipstream
