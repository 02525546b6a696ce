#include "draft/papers/model_unigram.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "draft/sources/rank_cells.h"
#include "draft/tree/noise_bar.h"
#include "kernels/base/check.h"

namespace slipstream::draft {

namespace {

// What log_float() takes, and far less than anything worth guessing.
constexpr float kLeastProbability = 0x1p-100F;
constexpr float kGreatestProbability = 0x1.fffffep-1F;

std::vector<float> tempered(std::span<const float> log_p, double temperature) {
    const double sharpness = temperature > 0.0 ? 1.0 / temperature : 1.0;
    const double greatest = *std::ranges::max_element(log_p);
    double sum = 0.0;
    for (const float value : log_p) sum += std::exp(sharpness * (static_cast<double>(value) - greatest));
    std::vector<float> probabilities;
    probabilities.reserve(log_p.size());
    for (const float value : log_p) {
        const double p = std::exp(sharpness * (static_cast<double>(value) - greatest)) / sum;
        probabilities.push_back(std::clamp(static_cast<float>(p), kLeastProbability, kGreatestProbability));
    }
    return probabilities;
}

// Puts `proposal` into out[0, n) by its rank, best first, behind equals; `ranks` are those of out. The worst is dropped
// where out is full. Returns the new n.
std::size_t insert_ranked(std::span<Proposal> out, std::span<float> ranks, std::size_t n, float rank,
                          const Proposal& proposal) {
    if (n == out.size() && !(rank > ranks[n - 1])) return n;
    std::size_t at = n < out.size() ? n++ : n - 1;
    for (; at > 0 && rank > ranks[at - 1]; --at) {
        out[at] = out[at - 1];
        ranks[at] = ranks[at - 1];
    }
    out[at] = proposal;
    ranks[at] = rank;
    return n;
}

}  // namespace

ModelUnigram::ModelUnigram(const UnigramTable& table, const ModelUnigramOptions& options)
    : options_(options), remembered_(kRememberedPositions) {
    CHECK(!table.distances.empty() && options.temperature >= 0.0 && options.rows >= 1,
          "{} tokens, temperature {}, {} rows", table.distances.size(), options.temperature, options.rows);
    const std::vector<float> log_p = unigram_log_p(table, options.rule);
    probabilities_ = tempered(log_p, options.temperature);
    // Ranked by what the table says: at low temperatures probabilities fall together at the least that is kept.
    std::array<float, kBest> ranks{};
    for (std::size_t i = 0; i < log_p.size(); ++i)
        greedy_.n = insert_ranked(greedy_.proposals, ranks, greedy_.n, log_p[i],
                                  {.token = static_cast<TokenId>(i), .probability = probabilities_[i]});
    likeliest_.resize(log_p.size());
    std::iota(likeliest_.begin(), likeliest_.end(), 0);
    const std::size_t n = std::min(kNoisy, log_p.size());
    const auto likelier = [&log_p](TokenId a, TokenId b) {
        const float p_a = log_p[static_cast<std::size_t>(a)];
        const float p_b = log_p[static_cast<std::size_t>(b)];
        return p_a != p_b ? p_a > p_b : a < b;
    };
    std::ranges::partial_sort(likeliest_, likeliest_.begin() + static_cast<std::ptrdiff_t>(n), likelier);
    likeliest_.resize(n);
    likeliest_.shrink_to_fit();
    std::ranges::sort(likeliest_);
}

std::uint16_t ModelUnigram::n_cells() const {
    return kRankProbabilityCells;
}

const ModelUnigram::Best& ModelUnigram::best_at(std::int64_t position, const PathNoise& noise) {
    if (!noise.present()) return greedy_;
    Best& best = remembered_[static_cast<std::size_t>(position) % kRememberedPositions];
    if (best.position == position && best.seed == noise.seed()) return best;
    best.position = position;
    best.seed = noise.seed();
    best.n = 0;
    std::array<float, kBest> ranks{};
    NoiseBar bar;
    std::uint32_t group = ~0U;  // tokens whose noise is in `block`
    PhiloxBlock block{};
    for (const TokenId token : likeliest_) {
        const auto id = static_cast<std::uint32_t>(token);
        if (id / 4 != group) {
            group = id / 4;
            block = noise_block(noise.seed(), static_cast<std::uint64_t>(position), group, NoiseStream::Sampling);
        }
        const std::uint32_t word = block.word[id % 4];
        const float p = probabilities_[id];
        if (!bar.may_pass(p, word)) continue;
        best.n = insert_ranked(best.proposals, ranks, best.n, log_float(p) + gumbel_of(word),
                               {.token = token, .probability = p});
        if (best.n == kBest) bar.raise(ranks[kBest - 1]);
    }
    return best;
}

std::size_t ModelUnigram::propose(Cursor, std::int64_t position, const PathNoise& noise, std::span<Proposal> out) {
    const Best& best = best_at(position, noise);
    const std::size_t n = std::min(out.size(), best.n);
    for (std::size_t i = 0; i < n; ++i) {
        out[i] = best.proposals[i];
        out[i].cell = rank_probability_cell(i, out[i].probability);
    }
    return n;
}

void ModelUnigram::propose_shape(TokenTree& tree, const ShapeRequest& request) {
    if (request.max_depth < 1) return;
    const PathNoise noise = request.noise != nullptr ? *request.noise : PathNoise();
    const Best& best = best_at(static_cast<std::int64_t>(request.text.size()), noise);
    const std::size_t n = std::min(best.n, static_cast<std::size_t>(options_.rows));
    for (std::size_t i = 0; i < n && tree.size() < request.budget; ++i) tree.add(0, best.proposals[i].token);
}

std::size_t ModelUnigram::memory_bytes() const {
    return probabilities_.size() * sizeof(float) + likeliest_.size() * sizeof(TokenId) +
           remembered_.size() * sizeof(Best);
}

}  // namespace slipstream::draft
