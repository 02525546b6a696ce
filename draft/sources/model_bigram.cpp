#include "draft/sources/model_bigram.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "draft/sources/best_proposals.h"
#include "draft/sources/ngrammys_shape.h"
#include "draft/sources/rank_bins.h"
#include "kernels/base/check.h"

namespace slipstream::draft {

namespace {

// Bounds of a candidate's probability: the least half-precision number above 0 (kLeastProbability), and the greatest
// below 1 (kGreatestProbability). Both are normal as float.
constexpr double kLeastProbability = 0x1p-24;
constexpr double kGreatestProbability = 0x1.ffcp-1;

}  // namespace

ModelBigram::ModelBigram(std::shared_ptr<const BigramTable> table, double temperature, std::int64_t k)
    : table_(std::move(table)), k_(std::min({k, table_->k, static_cast<std::int64_t>(kMaxCandidates)})) {
    CHECK(k_ >= 1 && std::ssize(table_->tokens) == table_->vocab * table_->k &&
              table_->log_p.size() == table_->tokens.size(),
          "{} candidates of {}, {} tokens", k, table_->k, table_->vocab);
    probabilities_.resize(table_->vocab * k_);
    set_temperature(temperature);
}

void ModelBigram::set_temperature(double temperature) {
    CHECK(temperature >= 0.0, "temperature {}", temperature);
    const BigramTable& table = *table_;
    const double sharpness = temperature > 0.0 ? 1.0 / temperature : 1.0;
    std::vector<double> powers(table.k);
    for (std::int64_t token = 0; token < table.vocab; ++token) {
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
        for (std::size_t i = 0; i < std::min(n, static_cast<std::size_t>(k_)); ++i)
            probabilities_[to + i] =
                to_half(static_cast<float>(std::clamp(powers[i] / sum, kLeastProbability, kGreatestProbability)));
    }
}

// Returns the candidates after `token`, most probable first, at most k(). Valid as long as the table.
std::span<const std::int32_t> ModelBigram::tokens_after(std::int64_t token) const {
    CHECK(token >= 0 && token < table_->vocab, "token {} of {}", token, table_->vocab);
    const std::span row = std::span(table_->tokens).subspan(token * table_->k, k_);
    return row.first(std::ranges::find_if(row, [](std::int32_t id) { return id < 0; }) - row.begin());
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
    const std::span<const std::int32_t> tokens = tokens_after(static_cast<std::int64_t>(cursor));
    const std::size_t row = cursor * static_cast<std::size_t>(k_);
    std::array<Proposal, kMaxCandidates> found;
    for (std::size_t i = 0; i < tokens.size(); ++i)
        found[i] = {.token = tokens[i], .probability = to_float(probabilities_[row + i])};
    const std::size_t n = take_best_of_row(std::span(found).first(tokens.size()), position, noise, out);
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
    return table_->tokens.size() * (sizeof(std::int32_t) + sizeof(Half)) + probabilities_.size() * sizeof(Half);
}

}  // namespace slipstream::draft
