#include "draft/papers/model_unigram.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "draft/sources/best_proposals.h"
#include "draft/sources/rank_bins.h"
#include "kernels/base/check.h"

namespace slipstream::draft {

namespace {

// Constant of Mandelbrot's correction of Zipf's law, in ranks: a token of rank r (from 0) has weight 1 / (r + 2.7).
constexpr double kMandelbrot = 2.7;
// Most tokens that propose() returns, whatever room `out` has.
constexpr std::size_t kMostProposed = 16;
// Children of node 0 in the source's own tree: k = 10.
constexpr std::size_t kRows = 10;
// Bounds of a probability, least and greatest: those of proposals must be in (0, 1), and normal floats for
// PathNoise::rank().
constexpr float kLeastProbability = 0x1p-100F;
constexpr float kGreatestProbability = 0x1.fffffep-1F;

}  // namespace

ModelUnigram::ModelUnigram(std::span<const TokenId> common, std::int64_t vocab, double temperature) : vocab_(vocab) {
    CHECK(!common.empty() && common.size() <= kMaxCandidates && std::ssize(common) <= vocab, "{} tokens of {}",
          common.size(), vocab);
    for (const TokenId token : common) proposals_.push_back({.token = token});
    set_temperature(temperature);
}

void ModelUnigram::set_temperature(double temperature) {
    CHECK(temperature >= 0.0, "temperature {}", temperature);
    const double sharpness = temperature > 0.0 ? 1.0 / temperature : 1.0;
    const auto weight = [sharpness](std::int64_t rank) {
        return std::pow(kMandelbrot / (static_cast<double>(rank) + kMandelbrot), sharpness);
    };
    double sum = 0.0;
    for (std::int64_t rank = 0; rank < vocab_; ++rank) sum += weight(rank);
    for (std::size_t rank = 0; rank < proposals_.size(); ++rank) {
        const auto p = static_cast<float>(weight(static_cast<std::int64_t>(rank)) / sum);
        proposals_[rank].probability = std::clamp(p, kLeastProbability, kGreatestProbability);
    }
}

std::uint16_t ModelUnigram::n_bins() const {
    return kRankProbabilityBins;
}

std::size_t ModelUnigram::propose(Cursor, std::int64_t position, const PathNoise& noise, std::span<Proposal> out) {
    const std::size_t n = take_best_of_row(proposals_, position, noise, out.first(std::min(out.size(), kMostProposed)));
    set_rank_bins(out.first(n));
    return n;
}

void ModelUnigram::propose_shape(TokenTree& tree, const ShapeRequest& request) {
    if (request.max_depth < 1) return;
    std::array<Proposal, kRows> best;
    const std::size_t n = propose(0, std::ssize(request.text), noise_of(request), best);
    for (std::size_t i = 0; i < n && tree.size() < request.budget; ++i) tree.add(kTreeRoot, best[i].token);
}

}  // namespace slipstream::draft
