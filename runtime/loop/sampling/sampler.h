// Chooses a token from logits: penalties over the path (path-dependent, E4), filters, then a drafter-invariant draw
// (E2).
//
// Order: penalties over the path's tokens and biases of tokens; top-k; temperature; top-p (of what top-k left,
// renormalised); min-p; then the argmax of log p + gumbel(seed, position, token) over the survivors
// (kernels/base/noise.h). Temperature 0 is the argmax of the penalised logits. Ties go to the lowest id, in filters as
// well. Nothing depends on earlier draws: the same logits, seed, position and path always give the same token, so
// speculation cannot change the text.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/loop/sampling/best_blocks.h"
#include "runtime/model/model_config.h"
#include "runtime/pass/logit_rows.h"

namespace slipstream {

/// A value that is added to a token's logit; -inf excludes the token.
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
    std::int64_t repeat_window = 64;  // how many last tokens of the path, prompt included, penalties apply to
    double presence_penalty = 0.0;    // 0 = off; subtracted from the logit of each token in the window
    double frequency_penalty = 0.0;   // 0 = off; subtracted from the logit for each occurrence in the window
    // If several are for one token, the last counts; ids outside the vocabulary are ignored.
    std::vector<TokenBias> bias{};
    std::uint64_t seed = 0;

    /// Returns whether logits depend on the tokens in the penalty window.
    [[nodiscard]] bool remembers() const {
        return repeat_penalty != 1.0 || presence_penalty != 0.0 || frequency_penalty != 0.0;
    }
    /// Returns whether logits change in a way other than by the repetition penalty.
    [[nodiscard]] bool adds() const { return presence_penalty != 0.0 || frequency_penalty != 0.0 || !bias.empty(); }
    friend bool operator==(const SamplerOptions&, const SamplerOptions&) = default;
};

/// A token that survived the filters. distribution() orders candidates by falling logit, ties by id.
struct Candidate {
    TokenId id;
    float logit;         // (penalised logit - the greatest one) / temperature: 0 for the best, <= 0 for the others
    double probability;  // probability after filters; those of all tokens sum to 1
};

class Sampler {
public:
    /// Throws RequestError if an option is out of range: a temperature that is negative or not finite, top-p or min-p
    /// outside [0, 1], a repetition penalty that is not positive and finite, a presence or frequency penalty that is
    /// not finite, a bias that is NaN or +inf, a negative count.
    explicit Sampler(const SamplerOptions& options, std::int64_t vocab);

    /// Returns the token at absolute position `position` for `logits` [vocab]. `path`: the tokens before that position
    /// on its own path, the committed ones first (E4); only the last repeat_window count. Allocates nothing. NaN and
    /// -inf logits never win. Throws Unsupported if no logit is above -inf ("the model's logits are not numbers").
    [[nodiscard]] TokenId sample(std::span<const float> logits, std::int64_t position, std::span<const TokenId> path);

    /// Returns the filtered distribution from which sample() draws, for tests and for distribution-exact sampling (E3).
    /// Greedy: one candidate with p = 1. Valid until the next call, and only while the sampler lives; so it cannot be
    /// called on a temporary.
    [[nodiscard]] std::span<const Candidate> distribution(std::span<const float> logits,
                                                          std::span<const TokenId> path) &;
    void distribution(std::span<const float> logits, std::span<const TokenId> path) && = delete;

    /// sample() and distribution() for row `row` of `rows`, bit for bit as from the whole row. They use the row's top
    /// logits if these decide (sampler_top_logits.cpp), else they fetch the row.
    [[nodiscard]] TokenId sample(const LogitRows& rows, std::int64_t row, std::int64_t position,
                                 std::span<const TokenId> path);
    [[nodiscard]] std::span<const Candidate> distribution(const LogitRows& rows, std::int64_t row,
                                                          std::span<const TokenId> path) &;
    void distribution(const LogitRows& rows, std::int64_t row, std::span<const TokenId> path) && = delete;
    /// sample_request() returns what top logits must contain to decide most calls of sample(), distribution_request()
    /// the same for distribution().
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
    std::vector<float> penalised_;       // [vocab]; empty without penalty and bias
    std::vector<float> bias_;            // [vocab]; empty without bias
    std::vector<std::int32_t> n_times_;  // [vocab], occurrences in the penalty window; 0 between calls
    std::span<const float> logits_;      // [vocab]: logits of the running call, those of the caller or penalised_
    BestBlocks blocks_;                  // best logits of blocks of the row that is being filtered
    std::vector<Candidate> candidates_;  // capacity vocab, or kMostTopLogits if greedy
    bool in_order_ = false;              // whether keep_top_k() left candidates_ sorted, best first
};

}  // namespace slipstream
