#include "runtime/experts/distinct_experts.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace slipstream {

void DistinctExperts::add(std::int64_t n_tokens, std::int64_t n_distinct) {
    if (n_tokens <= 0) return;
    const auto tokens = static_cast<std::uint64_t>(n_tokens);
    DistinctSum& sum = sums_[std::min<std::size_t>(static_cast<std::size_t>(std::bit_width(tokens)) - 1, kSizes - 1)];
    ++sum.groups;
    sum.tokens += tokens;
    sum.distinct += static_cast<std::uint64_t>(n_distinct);
}

DistinctExperts DistinctExperts::limited() const {
    DistinctExperts result = *this;
    for (DistinctSum& sum : result.sums_) {
        if (sum.tokens <= kMostTokens) continue;
        const auto groups = static_cast<double>(sum.groups);
        const double kept =
            std::max(1.0, std::floor(groups * static_cast<double>(kMostTokens) / static_cast<double>(sum.tokens)));
        // Rounded down, so that a group has no more experts than before.
        const auto of_kept = [&](std::uint64_t number) {
            return static_cast<std::uint64_t>(static_cast<double>(number) / groups * kept);
        };
        sum = {.groups = static_cast<std::uint64_t>(kept),
               .tokens = of_kept(sum.tokens),
               .distinct = of_kept(sum.distinct)};
    }
    return result;
}

std::vector<DistinctPoint> DistinctExperts::points() const {
    std::vector<DistinctPoint> points;
    for (std::size_t i = 1; i < kSizes; ++i) {
        const DistinctSum& sum = sums_[i];
        if (sum.groups < kLeastGroups || sum.tokens < kLeastTokens) continue;
        const auto groups = static_cast<double>(sum.groups);
        const DistinctPoint before = points.empty() ? DistinctPoint{} : points.back();
        const DistinctPoint point{
            .n_tokens = static_cast<double>(sum.tokens) / groups,
            .n_distinct = std::max(static_cast<double>(sum.distinct) / groups, before.n_distinct)};
        if (point.n_tokens > std::max(before.n_tokens, 1.0)) points.push_back(point);
    }
    return points;
}

DistinctExperts& DistinctExperts::operator+=(const DistinctExperts& other) {
    for (std::size_t i = 0; i < kSizes; ++i) {
        sums_[i].groups += other.sums_[i].groups;
        sums_[i].tokens += other.sums_[i].tokens;
        sums_[i].distinct += other.sums_[i].distinct;
    }
    return *this;
}

DistinctExperts operator-(const DistinctExperts& later, const DistinctExperts& earlier) {
    DistinctExperts between = later;
    for (std::size_t i = 0; i < DistinctExperts::kSizes; ++i) {
        between.sums_[i].groups -= earlier.sums_[i].groups;
        between.sums_[i].tokens -= earlier.sums_[i].tokens;
        between.sums_[i].distinct -= earlier.sums_[i].distinct;
    }
    return between;
}

void NeighbourExperts::add(std::span<const std::uint16_t> chosen) {
    if (chosen.empty()) {
        first_ = n_tokens_ + 1;
        n_distinct_.fill(0);
        return;
    }
    const std::uint64_t token = ++n_tokens_;
    const std::uint64_t index = token - first_;  // since all groups began
    // Groups are nested. Let h be the highest bit in which the numbers of this token and of the last one that chose the
    // expert differ: both are in one group of 2^(h+1) tokens, and of more; to the smaller groups the expert is new.
    std::array<std::int64_t, kGroupSizes + 1> n_new{};  // by the number of sizes to which experts are new
    for (const std::uint16_t expert : chosen) {
        std::uint64_t& last = last_[expert];
        const std::size_t n_sizes =
            last < first_ ? kGroupSizes
                          : std::min<std::size_t>(
                                kGroupSizes, static_cast<std::size_t>(std::bit_width(index ^ (last - first_)) - 1));
        ++n_new[n_sizes];
        last = token;
    }
    std::int64_t n = 0;
    for (std::size_t i = kGroupSizes; i > 0; --i) {
        n += n_new[i];
        n_distinct_[i - 1] += n;
    }
    for (std::size_t i = 0; i < kGroupSizes; ++i) {
        const std::uint64_t size = std::uint64_t{2} << i;
        if ((index + 1) % size != 0) break;  // no larger group ends here either
        distinct_.add(static_cast<std::int64_t>(size), n_distinct_[i]);
        n_distinct_[i] = 0;
    }
}

}  // namespace slipstream
