// Which of a row's best tokens the target's filters leave, and how probable each one is: the list from which a draft
// model's proposals are chosen. Sampler::distribution() computes the same exactly and takes several times as long,
// since it weighs the whole vocabulary; proposals need only the best tokens.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "draft/logit_row.h"
#include "runtime/loop/sampling/sampler.h"

namespace slipstream::draft {

/// One candidate for a draft token.
struct Guess {
    TokenId token;
    float logit;  // (penalised logit - greatest penalised logit of the row) / temperature
    /// Above 0. Of the tokens that survive the filters: among these, summing to 1. Of all others: among all listed
    /// tokens.
    float probability;
};

/// Lists the tokens of a logits row that may be proposed, after the target's penalty and filters. fill() is called for
/// one row after another.
class GuessList {
public:
    /// `sampling` is the target's. At its temperature 0 the list is that of `greedy_temperature` without filters.
    GuessList(const SamplerOptions& sampling, float greedy_temperature);

    /// Returns the number of tokens that fill() needs: as many as top-k leaves, kFewest to kMost; kMost without top-k.
    [[nodiscard]] std::int64_t n_listed() const { return n_listed_; }
    /// Makes the list from `best`, the best tokens of a row. `path`: the tokens before the next one, as in
    /// Sampler::distribution(); the penalty counts its last ones. Tokens less than 1e-6 times as probable as the best
    /// are dropped. A penalty reorders the listed tokens; it adds none.
    void fill(std::span<const TopToken> best, std::span<const TokenId> path);

    /// Returns the list by falling logit, ties by id; the survivors of the filters come first. Empty if nothing was
    /// listed. Valid until the next fill().
    [[nodiscard]] std::span<const Guess> guesses() const { return guesses_; }
    /// Returns the number of tokens that survive the filters.
    [[nodiscard]] std::size_t n_surviving() const { return n_surviving_; }

    /// Fewest tokens of a row that are listed. Equal to kMostTopLogits, the most that a device selects from a row, so
    /// that whole rows need not cross the link.
    static constexpr std::int64_t kFewest = 64;
    /// Most tokens of a row that are listed. Must not exceed kMaxCandidates, the room that propose() has for them.
    static constexpr std::int64_t kMost = 1024;

private:
    void weigh();

    SamplerOptions options_;
    float temperature_;
    std::int64_t n_listed_;
    std::vector<Guess> guesses_;
    std::size_t n_surviving_ = 0;
};

}  // namespace slipstream::draft
