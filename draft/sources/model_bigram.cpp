#include "draft/sources/model_bigram.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "draft/sources/best_proposals.h"
#include "draft/sources/ngrammys_shape.h"
#include "draft/sources/rank_bins.h"
#include "kernels/base/check.h"

namespace slipstream::draft {

namespace {

// The least half above 0 and the greatest below 1. Both are normal as float.
constexpr double kLeastProbability = 0x1p-24;
constexpr double kGreatestProbability = 0x1.ffcp-1;

}  // namespace

ModelBigram::ModelBigram(const BigramTable& table, double temperature, std::int64_t k)
    : vocab_(table.vocab), k_(std::min({k, table.k, static_cast<std::int64_t>(kMaxCandidates)})) {
    CHECK(k_ >= 1 && temperature >= 0.0 && std::ssize(table.tokens) == vocab_ * table.k &&
              table.log_p.size() == table.tokens.size(),
          "{} candidates of {}, {} tokens, temperature {}", k, table.k, vocab_, temperature);
    const double sharpness = temperature > 0.0 ? 1.0 / temperature : 1.0;
    tokens_.assign(vocab_ * k_, -1);
    probabilities_.resize(tokens_.size());
    std::vector<double> powers(table.k);
    for (std::int64_t token = 0; token < vocab_; ++token) {
        const auto from = static_cast<std::size_t>(token * table.k);
        const auto to = static_cast<std::size_t>(token * k_);
        double mass = 0.0;
        double sum = 0.0;
        std::size_t n = 0;
        for (; n < powers.size() && table.tokens[from + n] >= 0; ++n) {
            const auto log_p = static_cast<double>(to_float(table.log_p[from + n]));
            mass += std::exp(log_p);
            sum += powers[n] = std::exp(sharpness * log_p);
        }
        if (n == 0) continue;
        const double rest = std::max(0.0, 1.0 - mass);
        const auto last = static_cast<double>(to_float(table.log_p[from + n - 1]));
        sum = std::max(sum + rest * std::exp((sharpness - 1.0) * last), std::numeric_limits<double>::min());
        for (std::size_t i = 0; i < std::min(n, static_cast<std::size_t>(k_)); ++i) {
            tokens_[to + i] = table.tokens[from + i];
            probabilities_[to + i] =
                to_half(static_cast<float>(std::clamp(powers[i] / sum, kLeastProbability, kGreatestProbability)));
        }
    }
}

std::uint16_t ModelBigram::n_bins() const {
    return kRankProbabilityBins;
}

Cursor ModelBigram::root(std::span<const TokenId> text) {
    return static_cast<Cursor>(text.back());
}

Cursor ModelBigram::advance(Cursor, TokenId token) {
    return static_cast<Cursor>(token);
}

std::size_t ModelBigram::propose(Cursor cursor, std::int64_t position, const PathNoise& noise,
                                 std::span<Proposal> out) {
    CHECK(cursor < static_cast<Cursor>(vocab_), "token {} of {}", cursor, vocab_);
    const std::size_t row = cursor * static_cast<std::size_t>(k_);
    std::array<Proposal, kMaxCandidates> found;
    std::size_t n = 0;
    for (; n < static_cast<std::size_t>(k_) && tokens_[row + n] >= 0; ++n)
        found[n] = {.token = tokens_[row + n], .probability = to_float(probabilities_[row + n])};
    n = take_best_of_row(std::span(found).first(n), position, noise, out);
    set_rank_bins(out.first(n));
    return n;
}

TokenId ModelBigram::best(TokenId token, std::int64_t position, const PathNoise& noise) {
    std::array<Proposal, 1> best;
    return propose(static_cast<Cursor>(token), position, noise, best) > 0 ? best[0].token : -1;
}

void ModelBigram::propose_shape(TokenTree& tree, const ShapeRequest& request) {
    grow_ngrammys(tree, request, ContextRows::None, this);
}

std::size_t ModelBigram::memory_bytes() const {
    return tokens_.size() * (sizeof(std::int32_t) + sizeof(Half));
}

}  // namespace slipstream::draft
