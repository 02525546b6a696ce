#include "draft/guess_list.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "kernels/base/check.h"

namespace slipstream::draft {

namespace {

constexpr std::size_t kFewToSort = 128;
constexpr float kImpossible = -std::numeric_limits<float>::infinity();
constexpr float kLeastLogit = -13.8F;  // log(1e-6)

using Places = std::array<std::int32_t, kFewToSort>;

// places[j] becomes how many of the first `n` logits stand before the j-th: the greater ones, of equals the earlier.
// Whole vectors of them, whatever lies behind the n-th.
[[gnu::always_inline]] inline void count_before(const std::array<float, kFewToSort>& logits, std::size_t n,
                                                Places& places) {
    constexpr std::size_t lanes = 8;
    const auto n_whole = static_cast<std::int32_t>((n + lanes - 1) / lanes * lanes);
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(n); ++i) {
        const float logit = logits[static_cast<std::size_t>(i)];
        for (std::int32_t j = 0; j < n_whole; ++j) {
            const float other = logits[static_cast<std::size_t>(j)];
            places[static_cast<std::size_t>(j)] +=
                static_cast<std::int32_t>(logit > other) |
                (static_cast<std::int32_t>(logit == other) & static_cast<std::int32_t>(i < j));
        }
    }
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) void count_before_avx2(const std::array<float, kFewToSort>& logits, std::size_t n,
                                                       Places& places) {
    count_before(logits, n, places);
}
#endif

void count_better(const std::array<float, kFewToSort>& logits, std::size_t n, Places& places) {
#if defined(__x86_64__)
    static const bool has_avx2 = __builtin_cpu_supports("avx2") != 0;
    if (has_avx2) return count_before_avx2(logits, n, places);
#endif
    count_before(logits, n, places);
}

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
    unsorted_.reserve(kFewToSort);
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
    guesses_.clear();
    for (const std::uint32_t id : blocks_.reaching(least))
        guesses_.push_back(scaled(static_cast<TokenId>(id), logits[id], greatest));
    cut(n_wanted);
}

// Sorts the list, and leaves the best of it.
void GuessList::cut(std::size_t n_wanted) {
    const std::size_t n = guesses_.size();
    if (n > kFewToSort) {
        if (n > n_wanted) {
            std::ranges::nth_element(guesses_, guesses_.begin() + static_cast<std::ptrdiff_t>(n_wanted), kBetter);
            guesses_.resize(n_wanted);
        }
        std::ranges::sort(guesses_, kBetter);
        return;
    }
    // Every guess counts those before it, which becomes vectors, where a sort waits for its comparisons. By token, so
    // that of equals the earlier one is the lower.
    if (!std::ranges::is_sorted(guesses_, {}, &Guess::token)) std::ranges::sort(guesses_, {}, &Guess::token);
    alignas(32) std::array<float, kFewToSort> logits;
    alignas(32) Places places{};
    for (std::size_t i = 0; i < n; ++i) logits[i] = guesses_[i].logit;
    std::fill(logits.begin() + static_cast<std::ptrdiff_t>(n), logits.end(), kImpossible);
    count_better(logits, n, places);
    unsorted_.assign(guesses_.begin(), guesses_.end());
    guesses_.resize(std::min(n, n_wanted));
    for (std::size_t i = 0; i < n; ++i)
        if (const auto place = static_cast<std::size_t>(places[i]); place < n_wanted) guesses_[place] = unsorted_[i];
}

// Probabilities, and the filters in the sampler's order: each leaves a beginning of the list.
void GuessList::weigh() {
    float all = 0.0F;
    for (Guess& guess : guesses_) all += guess.probability = std::exp(guess.logit);
    n_surviving_ = guesses_.size();
    if (options_.top_k > 0) n_surviving_ = std::min(n_surviving_, static_cast<std::size_t>(options_.top_k));
    const auto mass_of = [&](std::size_t n) {
        float mass = 0.0F;
        for (std::size_t i = 0; i < n; ++i) mass += guesses_[i].probability;
        return mass;
    };
    if (options_.top_p < 1.0) {
        const float wanted = mass_of(n_surviving_) * static_cast<float>(options_.top_p);
        float mass = 0.0F;
        for (std::size_t i = 0; i < n_surviving_; ++i) {
            mass += guesses_[i].probability;
            if (mass >= wanted) n_surviving_ = i + 1;
        }
    }
    while (n_surviving_ > 1 && guesses_[n_surviving_ - 1].probability < static_cast<float>(options_.min_p))
        --n_surviving_;
    const float surviving = mass_of(n_surviving_);
    for (std::size_t i = 0; i < guesses_.size(); ++i)
        guesses_[i].probability =
            std::max(guesses_[i].probability / (i < n_surviving_ ? surviving : all), std::numeric_limits<float>::min());
}

}  // namespace slipstream::draft
