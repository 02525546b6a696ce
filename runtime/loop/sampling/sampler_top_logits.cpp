// Sampling from the top logits of rows (logit_rows.h): gives the token that the whole row would give, bit for bit, or
// reports that the top logits do not decide; then the row is fetched.
//
// Why the top logits decide. Let b be the last token in them, with its original logit. Every token beyond them comes
// after b in the order better(). A repetition penalty >= 1 never raises a logit (x / p <= x for x > 0, x p <= x else,
// and rounding to float keeps an order), so a token beyond still comes after the original b when it is penalised. So
// those of the top tokens that are, penalised, no worse than the original b are the best of the whole vocabulary, in
// order: the sure ones. With a penalty below 1 the same holds if every token of the penalty window is among the top
// tokens, since those beyond then keep their logits; else the row is fetched. Complete top logits have nothing beyond.
//
// Presence and frequency penalties and biases may raise any token: rows are then fetched.
//
//   temperature 0   the first sure token.
//   top-k           if k are sure, they are the filter's result; if fewer are, or top-k is off, a later filter
//                   may still end before the last sure one.
//   temperature     (logit - greatest) / temperature is monotone in the logit, in floats too: tokens beyond have
//                   at most b's value.
//   top-p           ends at the first token at which the mass from the best on reaches top_p times the mass of all
//                   candidates. Both are known within bounds: rounding of doubles, the error of the device's sum, the
//                   mass of tokens beyond. If both ends of the bounds give the same token, the whole row gives it, too,
//                   in whatever order it adds.
//   min-p           looks at each candidate alone; if b is dropped, every token beyond is.
//   no filter       the device has drawn over the whole row, without penalties. With a penalty >= 1 its token is right
//                   if neither it nor every token with the greatest logit was penalised: scores count from the same
//                   greatest logit, all others fell or stayed, and a tie was already won by the lower id.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/base/check.h"
#include "kernels/sampling.h"
#include "runtime/loop/sampling/sampler.h"

