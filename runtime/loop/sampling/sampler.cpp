#include "runtime/loop/sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "kernels/base/check.h"
#include "kernels/base/error.h"
#include "kernels/base/noise.h"
#include "kernels/sampling.h"
#include "runtime/loop/sampling/best_order.h"
#include "runtime/loop/sampling/greatest.h"

namespace slipstream {

namespace {

/// Returns whether `a` is better than `b` in the order of all filters: higher logit first, then the lower id.
bool better(const Candidate& a, const Candidate& b) {
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

void require(bool holds, std::string_view option, double value, std::string_view range) {
    if (!holds) throw RequestError(fmt::format("{} is {}; it must be {}", option, value, range));
}

SamplerOptions checked(const SamplerOptions& options) {
    const auto is_probability = [](double p) { return p >= 0.0 && p <= 1.0; };
    require(std::isfinite(options.temperature) && options.temperature >= 0.0, "temperature", options.temperature,
            "0 (greedy) or a positive number");
    require(options.top_k >= 0, "top-k", static_cast<double>(options.top_k), "0 (off) or a positive count");
    require(is_probability(options.top_p), "top-p", options.top_p, "between 0 and 1 (off)");
    require(is_probability(options.min_p), "min-p", options.min_p, "between 0 (off) and 1");
    require(std::isfinite(options.repeat_penalty) && options.repeat_penalty > 0.0, "repeat-penalty",
            options.repeat_penalty, "a positive number (1 = off)");
    require(options.repeat_window >= 0, "repeat-window", static_cast<double>(options.repeat_window),
            "0 or a positive count");
    require(std::isfinite(options.presence_penalty), "presence-penalty", options.presence_penalty,
            "a number (0 = off)");
    require(std::isfinite(options.frequency_penalty), "frequency-penalty", options.frequency_penalty,
            "a number (0 = off)");
    for (const TokenBias& bias : options.bias)
        require(bias.bias < std::numeric_limits<float>::infinity(), "logit-bias", static_cast<double>(bias.bias),
                "a number or -inf");
    return options;
}

std::int64_t checked_vocab(std::int64_t vocab) {
    CHECK(vocab > 0, "vocab {}", vocab);
    return vocab;
}

}  // namespace

Sampler::Sampler(const SamplerOptions& options, std::int64_t vocab)
    : options_(checked(options)), vocab_(checked_vocab(vocab)), blocks_(vocab) {
    if (options.remembers() || options.adds()) penalised_.resize(vocab);
    if (options.remembers()) n_times_.resize(vocab);
    if (!options.bias.empty()) bias_.resize(vocab);
    for (const TokenBias& bias : options.bias)
        if (bias.id >= 0 && bias.id < vocab) bias_[bias.id] = bias.bias;
    candidates_.reserve(options_.temperature > 0.0 ? static_cast<std::size_t>(vocab)
                                                   : static_cast<std::size_t>(kMostTopLogits));  // greedy
}

void Sampler::penalise(std::span<const float> logits, std::span<const TokenId> path) {
    CHECK(std::ssize(logits) == vocab_, "{} logits for a vocabulary of {}", logits.size(), vocab_);
    logits_ = logits;
    if (!options_.remembers() && !options_.adds()) return;
    std::ranges::copy(logits, penalised_.begin());
    logits_ = penalised_;
    for (const TokenBias& bias : options_.bias)
        if (bias.id >= 0 && bias.id < vocab_) penalised_[bias.id] = changed(bias.id, logits[bias.id], 0);
    const std::span<const TokenId> tokens = penalised_tokens(path);
    for (const TokenId id : tokens) ++n_times_[id];
    // Computed from the original logit, so that a token that occurs twice is penalised once.
    for (const TokenId id : tokens) {
        if (n_times_[id] == 0) continue;
        penalised_[id] = changed(id, logits[id], n_times_[id]);
        n_times_[id] = 0;
    }
}

/// Returns `logit` with all penalties and biases of token `id`, which occurs `n_times` in the penalty window.
float Sampler::changed(TokenId id, float logit, std::int64_t n_times) const {
    double result = n_times > 0 ? penalised(logit) : logit;
    if (n_times > 0) result -= options_.presence_penalty + options_.frequency_penalty * static_cast<double>(n_times);
    if (!options_.bias.empty()) result += static_cast<double>(bias_[id]);
    return static_cast<float>(result);
}

/// Returns the tokens of `path` in the penalty window; none if no penalty is on.
std::span<const TokenId> Sampler::penalised_tokens(std::span<const TokenId> path) const {
    if (!options_.remembers()) return {};
    const auto tokens = path.last(std::min(path.size(), static_cast<std::size_t>(options_.repeat_window)));
    for (const TokenId id : tokens)
        CHECK(id >= 0 && id < vocab_, "token {} on a path over a vocabulary of {}", id, vocab_);
    return tokens;
}

float Sampler::penalised(float logit) const {
    const double as_it_came = logit;
    return static_cast<float>(as_it_came > 0.0 ? as_it_came / options_.repeat_penalty
                                               : as_it_came * options_.repeat_penalty);
}

void Sampler::throw_no_numbers() const {
    throw Unsupported(fmt::format(
        "the model's logits are not numbers ({} values, none above -inf); is the model file damaged?", vocab_));
}

/// Returns the token of the greatest logit, the lowest id of equals. NaN compares false and never wins.
TokenId Sampler::best() const {
    const float greatest = greatest_of(logits_);
    if (!(greatest > -std::numeric_limits<float>::infinity())) throw_no_numbers();
    return static_cast<TokenId>(std::ranges::find(logits_, greatest) - logits_.begin());
}

/// Fills candidates_ with the tokens whose logits are above -inf, all or the best k, with unscaled logits. Up to
/// kFewToSort tokens are sorted (in_order_).
void Sampler::keep_top_k() {
    const bool everything = options_.top_k == 0 || options_.top_k >= vocab_;
    const auto k = static_cast<std::size_t>(everything ? vocab_ : options_.top_k);
    const std::span<const std::uint32_t> ids = blocks_.reaching(blocks_.bound(k));
    candidates_.clear();
    in_order_ = ids.size() <= kFewToSort;
    if (in_order_) {
        FewLogits few;
        for (std::size_t i = 0; i < ids.size(); ++i) few.logits[i] = logits_[ids[i]];
        count_better(few, ids.size());
        candidates_.resize(std::min(k, ids.size()));
        for (std::size_t i = 0; i < ids.size(); ++i)
            if (const auto place = static_cast<std::size_t>(few.places[i]); place < candidates_.size())
                candidates_[place] = {static_cast<TokenId>(ids[i]), few.logits[i], 0.0};
        return;
    }
    for (const std::uint32_t id : ids) candidates_.push_back({static_cast<TokenId>(id), logits_[id], 0.0});
    if (candidates_.size() <= k) return;
    std::ranges::nth_element(candidates_, candidates_.begin() + static_cast<std::ptrdiff_t>(k),
                             [](const Candidate& a, const Candidate& b) { return better(a, b); });
    candidates_.resize(k);
}

/// Replaces the candidates' logits by (logit - greatest) / temperature: 0 for the best, so that nothing overflows at
/// any temperature. Removes candidates whose logit becomes -inf.
void Sampler::scale(float greatest) {
    for (Candidate& candidate : candidates_) {
        const double below =  // inf - inf would be NaN
            candidate.logit == greatest ? 0.0 : static_cast<double>(candidate.logit) - static_cast<double>(greatest);
        candidate.logit = static_cast<float>(below / options_.temperature);
    }
    std::erase_if(candidates_, [](const Candidate& candidate) {
        return !(candidate.logit > -std::numeric_limits<float>::infinity());
    });
}

/// Keeps the smallest set of best candidates that holds top_p of the mass, at least one. If they are not sorted,
/// selects by mass: partition around the median and go on in the half where the mass is reached. Linear time on
/// average, without sorting the vocabulary.
void Sampler::keep_top_p() {
    if (options_.top_p >= 1.0) return;
    double missing = 0.0;
    for (const Candidate& candidate : candidates_) missing += candidate.probability;
    missing *= options_.top_p;
    if (in_order_) {
        double mass = 0.0;
        std::size_t n = 0;
        while (n < candidates_.size() && (n == 0 || mass < missing)) mass += candidates_[n++].probability;
        candidates_.resize(n);
        return;
    }
    auto low = candidates_.begin();  // all before it are kept
    auto high = candidates_.end();   // all from here on are dropped
    while (high - low > 1) {
        const auto middle = low + (high - low) / 2;
        std::nth_element(low, middle, high, better);
        double mass = 0.0;
        for (auto it = low; it != middle; ++it) mass += it->probability;
        if (mass >= missing) {
            high = middle;
        } else {
            missing -= mass;
            low = middle;
        }
    }
    candidates_.erase(high, candidates_.end());
}

/// Keeps candidates with at least min_p times the probability of the best one, which is e^0 = 1 here.
void Sampler::keep_min_p() {
    if (options_.min_p <= 0.0) return;
    std::erase_if(candidates_, [this](const Candidate& candidate) { return candidate.probability < options_.min_p; });
}

/// Applies all filters to logits_. Leaves the survivors in candidates_, sorted only if in_order_ is true; `probability`
/// is not normalised.
void Sampler::filter() {
    const float greatest = blocks_.scan(logits_);
    if (!(greatest > -std::numeric_limits<float>::infinity())) throw_no_numbers();
    keep_top_k();
    scale(greatest);
    if (options_.top_p < 1.0 || options_.min_p > 0.0)
        for (Candidate& candidate : candidates_) candidate.probability = std::exp(static_cast<double>(candidate.logit));
    keep_top_p();
    keep_min_p();
}

/// Returns the argmax of logit + gumbel: log p differs from the logit by a constant. Candidates that could not win with
/// the greatest possible noise are skipped; float addition is monotone, so this does not change the result.
TokenId Sampler::draw(std::int64_t position) const {
    TokenId best_id = -1;
    float best_score = -std::numeric_limits<float>::infinity();
    std::uint32_t group = std::numeric_limits<std::uint32_t>::max();
    PhiloxBlock block{};
    for (const Candidate& candidate : candidates_) {
        if (candidate.logit + kMaxGumbel < best_score) continue;
        const auto id = static_cast<std::uint32_t>(candidate.id);
        if (id / 4 != group) {
            group = id / 4;
            block = noise_block(options_.seed, static_cast<std::uint64_t>(position), group, NoiseStream::Sampling);
        }
        const std::uint32_t word = block.word[id % 4];
        if (candidate.logit + gumbel_upper_bound(word) < best_score) continue;
        const float score = candidate.logit + gumbel_of(word);
        if (score > best_score || (score == best_score && candidate.id < best_id)) {
            best_score = score;
            best_id = candidate.id;
        }
    }
    return best_id;
}

TokenId Sampler::sample(std::span<const float> logits, std::int64_t position, std::span<const TokenId> path) {
    CHECK(position >= 0, "position {}", position);
    penalise(logits, path);
    if (options_.temperature == 0.0) return best();
    filter();
    return draw(position);
}

std::span<const Candidate> Sampler::distribution(std::span<const float> logits, std::span<const TokenId> path) & {
    penalise(logits, path);
    if (options_.temperature == 0.0) {
        candidates_.assign(1, {best(), 0.0F, 1.0});
        return candidates_;
    }
    filter();
    return weigh();
}

/// Sorts the survivors, computes their normalised probabilities and returns them.
std::span<const Candidate> Sampler::weigh() {
    std::ranges::sort(candidates_, better);
    double mass = 0.0;
    for (Candidate& candidate : candidates_) {
        candidate.probability = std::exp(static_cast<double>(candidate.logit));
        mass += candidate.probability;
    }
    for (Candidate& candidate : candidates_) candidate.probability /= mass;
    return candidates_;
}

}  // namespace slipstream
