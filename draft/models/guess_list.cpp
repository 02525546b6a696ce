#include "draft/models/guess_list.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace slipstream::draft {

namespace {

// Logits, divided by the temperature, are dropped if they are further below the best one: log(1e-6), so tokens less
// than 1e-6 times as probable as the best.
constexpr float kLeastLogit = -13.8F;

}  // namespace

GuessList::GuessList(const SamplerOptions& sampling, float greedy_temperature)
    : options_(sampling), temperature_(static_cast<float>(sampling.temperature)) {
    if (sampling.temperature == 0.0) {
        temperature_ = greedy_temperature;
        options_.top_k = kFewest;
        options_.top_p = 1.0;
        options_.min_p = 0.0;
    }
    n_listed_ = options_.top_k == 0 ? kMost : std::clamp(options_.top_k, kFewest, kMost);
    guesses_.reserve(n_listed_);
}

void GuessList::fill(std::span<const TopToken> best, std::span<const TokenId> path) {
    const auto penalty = static_cast<float>(options_.repeat_penalty);
    const std::span<const TokenId> remembered =
        path.last(penalty == 1.0F ? 0 : std::min(path.size(), static_cast<std::size_t>(options_.repeat_window)));
    guesses_.clear();
    for (const auto& [token, logit] : best) {
        const bool falls = std::ranges::find(remembered, token) != remembered.end();
        guesses_.push_back({token, !falls ? logit : logit > 0.0F ? logit / penalty : logit * penalty, 0.0F});
    }
    std::ranges::sort(guesses_, [](const Guess& a, const Guess& b) {
        return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
    });
    const float greatest = guesses_.empty() ? 0.0F : guesses_.front().logit;
    std::erase_if(guesses_,
                  [least = greatest + temperature_ * kLeastLogit](const Guess& guess) { return guess.logit < least; });
    for (Guess& guess : guesses_)
        guess.logit = guess.logit == greatest ? 0.0F : (guess.logit - greatest) / temperature_;
    weigh();
}

// Computes probabilities and applies the filters in the sampler's order; each filter leaves a prefix of the list.
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
