#include "runtime/plan/expert_misses.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "kernels/base/check.h"

namespace slipstream {

namespace {

struct Point {
    double x = 0.0;
    double y = 0.0;
};

// Hits over slots / experts. Where experts are replaced by decayed counts (experts/slot_choice.h), the second half of
// three public traces had hits of .41 to .56 with slots for a sixteenth of the experts, .60 to .72 for an eighth, .82
// to .85 for a quarter, .86 to .90 for a third and .86 to .97 for half of them ("Experts: neighbours and slots" in
// runtime/NOTES.md has the table and the source). These are one short text each of Qwen3-30B-A3B, gemma-4-26B-A4B and
// gpt-oss-120b, with 6, 6 and 2 of 128 experts a token, which is fewer than the models have; the first half of the
// texts, in which slots fill, is left out. The points are in these ranges, near their lower ends. A router that chooses
// evenly, as of random weights, hits only as often as slots / experts.
constexpr std::array kHits{Point{0.0, 0.0},   Point{0.0625, 0.43}, Point{0.125, 0.61}, Point{0.25, 0.82},
                           Point{0.33, 0.87}, Point{0.5, 0.92},    Point{1.0, 1.0}};

// Missed experts of a token in a pass of several, over those of a pass of one: in these traces, with slots for a
// quarter of the experts, 5 to 9 % fewer for 4 neighbouring tokens, 6 to 19 % for 8, and 16 to 32 % for 16. Neighbours
// mostly share experts that have slots.
constexpr std::array kMissesOfNeighbours{Point{1.0, 1.0}, Point{4.0, 0.93}, Point{8.0, 0.88}, Point{16.0, 0.76}};

// Most of a layer's experts that a pass of several tokens is expected to need, as a share: one that every token chooses
// counts as almost sure.
constexpr double kMostShare = 1.0 - 1e-6;

// Returns the y of x, linear between the points, which have ascending x; constant outside of them.
double value_at(std::span<const Point> points, double x) {
    const auto next = std::ranges::upper_bound(points, x, {}, &Point::x);
    if (next == points.begin()) return points.front().y;
    if (next == points.end()) return points.back().y;
    const Point& before = *std::prev(next);
    return before.y + (next->y - before.y) * ((x - before.x) / (next->x - before.x));
}

void check_choice(const ExpertChoice& choice) {
    CHECK(choice.n_chosen >= 1 && choice.n_chosen <= choice.n_experts, "{} of {} experts", choice.n_chosen,
          choice.n_experts);
}

}  // namespace

double expected_share(double chosen_share, double n_tokens) {
    return chosen_share >= 1.0 ? 1.0 : 1.0 - std::pow(1.0 - chosen_share, n_tokens);
}

double expected_distinct(const ExpertChoice& choice, double n_tokens, std::span<const DistinctPoint> counted) {
    check_choice(choice);
    const auto n_experts = static_cast<double>(choice.n_experts);
    const double chosen_share = static_cast<double>(choice.n_chosen) / n_experts;
    const double evenly = n_experts * expected_share(chosen_share, n_tokens);
    if (counted.empty() || chosen_share >= 1.0 || n_tokens <= 1.0) return evenly;
    // A point as logarithms: of its tokens, and of those that would need as many experts if they chose evenly.
    const auto as_even = [&](const DistinctPoint& point) -> Point {
        const double share = std::clamp(point.n_distinct / n_experts, chosen_share, kMostShare);
        return {std::log(point.n_tokens), std::log(std::log1p(-share) / std::log1p(-chosen_share))};
    };
    const auto next = std::ranges::upper_bound(counted, n_tokens, {}, &DistinctPoint::n_tokens);
    const auto end = next == counted.end() ? std::prev(next) : next;
    const Point below = end == counted.begin() ? Point{} : as_even(*std::prev(end));
    const Point above = as_even(*end);
    const double measured = (above.y - below.y) / (above.x - below.x);
    const double slope = next == counted.end() ? std::min(measured, 1.0) : measured;
    const double even_tokens = std::exp(below.y + slope * (std::log(n_tokens) - below.x));
    return std::min(evenly, n_experts * expected_share(chosen_share, even_tokens));
}

double expected_hits(const ExpertChoice& choice, std::int64_t n_slots, double miss_factor,
                     std::span<const double> counted) {
    check_choice(choice);
    CHECK(n_slots >= 0 && n_slots <= choice.n_experts && miss_factor >= 0.0, "{} slots for {} experts, misses by {}",
          n_slots, choice.n_experts, miss_factor);
    CHECK(counted.empty() || std::ssize(counted) == choice.n_experts + 1, "{} counted hits of {} experts",
          counted.size(), choice.n_experts);
    if (n_slots == 0) return 0.0;
    const double share = static_cast<double>(n_slots) / static_cast<double>(choice.n_experts);
    // The experts of a token differ, so no more of them have slots than there are slots.
    const double most = std::min(1.0, static_cast<double>(n_slots) / static_cast<double>(choice.n_chosen));
    const double hits = counted.empty() ? value_at(kHits, share) : counted[n_slots];
    return std::clamp(1.0 - miss_factor * (1.0 - hits), 0.0, most);
}

std::vector<double> expected_misses(const ExpertChoice& choice, double n_tokens, double miss_factor,
                                    const CountedExperts& counted) {
    std::vector<double> misses{expected_distinct(choice, n_tokens, counted.distinct)};
    const double choices = n_tokens * static_cast<double>(choice.n_chosen) * value_at(kMissesOfNeighbours, n_tokens);
    for (std::int64_t n_slots = 1; n_slots <= choice.n_experts; ++n_slots) {
        const double missed = 1.0 - expected_hits(choice, n_slots, miss_factor, counted.hits);  // of a token's experts
        // Tokens that choose evenly and independently among the experts without a slot miss most.
        const auto n_without = static_cast<double>(choice.n_experts - n_slots);
        const double share = static_cast<double>(choice.n_chosen) * missed / std::max(n_without, 1.0);
        misses.push_back(std::min({misses.back(), choices * missed, n_without * expected_share(share, n_tokens)}));
    }
    return misses;
}

}  // namespace slipstream
