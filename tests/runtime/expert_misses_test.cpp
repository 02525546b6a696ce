// Expected hits of slots, and the experts that passes are expected to copy: figures of the prior, bounds, and what
// never falls or rises.
#include "runtime/plan/expert_misses.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include <gtest/gtest.h>

namespace slipstream {
namespace {

// qwen3-30b-a3b, gpt-oss-120b, gpt-oss-20b, mixtral-8x7b, and small ones: half of the experts, all, one.
constexpr ExpertChoice kChoices[] = {{128, 8}, {128, 4}, {32, 4}, {8, 2}, {8, 4}, {4, 4}, {16, 1}, {1, 1}};

TEST(ExpertHits, ArePiecewiseLinear) {
    const ExpertChoice choice{100, 2};
    for (const auto& [n_slots, hits] : std::vector<std::pair<std::int64_t, double>>{
             {0, 0.0}, {5, 0.344}, {25, 0.82}, {29, 0.845}, {33, 0.87}, {50, 0.92}, {75, 0.96}, {100, 1.0}})
        EXPECT_NEAR(expected_hits(choice, n_slots), hits, 1e-12) << n_slots;
}

// Of four experts that a token chooses, two at most have one of two slots.
TEST(ExpertHits, AreNoMoreThanThereAreSlots) {
    EXPECT_DOUBLE_EQ(expected_hits({8, 4}, 1), 0.25);
    EXPECT_DOUBLE_EQ(expected_hits({8, 4}, 2, 0.0), 0.5);
    EXPECT_DOUBLE_EQ(expected_hits({4, 4}, 3), 0.75);
    EXPECT_DOUBLE_EQ(expected_hits({8, 4}, 4, 0.0), 1.0);
}

TEST(ExpertHits, OfFewerMissesAreMore) {
    const ExpertChoice choice{128, 8};
    EXPECT_DOUBLE_EQ(expected_hits(choice, 64, 0.5), 0.96);
    EXPECT_DOUBLE_EQ(expected_hits(choice, 64, 2.0), 0.84);
    EXPECT_EQ(expected_hits(choice, 64, 1e9), 0.0);
    EXPECT_EQ(expected_hits(choice, 128, 1e9), 1.0);
    EXPECT_EQ(expected_hits(choice, 0, 0.0), 0.0);
}

TEST(ExpertHits, AreThoseThatWereCounted) {
    const std::vector<double> counted{0.0, 0.1, 0.3, 0.35, 0.5, 0.75, 0.75, 0.9, 1.0};
    for (std::int64_t n_slots = 0; n_slots <= 8; ++n_slots)
        EXPECT_DOUBLE_EQ(expected_hits({8, 2}, n_slots, 1.0, counted), counted[n_slots]);
    EXPECT_DOUBLE_EQ(expected_hits({8, 2}, 4, 0.5, counted), 0.75);
    EXPECT_DOUBLE_EQ(expected_misses({8, 2}, 1.0, 1.0, {.hits = counted})[4], 1.0);
    // Tokens that choose evenly would miss as many.
    EXPECT_DOUBLE_EQ(expected_misses({8, 2}, 4.0, 1.0, {.hits = counted})[5], 3 * (1 - std::pow(1 - 2 * 0.25 / 3, 4)));
    EXPECT_DEATH(static_cast<void>(expected_hits({8, 2}, 1, 1.0, std::span(counted).first(8))), "8 counted hits of 8");
}

TEST(ExpertHits, MistakesAreBugs) {
    EXPECT_DEATH(static_cast<void>(expected_hits({8, 9}, 1)), "9 of 8 experts");
    EXPECT_DEATH(static_cast<void>(expected_hits({8, 2}, 9)), "9 slots for 8 experts");
}

TEST(ExpertDistinct, AreThoseOfEvenChoicesIfNothingIsCounted) {
    for (const ExpertChoice& choice : kChoices)
        for (const double n_tokens : {1.0, 3.0, 16.0, 512.0}) {
            const auto n = static_cast<double>(choice.n_experts);
            EXPECT_DOUBLE_EQ(expected_distinct(choice, n_tokens),
                             n * expected_share(static_cast<double>(choice.n_chosen) / n, n_tokens));
        }
}

// Between and past the counted points the number of experts rises with the tokens, from those of one token to less than
// even choices would need. Counts of even choices are even choices.
TEST(ExpertDistinct, FollowWhatWasCounted) {
    const ExpertChoice choice{128, 6};
    // Neighbours of a public trace of Qwen3-30B-A3B, of which a token chose 6 ("Experts: neighbours and slots" in
    // runtime/NOTES.md).
    const std::vector<DistinctPoint> counted{{2.0, 1.62 * 6},  {4.0, 2.59 * 6}, {8.0, 3.93 * 6},
                                             {16.0, 5.58 * 6}, {32.0, 7.1 * 6}, {64.0, 8.5 * 6}};
    for (const DistinctPoint& point : counted)
        EXPECT_NEAR(expected_distinct(choice, point.n_tokens, counted), point.n_distinct, 1e-9);
    EXPECT_NEAR(expected_distinct(choice, 1.0, counted), 6.0, 1e-12);
    double before = 6.0;
    for (double n = 2.0; n <= 1000.0; n += 1.0) {
        const double distinct = expected_distinct(choice, n, counted);
        EXPECT_GT(distinct, before) << n;
        EXPECT_LE(distinct, expected_distinct(choice, n)) << n;
        before = distinct;
    }
    EXPECT_NEAR(expected_distinct(choice, 3.0, counted), 12.8, 0.3);
    EXPECT_NEAR(expected_distinct(choice, 128.0, counted), 9.9 * 6, 2.0);
    for (const std::size_t n_points : {1U, 3U}) {
        std::vector<DistinctPoint> even;
        for (std::size_t i = 0; i < n_points; ++i) {
            const double n = std::exp2(static_cast<double>(i + 1));
            even.push_back({n, expected_distinct(choice, n)});
        }
        for (const double n : {1.0, 2.0, 3.0, 6.0, 40.0, 500.0})
            EXPECT_NEAR(expected_distinct(choice, n, even), expected_distinct(choice, n), 1e-9) << n;
    }
}

TEST(ExpertDistinct, AreWithinTheExpertsOfALayer) {
    EXPECT_DOUBLE_EQ(expected_distinct({4, 4}, 8.0, std::vector<DistinctPoint>{{2.0, 4.0}}), 4.0);
    for (const double n_distinct : {0.0, 2.0, 8.0, 9.0})  // as no text has them
        for (const double n : {1.0, 2.0, 4.0, 300.0}) {
            const double distinct = expected_distinct({8, 2}, n, std::vector<DistinctPoint>{{2.0, n_distinct}});
            EXPECT_GE(distinct, 2.0 - 1e-12) << n;
            EXPECT_LE(distinct, 8.0) << n;
        }
}

// Where neighbours share experts, a pass has no more misses than it needs experts.
TEST(ExpertMisses, AreAtMostTheCountedDistinctExperts) {
    const std::vector<DistinctPoint> alike{{2.0, 9.0}, {64.0, 12.0}};
    const std::vector<double> misses = expected_misses({128, 8}, 64.0, 1.0, {.distinct = alike});
    EXPECT_NEAR(misses[0], 12.0, 1e-9);
    EXPECT_NEAR(misses[1], 12.0, 1e-9);
    EXPECT_GT(expected_misses({128, 8}, 64.0)[1], 100.0);
}

TEST(ExpertMisses, OfOneTokenAreItsExpertsWithoutASlot) {
    const std::vector<double> misses = expected_misses({128, 8}, 1.0);
    ASSERT_EQ(misses.size(), 129U);
    EXPECT_NEAR(misses[0], 8.0, 1e-12);
    EXPECT_NEAR(misses[32], 8.0 * 0.18, 1e-12);
    EXPECT_NEAR(misses[64], 8.0 * 0.08, 1e-12);
    // Without a slot in reach of the formula: one of 128, which a token chooses in a sixteenth of all passes.
    EXPECT_NEAR(misses[127], 8.0 * 0.08 / 64.0, 1e-12);
    EXPECT_EQ(misses[128], 0.0);
}

TEST(ExpertMisses, NeighboursShareExperts) {
    const ExpertChoice choice{128, 4};
    const double one = expected_misses(choice, 1.0)[32];
    for (const auto& [n_tokens, share] : std::vector<std::pair<double, double>>{
             {2.0, 0.9766666667}, {4.0, 0.93}, {8.0, 0.88}, {12.0, 0.82}, {16.0, 0.76}})
        EXPECT_NEAR(expected_misses(choice, n_tokens)[32], n_tokens * share * one, 1e-6) << n_tokens;
    // A large pass reads nearly all experts, and copies those without a slot.
    EXPECT_NEAR(expected_misses(choice, 1000.0)[32], 96.0 * (1.0 - std::pow(1.0 - 4.0 * 0.18 / 96.0, 1000.0)), 1e-9);
}

// With hits as often as experts have slots, misses are those of tokens that choose evenly.
TEST(ExpertMisses, OfEvenChoices) {
    std::vector<double> hits;
    for (int n_slots = 0; n_slots <= 32; ++n_slots) hits.push_back(n_slots / 32.0);
    for (const double n_tokens : {1.0, 16.0, 64.0}) {
        const std::vector<double> misses = expected_misses({32, 4}, n_tokens, 1.0, {.hits = hits});
        for (int n_slots = 0; n_slots <= 32; ++n_slots)
            EXPECT_NEAR(misses[n_slots], (32 - n_slots) * expected_share(4.0 / 32, n_tokens), 1e-9) << n_slots;
    }
}

// Without slots, experts are copied as if tokens chose evenly, as everywhere where they do not change.
TEST(ExpertMisses, WithoutSlotsAreWhatAPassReads) {
    for (const ExpertChoice& choice : kChoices)
        for (const double n_tokens : {1.0, 3.0, 16.0, 512.0}) {
            const auto n = static_cast<double>(choice.n_experts);
            EXPECT_DOUBLE_EQ(expected_misses(choice, n_tokens)[0],
                             n * expected_share(static_cast<double>(choice.n_chosen) / n, n_tokens));
        }
}

TEST(ExpertMisses, NeverRiseWithSlotsNorFallWithTokens) {
    for (const ExpertChoice& choice : kChoices) {
        for (const double factor : {1.0, 0.0, 0.3, 4.0}) {
            std::vector<double> fewer_tokens(static_cast<std::size_t>(choice.n_experts) + 1, 0.0);
            for (std::int64_t n_tokens = 1; n_tokens <= 300; ++n_tokens) {
                const std::vector<double> misses = expected_misses(choice, static_cast<double>(n_tokens), factor);
                ASSERT_EQ(misses.size(), fewer_tokens.size());
                EXPECT_EQ(misses.back(), 0.0);
                for (std::size_t slots = 0; slots < misses.size(); ++slots) {
                    EXPECT_GE(misses[slots], fewer_tokens[slots] - 1e-9)
                        << slots << " slots, " << n_tokens << " tokens";
                    EXPECT_LE(misses[slots], static_cast<double>(choice.n_experts) - static_cast<double>(slots) + 1e-9);
                    // A token's experts differ: those beyond the slots are copied.
                    EXPECT_GE(misses[slots] + static_cast<double>(slots), static_cast<double>(choice.n_chosen) - 1e-9);
                    if (slots > 0) {
                        EXPECT_LE(misses[slots], misses[slots - 1]);
                    }
                }
                fewer_tokens = misses;
            }
        }
    }
}

}  // namespace
}  // namespace slipstream
