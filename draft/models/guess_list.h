// How many of a row's best tokens the target's filters would leave, and how likely each is: what a draft model's
// guesses are chosen from. Sampler::distribution() says the same exactly and takes several times as long: it weighs the
// whole vocabulary, where guesses need the top of it alone.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "draft/logit_row.h"
#include "runtime/loop/sampling/sampler.h"

namespace slipstream::draft {

struct Guess {
    TokenId token;
    float logit;        // penalised, less the greatest, divided by temperature
    float probability;  // among the survivors, summing to 1; of others: among all that are listed. > 0
};

class GuessList {
public:
    /// For the target's `sampling`. At temperature 0 the list is that of temperature 1 without filters: its order is
    /// what counts.
    explicit GuessList(const SamplerOptions& sampling);

    /// Tokens that a list is made of: as many as top-k leaves, at least kFewest; without top-k kMost.
    [[nodiscard]] std::int64_t n_listed() const { return n_listed_; }
    /// Lists `best`, a row's best tokens, of which `path` is the path as in Sampler::distribution(). What is less than
    /// 1e-6 times as likely as the best counts as impossible. A penalty moves what is listed; it lets nothing in.
    void fill(std::span<const TopToken> best, std::span<const TokenId> path);

    /// By falling logit, ties by id; the survivors come first. Empty where nothing was listed. Valid until the next
    /// fill().
    [[nodiscard]] std::span<const Guess> guesses() const { return guesses_; }
    [[nodiscard]] std::size_t n_surviving() const { return n_surviving_; }

    static constexpr std::int64_t kFewest = 64;
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
