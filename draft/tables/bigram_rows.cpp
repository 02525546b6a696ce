#include "draft/tables/bigram_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "draft/tree/noise_bar.h"
#include "kernels/base/check.h"

namespace slipstream::draft {

namespace {

// The least half above 0 and the greatest below 1; both are normal floats, which log_float() takes.
constexpr double kLeastProbability = 0x1p-24;
constexpr double kGreatestProbability = 0x1.ffcp-1;

}  // namespace

BigramRows::BigramRows(const BigramTable& table, double temperature, std::int64_t k)
    : vocab_(table.vocab), k_(std::min({k, table.k, std::int64_t{255}})) {
    CHECK(k_ >= 1 && temperature >= 0.0 && std::ssize(table.tokens) == vocab_ * table.k &&
              table.log_p.size() == table.tokens.size(),
          "{} candidates of {}, {} tokens, temperature {}", k, table.k, vocab_, temperature);
    const double sharpness = temperature > 0.0 ? 1.0 / temperature : 1.0;
    tokens_.resize(static_cast<std::size_t>(vocab_ * k_));
    probabilities_.resize(tokens_.size());
    n_candidates_.resize(static_cast<std::size_t>(vocab_));
    std::vector<double> powers(static_cast<std::size_t>(table.k));
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
        n = std::min(n, static_cast<std::size_t>(k_));
        n_candidates_[static_cast<std::size_t>(token)] = static_cast<std::uint8_t>(n);
        for (std::size_t i = 0; i < n; ++i) {
            tokens_[to + i] = table.tokens[from + i];
            probabilities_[to + i] =
                to_half(static_cast<float>(std::clamp(powers[i] / sum, kLeastProbability, kGreatestProbability)));
        }
    }
}

std::span<const std::int32_t> BigramRows::tokens(TokenId token) const {
    CHECK(token >= 0 && token < vocab_, "token {} of {}", token, vocab_);
    return {tokens_.data() + token * k_, n_candidates_[static_cast<std::size_t>(token)]};
}

std::span<const Half> BigramRows::probabilities(TokenId token) const {
    CHECK(token >= 0 && token < vocab_, "token {} of {}", token, vocab_);
    return {probabilities_.data() + token * k_, n_candidates_[static_cast<std::size_t>(token)]};
}

TokenId BigramRows::best(TokenId token, std::int64_t position, const PathNoise& noise) const {
    const std::span<const std::int32_t> row = tokens(token);
    if (row.empty()) return -1;
    if (!noise.present()) return row.front();
    const std::span<const Half> p = probabilities(token);
    TokenId best_token = -1;
    float best_rank = -std::numeric_limits<float>::infinity();
    NoiseBar bar;
    for (std::size_t i = 0; i < row.size(); ++i) {
        const auto id = static_cast<std::uint32_t>(row[i]);
        const PhiloxBlock block =
            noise_block(noise.seed(), static_cast<std::uint64_t>(position), id / 4, NoiseStream::Sampling);
        if (!bar.may_pass(to_float(p[i]), block.word[id % 4])) continue;
        const float rank = log_float(to_float(p[i])) + gumbel_of(block.word[id % 4]);
        if (!(rank > best_rank)) continue;
        best_rank = rank;
        best_token = row[i];
        bar.raise(rank);
    }
    return best_token;
}

std::size_t BigramRows::memory_bytes() const {
    return tokens_.size() * (sizeof(std::int32_t) + sizeof(Half)) + n_candidates_.size();
}

}  // namespace slipstream::draft
