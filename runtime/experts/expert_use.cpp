#include "runtime/experts/expert_use.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace slipstream {

namespace {

constexpr std::uint64_t kMostTokens = std::uint64_t{1} << 62;  // that a file may name

// Most that a number is which each token multiplies by `decay` and may increase by 1.
constexpr float most_of(float decay) {
    return 1.001F / (1.0F - decay);
}

bool are_within(std::span<const float> values, float most) {
    return std::ranges::all_of(values, [&](float value) { return value >= 0.0F && value <= most; });  // no NaN either
}

// An expert that no token has chosen is the last: no slot has ever held it.
std::size_t rank_of(std::span<const float> counts, std::size_t expert) {
    const float own = counts[expert];
    if (own <= 0.0F) return counts.size() - 1;
    std::int32_t n = 0;
    for (std::size_t i = 0; i < expert; ++i) n += counts[i] >= own ? 1 : 0;
    for (std::size_t i = expert + 1; i < counts.size(); ++i) n += counts[i] > own ? 1 : 0;
    return static_cast<std::size_t>(n);
}

}  // namespace

std::optional<ExpertUse> ExpertUse::restored(std::int64_t n_experts, std::span<const float> counts,
                                             std::span<const float> ranks, std::uint64_t n_tokens) {
    if (std::ssize(counts) != n_experts || std::ssize(ranks) != n_experts || n_tokens > kMostTokens ||
        !are_within(counts, most_of(ExpertCounts::kDecay)) ||
        !are_within(ranks, static_cast<float>(n_experts) * most_of(kRankDecay)))
        return std::nullopt;
    ExpertUse use;
    use.counts_ = ExpertCounts(counts);
    use.ranks_.assign(ranks.begin(), ranks.end());
    use.n_tokens_ = n_tokens;
    return use;
}

void ExpertUse::add(std::span<const std::uint16_t> chosen) {
    if (!chosen.empty()) {
        if (n_tokens_ >= kSettlingTokens) {
            for (float& n : ranks_) n *= kRankDecay;
            for (const std::uint16_t expert : chosen) ranks_[rank_of(counts_.counts(), expert)] += 1.0F;
        }
        ++n_tokens_;
    }
    counts_.add(chosen);
}

std::vector<double> ExpertUse::hits() const {
    const double all = std::accumulate(ranks_.begin(), ranks_.end(), 0.0);
    if (n_tokens_ < kSettlingTokens + kLeastRankedTokens || all <= 0.0) return {};
    std::vector<double> hits{0.0};
    double sum = 0.0;
    for (const float n : ranks_) hits.push_back(std::min(1.0, (sum += static_cast<double>(n)) / all));
    hits.back() = 1.0;  // however the sums round
    return hits;
}

std::vector<std::int32_t> most_used(std::span<const float> counts, std::int64_t n) {
    std::vector<std::int32_t> experts;
    for (std::int32_t expert = 0; expert < std::ssize(counts); ++expert)
        if (counts[expert] > 0.0F) experts.push_back(expert);
    std::ranges::stable_sort(experts, std::ranges::greater{}, [&](std::int32_t expert) { return counts[expert]; });
    if (std::ssize(experts) > n) experts.resize(static_cast<std::size_t>(std::max<std::int64_t>(n, 0)));
    return experts;
}

}  // namespace slipstream