namespace slipstream {

namespace {

constexpr float kImpossible = -std::numeric_limits<float>::infinity();
// Relative error of sums of doubles over a vocabulary and of exp: 2^27 roundings of 2^-53 and some margin.
constexpr double kRounding = 1e-8;
// Relative error of TopLogits::sum against the sum computed here: the argument of exp is a float here, off by 2^-24 of
// at most 104, and the device has a different one.
constexpr double kSumError = kLogitSumError + 1e-5;

bool better(const Candidate& a, const Candidate& b) {
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

bool holds(std::span<const TokenId> ids, TokenId id) {
    return std::ranges::find(ids, id) != ids.end();
}

}  // namespace

LogitRequest Sampler::distribution_request() const {
    LogitRequest needs;
    if (options_.adds()) return needs;
    const bool all = options_.top_k == 0 || options_.top_k >= vocab_;
    if (options_.temperature == 0.0) {
        needs.n_best = options_.repeat_penalty == 1.0 ? 1 : kMostTopLogits;
    } else if (!all || options_.top_p < 1.0 || options_.min_p > 0.0) {
        // More candidates than top logits hold, and no filter that could end them sooner: fetch rows when they are
        // needed.
        const bool too_many = !all && options_.top_k > kMostTopLogits && options_.top_p >= 1.0 && options_.min_p <= 0.0;
        needs.n_best = too_many ? 0 : kMostTopLogits;
        if ((all || options_.top_k > kMostTopLogits) && options_.top_p < 1.0)
            needs.sum_temperature = options_.temperature;
    }
    return needs;
}

LogitRequest Sampler::sample_request() const {
    LogitRequest needs = distribution_request();
    if (options_.adds()) return needs;
    const bool all = options_.top_k == 0 || options_.top_k >= vocab_;
    if (options_.temperature == 0.0 || !all || options_.top_p < 1.0 || options_.min_p > 0.0) return needs;
    needs.draw_temperature = options_.temperature;
    needs.seed = options_.seed;
    if (options_.repeat_penalty > 1.0) needs.n_best = kMostTopLogits;
    return needs;
}

TokenId Sampler::sample(const LogitRows& rows, std::int64_t row, std::int64_t position, std::span<const TokenId> path) {
    CHECK(position >= 0, "position {}", position);
    CHECK(rows.cols() == vocab_, "{} logits for a vocabulary of {}", rows.cols(), vocab_);
    if (rows.on_device()) {
        const TopLogits top = rows.top(row);
        if (const auto token = drawn(top, position, path)) return *token;
        if (filter_top(top, path)) return options_.temperature == 0.0 ? candidates_.front().id : draw(position);
    }
    return sample(rows.row(row), position, path);
}

std::span<const Candidate> Sampler::distribution(const LogitRows& rows, std::int64_t row,
                                                 std::span<const TokenId> path) & {
    CHECK(rows.cols() == vocab_, "{} logits for a vocabulary of {}", rows.cols(), vocab_);
    if (!rows.on_device() || !filter_top(rows.top(row), path)) return distribution(rows.row(row), path);
    if (options_.temperature > 0.0) return weigh();
    candidates_.assign(1, {candidates_.front().id, 0.0F, 1.0});
    return candidates_;
}

/// Returns the token that the device drew, if sample() would draw the same.
std::optional<TokenId> Sampler::drawn(const TopLogits& top, std::int64_t position,
                                      std::span<const TokenId> path) const {
    const bool filters =
        (options_.top_k > 0 && options_.top_k < vocab_) || options_.top_p < 1.0 || options_.min_p > 0.0;
    if (filters || options_.adds() || options_.temperature == 0.0 || top.draw_temperature != options_.temperature ||
        top.seed != options_.seed || top.position != position)
        return std::nullopt;
    if (top.drawn < 0) throw_no_numbers();
    const std::span<const TokenId> fallen = penalised_tokens(path);
    if (fallen.empty()) return top.drawn;
    if (options_.repeat_penalty < 1.0 || holds(fallen, top.drawn)) return std::nullopt;
    for (std::size_t i = 0; i < top.ids.size() && top.logits[i] == top.logits.front(); ++i)
        if (!holds(fallen, top.ids[i])) return top.drawn;
    return std::nullopt;
}

/// Filters candidates_ like filter(), or leaves the token of temperature 0 first. Returns false if the top logits do
/// not decide.
bool Sampler::filter_top(const TopLogits& top, std::span<const TokenId> path) {
    if (options_.adds() || (top.ids.empty() && !top.complete)) return false;
    if (!keep_top(top, path)) return false;
    if (options_.temperature == 0.0) return true;
    const std::int64_t n_wanted = options_.top_k == 0 ? vocab_ : std::min(options_.top_k, vocab_);
    if (std::ssize(candidates_) > n_wanted) candidates_.resize(n_wanted);
    const std::size_t n_kept = candidates_.size();
    // Scaling may turn logits into -inf: those at the end, and with them all that are worse.
    const float greatest = candidates_.front().logit;
    scale(greatest);
    const bool open = !top.complete && std::ssize(candidates_) < n_wanted && candidates_.size() == n_kept;
    const double n_beyond = open ? static_cast<double>(n_wanted - std::ssize(candidates_)) : 0.0;
    return cut_top(top, path, open ? top.logits.back() : kImpossible, greatest, n_beyond);
}

/// Leaves the sure tokens (those of `top` that are certainly the best of the whole row) in candidates_, best first,
/// penalised, unscaled. Returns false if there are none.
bool Sampler::keep_top(const TopLogits& top, std::span<const TokenId> path) {
    const std::span<const TokenId> fallen = penalised_tokens(path);
    if (options_.repeat_penalty < 1.0 && !top.complete)
        for (const TokenId id : fallen)
            if (!holds(top.ids, id)) return false;
    candidates_.clear();
    for (std::size_t i = 0; i < top.ids.size(); ++i) {
        const float logit = holds(fallen, top.ids[i]) ? penalised(top.logits[i]) : top.logits[i];
        if (logit > kImpossible) candidates_.push_back({top.ids[i], logit, 0.0});
    }
    if (!fallen.empty()) std::ranges::sort(candidates_, better);
    if (top.complete) {
        if (candidates_.empty()) throw_no_numbers();
        return true;
    }
    const Candidate last{top.ids.back(), top.logits.back(), 0.0};
    while (!candidates_.empty() && better(last, candidates_.back())) candidates_.pop_back();
    return !candidates_.empty();
}

/// Applies top-p and min-p to candidates_, which are sorted and scaled. Up to n_beyond more candidates follow, none
/// with an original logit above `last`. `greatest`: the logit that scaled logits are relative to. Returns false if the
/// candidates beyond could change the result.
bool Sampler::cut_top(const TopLogits& top, std::span<const TokenId> path, float last, float greatest,
                      double n_beyond) {
    const auto probability_of = [&](float logit) {
        const double below = logit == greatest ? 0.0 : static_cast<double>(logit) - static_cast<double>(greatest);
        return std::exp(below / options_.temperature);
    };
    if (options_.top_p >= 1.0 && options_.min_p <= 0.0) return n_beyond == 0.0;
    double known = 0.0;
    for (Candidate& candidate : candidates_)
        known += candidate.probability = std::exp(static_cast<double>(candidate.logit));
    const double largest = n_beyond > 0.0 ? probability_of(last) * (1.0 + kSumError) : 0.0;
    // Bounds of the total weight of all candidates.
    double low = known;
    double high = known + n_beyond * largest;
    if (n_beyond > 0.0 && top.sum_temperature == options_.temperature) {
        // The device's sum is relative to the original greatest logit and uses unpenalised logits. Without top-k it
        // covers exactly the candidates; with top-k it is an upper bound.
        double fell = 0.0;  // by how much penalties of top tokens lower the sum; may_have: at most by how much those of
                            // other tokens do
        double may_have = 0.0;
        const std::span<const TokenId> fallen = penalised_tokens(path);
        for (std::size_t i = 0; i < top.ids.size(); ++i)
            if (holds(fallen, top.ids[i]))
                fell += probability_of(top.logits[i]) - probability_of(penalised(top.logits[i]));
        for (const TokenId id : fallen)
            if (!holds(top.ids, id)) may_have += largest;
        const double sum = static_cast<double>(top.sum) * probability_of(top.logits.front());
        const double error = kSumError * (sum + std::abs(fell));
        if (std::isfinite(sum) && std::isfinite(fell)) {
            high = std::min(high, sum - fell + error);
            const bool all = options_.top_k == 0 || options_.top_k >= vocab_;
            if (all) low = std::max(low, sum - fell - may_have - error);
        }
    }
    // Bounds of the number of candidates that stay.
    double n_low = static_cast<double>(candidates_.size());
    double n_high = n_low + n_beyond;
    if (options_.top_p < 1.0) {
        const double least = options_.top_p * low * (1.0 - kRounding);
        const double most = options_.top_p * high * (1.0 + kRounding);
        double mass = 0.0;
        bool is_low = false;
        for (std::size_t i = 0; i < candidates_.size(); ++i) {
            mass += candidates_[i].probability;
            const auto n = static_cast<double>(i + 1);
            if (!is_low && mass * (1.0 + kRounding) >= least) {
                is_low = true;
                n_low = n;
            }
            if (mass * (1.0 - kRounding) >= most) {
                n_high = n;
                break;
            }
        }
    }
    if (options_.min_p > 0.0) {
        const auto falls = [this](const Candidate& candidate) { return candidate.probability < options_.min_p; };
        const auto first = std::ranges::find_if(candidates_, falls);
        if (!std::all_of(first, candidates_.end(), falls)) return false;  // exp need not be monotone in the last bit
        const auto n = static_cast<double>(first - candidates_.begin());
        n_low = std::min(n_low, n);
        if (largest < options_.min_p) n_high = std::min(n_high, n);
    }
    if (n_low != n_high) return false;
    candidates_.resize(n_low);
    return true;
}

}  // namespace slipstream
