#include "draft/rungs/guess_list.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/base/check.h"
#include "runtime/loop/sampling/best_order.h"

namespace slipstream::draft {

namespace {

constexpr float kImpossible = -std::numeric_limits<float>::infinity();
constexpr float kLeastLogit = -13.8F;  // log(1e-6)

// An object, so that sorting inlines it.
constexpr auto kBetter = [](const Guess& a, const Guess& b) {
    return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
};

}  // namespace

GuessList::GuessList(const SamplerOptions& sampling, std::int64_t vocab)
    : options_(sampling),
      temperature_(static_cast<float>(sampling.temperature)),
      blocks_(static_cast<std::size_t>(vocab)) {
    if (sampling.temperature == 0.0) {
        temperature_ = 1.0F;
        options_.top_k = kFewest;
        options_.top_p = 1.0;
        options_.min_p = 0.0;
    }
    const std::int64_t wanted = options_.top_k == 0 ? kMost : std::clamp(options_.top_k, kFewest, kMost);
    n_listed_ = static_cast<std::size_t>(std::min(wanted, vocab));
    const auto n = static_cast<std::size_t>(vocab);
    if (options_.repeat_penalty != 1.0) penalised_.resize(n);
    guesses_.reserve(n);
}

void GuessList::fill(std::span<const float> logits, std::span<const TokenId> path) {
    if (!penalised_.empty()) {
        CHECK(logits.size() == penalised_.size(), "{} logits, a vocabulary of {}", logits.size(), penalised_.size());
        std::ranges::copy(logits, penalised_.begin());
        for (const TokenId id : remembered(path))
            penalised_[static_cast<std::size_t>(id)] = penalised(logits[static_cast<std::size_t>(id)]);
        logits = penalised_;
    }
    collect(logits, n_listed_);
    weigh();
}

void GuessList::fill(std::span<const TokenId> ids, std::span<const float> logits, std::span<const TokenId> path) {
    CHECK(ids.size() == logits.size() && ids.size() <= guesses_.capacity(), "{} tokens, {} logits", ids.size(),
          logits.size());
    const std::span<const TokenId> fallen = remembered(path);
    float greatest = kImpossible;
    guesses_.clear();
    for (std::size_t i = 0; i < ids.size(); ++i) {
        const bool falls = std::ranges::find(fallen, ids[i]) != fallen.end();
        guesses_.push_back({ids[i], falls ? penalised(logits[i]) : logits[i], 0.0F});
        greatest = std::max(greatest, guesses_.back().logit);
    }
    const float least = greatest + temperature_ * kLeastLogit;
    std::erase_if(guesses_,
                  [least](const Guess& guess) { return !(guess.logit >= least && guess.logit > kImpossible); });
    for (Guess& guess : guesses_) guess = scaled(guess.token, guess.logit, greatest);
    cut(n_listed_);
    weigh();
}

std::span<const TokenId> GuessList::remembered(std::span<const TokenId> path) const {
    if (penalised_.empty()) return {};
    return path.last(std::min(path.size(), static_cast<std::size_t>(options_.repeat_window)));
}

float GuessList::penalised(float logit) const {
    const auto penalty = static_cast<float>(options_.repeat_penalty);
    return logit > 0.0F ? logit / penalty : logit * penalty;
}

Guess GuessList::scaled(TokenId token, float logit, float greatest) const {
    return {token, logit == greatest ? 0.0F : (logit - greatest) / temperature_, 0.0F};
}

// The best `n_wanted` tokens into guesses_, sorted, with scaled logits.
void GuessList::collect(std::span<const float> logits, std::size_t n_wanted) {
    const float greatest = blocks_.look(logits);
    const float least = std::max(greatest + temperature_ * kLeastLogit, blocks_.bound(n_wanted));
    const std::span<const std::uint32_t> ids = blocks_.reaching(least);
    guesses_.clear();
    if (ids.size() > kFewToSort) {
        for (const std::uint32_t id : ids) guesses_.push_back(scaled(static_cast<TokenId>(id), logits[id], greatest));
        return cut(n_wanted);
    }
    FewLogits few;
    for (std::size_t i = 0; i < ids.size(); ++i) few.logits[i] = logits[ids[i]];
    count_better(few, ids.size());
    guesses_.resize(std::min(ids.size(), n_wanted));
    for (std::size_t i = 0; i < ids.size(); ++i)
        if (const auto place = static_cast<std::size_t>(few.places[i]); place < guesses_.size())
            guesses_[place] = scaled(static_cast<TokenId>(ids[i]), few.logits[i], greatest);
}

// Sorts the list, and leaves the best of it.
void GuessList::cut(std::size_t n_wanted) {
    if (guesses_.size() > std::max(n_wanted, kFewToSort)) {
        std::ranges::nth_element(guesses_, guesses_.begin() + static_cast<std::ptrdiff_t>(n_wanted), kBetter);
        guesses_.resize(n_wanted);
    }
    std::ranges::sort(guesses_, kBetter);
    guesses_.resize(std::min(guesses_.size(), n_wanted));
}

// Probabilities, and the filters in the sampler's order: each leaves a beginning of the list.
void GuessList::weigh() {
    n_surviving_ = guesses_.size();
    if (options_.top_k > 0) n_surviving_ = std::min(n_surviving_, static_cast<std::size_t>(options_.top_k));
    float all = 0.0F;
    float surviving = 0.0F;
    for (std::size_t i = 0; i < guesses_.size(); ++i) {
        all += guesses_[i].probability = std::exp(guesses_[i].logit);
        if (i < n_surviving_) surviving = all;
    }
    if (options_.top_p < 1.0) {
        const float wanted = surviving * static_cast<float>(options_.top_p);
        std::size_t n = 0;
        float mass = 0.0F;
        while (n < n_surviving_ && (n == 0 || mass < wanted)) mass += guesses_[n++].probability;
        n_surviving_ = n;
        surviving = mass;
    }
    while (n_surviving_ > 1 && guesses_[n_surviving_ - 1].probability < static_cast<float>(options_.min_p))
        --n_surviving_;
    if (options_.min_p > 0.0) {
        surviving = 0.0F;
        for (std::size_t i = 0; i < n_surviving_; ++i) surviving += guesses_[i].probability;
    }
    for (std::size_t i = 0; i < guesses_.size(); ++i)
        guesses_[i].probability =
            std::max(guesses_[i].probability / (i < n_surviving_ ? surviving : all), std::numeric_limits<float>::min());
}

}  // namespace slipstream::draft
