// Sampling from the top logits of rows (logit_rows.h): the token that the whole row would give, bit for bit, or the
// word that those do not decide, and then the row is fetched.
//
// Why the top k tokens decide. Let b be its last token, (logit, id). Every token beyond it comes after b in the
// order "better", and a penalty of 1 and more never raises a logit (x / p <= x for x > 0, x p <= x else, and rounding
// to float keeps an order), so that after the penalty it still comes after b as b came. So those at the top that are,
// penalised, no worse than b came are the best of the whole vocabulary, in order: the sure ones. With a penalty below 1
// the same holds where every remembered token is among them, for those beyond are as they came; else the row is
// fetched. Top logits that are complete have no beyond.
//
// What adds to logits (presence and frequency penalties, biases) may raise any token: rows are fetched then.
//
//   temperature 0   the first sure one.
//   top-k           where k are sure they are what the filter leaves; where fewer are, and for top-k off, what follows
//                   may still end before they do.
//   temperature     (logit - greatest) / temperature falls with the logit, in floats too: beyond is no more than b's.
//   top-p           ends at the first token at which the mass from the best on reaches top_p times the mass of all
//                   candidates. Both are known within bounds: double roundings, the error of the device's sum, the
//                   share of tokens beyond. Where both ends of the bounds give the same token, so does the row, in
//                   whatever order it adds.
//   min-p           looks at each candidate alone; where b falls, everything beyond does.
//   no filter       the draw over the whole row was made on the device. With a penalty of 1 and more it stands where
//                   neither it nor every token that is as great as the greatest was penalised: scores count from the
//                   same greatest, all others fell or stayed, and a tie was won by the lower id already.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/base/check.h"
#include "kernels/sampling.h"
#include "runtime/loop/sampling/sampler.h"

namespace slipstream {

namespace {

constexpr float kImpossible = -std::numeric_limits<float>::infinity();
// Relative, of sums of doubles over a vocabulary and of exp: 2^27 roundings of 2^-53 and more.
constexpr double kRounding = 1e-8;
// Of logit_sum; exp's argument is a float here, off by 2^-24 of at most 104, where the device's is another.
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
        // More candidates than top logits hold, and nothing that could end them sooner: rows, where they are needed.
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

/// The device's draw, where it is this one.
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

/// As filter(), or with the one token of temperature 0; false where they do not decide.
bool Sampler::filter_top(const TopLogits& top, std::span<const TokenId> path) {
    if (options_.adds() || (top.ids.empty() && !top.complete)) return false;
    if (!keep_top(top, path)) return false;
    if (options_.temperature == 0.0) return true;
    const std::int64_t n_wanted = options_.top_k == 0 ? vocab_ : std::min(options_.top_k, vocab_);
    if (std::ssize(candidates_) > n_wanted) candidates_.resize(n_wanted);
    const std::size_t n_kept = candidates_.size();
    // -inf after scaling falls out: from the end, and with it all that is worse.
    const float greatest = candidates_.front().logit;
    scale(greatest);
    const bool open = !top.complete && std::ssize(candidates_) < n_wanted && candidates_.size() == n_kept;
    const double n_beyond = open ? static_cast<double>(n_wanted - std::ssize(candidates_)) : 0.0;
    return cut_top(top, path, open ? top.logits.back() : kImpossible, greatest, n_beyond);
}

/// Leaves the sure ones in candidates_, best first, penalised; false where there are none.
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

/// top-p and min-p on candidates_, best first, scaled; behind them up to n_beyond more, none above the logit `last` as
/// it came. False where these could matter. `greatest`: what scaled logits count from.
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
    // What all candidates weigh.
    double low = known;
    double high = known + n_beyond * largest;
    if (n_beyond > 0.0 && top.sum_temperature == options_.temperature) {
        // The device's sum counts from the greatest as it came, and tokens as they came. Without a top-k it is all of
        // them; with one it is no less than they are.
        double fell = 0.0;  // by how much the sum fell with tokens at the top, and may have with others
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
    // How many stay: at least, at most.
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
        if (!std::all_of(first, candidates_.end(), falls)) return false;  // exp need not be monotone to the last bit
        const auto n = static_cast<double>(first - candidates_.begin());
        n_low = std::min(n_low, n);
        if (largest < options_.min_p) n_high = std::min(n_high, n);
    }
    if (n_low != n_high) return false;
    candidates_.resize(n_low);
    return true;
}

}  // namespace slipstream
