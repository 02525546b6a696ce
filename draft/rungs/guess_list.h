// The best tokens of a row of logits, in order, and how many of them the target's filters would leave: what a draft
// model's guesses are chosen from. Sampler::distribution() says the same exactly and takes several times as long: it
// weighs the whole vocabulary, where guesses need the top of it alone.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/loop/sampling/best_blocks.h"
#include "runtime/loop/sampling/sampler.h"

namespace slipstream::draft {

struct Guess {
    TokenId token;
    float logit;        // penalised, less the greatest, divided by temperature
    float probability;  // among the survivors, summing to 1; of others: among all that are listed. > 0
};

class GuessList {
public:
    /// For the target's `sampling`, over logits [vocab]. At temperature 0 the list is that of temperature 1 without
    /// filters: its order is what counts.
    GuessList(const SamplerOptions& sampling, std::int64_t vocab);

    /// Lists the best of `logits` [vocab], of which `path` is the path as in Sampler::distribution(). The list ends
    /// after top-k tokens but not before kFewest; without top-k after kMost, or where tokens are 1e-6 times as likely
    /// as the best: what lies behind counts as impossible. Allocates nothing.
    void fill(std::span<const float> logits, std::span<const TokenId> path);
    /// The same of a row's best tokens alone (TopLogits::ids and logits), best first, which is as good where no penalty
    /// moves them: the list is theirs as far as they go. Not where most_listed() is more than they are.
    void fill(std::span<const TokenId> ids, std::span<const float> logits, std::span<const TokenId> path);
    /// Most tokens of a list.
    [[nodiscard]] std::int64_t most_listed() const { return static_cast<std::int64_t>(n_listed_); }

    /// By falling logit as it came, ties by id; the survivors come first. Empty where no logit is above -inf. Valid
    /// until the next fill().
    [[nodiscard]] std::span<const Guess> guesses() const { return guesses_; }
    [[nodiscard]] std::size_t n_surviving() const { return n_surviving_; }

    static constexpr std::int64_t kFewest = 64;
    static constexpr std::int64_t kMost = 1024;

private:
    void collect(std::span<const float> logits, std::size_t n_wanted);
    [[nodiscard]] std::span<const TokenId> remembered(std::span<const TokenId> path) const;
    [[nodiscard]] float penalised(float logit) const;
    [[nodiscard]] Guess scaled(TokenId token, float logit, float greatest) const;
    void cut(std::size_t n_wanted);
    void weigh();

    SamplerOptions options_;
    float temperature_;
    std::size_t n_listed_;          // most guesses
    std::vector<float> penalised_;  // [vocab], or empty where there is no penalty
    BestBlocks blocks_;
    std::vector<Guess> guesses_;
    std::size_t n_surviving_ = 0;
};

}  // namespace slipstream::draft
