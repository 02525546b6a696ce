// Distinct experts of groups of tokens: sums by size, points that are known, and groups of neighbours.
#include "runtime/experts/distinct_experts.h"

#include <array>
#include <cstdint>
#include <random>
#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace slipstream {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

using Experts = std::vector<std::uint16_t>;

TEST(DistinctExperts, AreSummedBySize) {
    DistinctExperts all;
    EXPECT_TRUE(all.empty());
    all.add(0, 0);
    EXPECT_TRUE(all.empty());
    for (const std::int64_t n : {1, 2, 3, 4, 7, 8, 512, 1024, 5000}) all.add(n, 2 * n);
    const auto& sums = all.sums();
    EXPECT_EQ(sums[0], (DistinctSum{1, 1, 2}));
    EXPECT_EQ(sums[1], (DistinctSum{2, 5, 10}));
    EXPECT_EQ(sums[2], (DistinctSum{2, 11, 22}));
    EXPECT_EQ(sums[3], (DistinctSum{1, 8, 16}));
    EXPECT_EQ(sums[9], (DistinctSum{3, 6536, 13072})) << "512 and more";
    DistinctExperts twice = all;
    twice += all;
    EXPECT_EQ(twice.sums()[1], (DistinctSum{4, 10, 20}));
    EXPECT_EQ(twice - all, all);
    EXPECT_TRUE((all - all).empty());
}

TEST(DistinctExperts, PointsAreOfSizesWithEnoughGroups) {
    DistinctExperts all;
    for (int i = 0; i < 1000; ++i) all.add(1, 4);
    for (int i = 0; i < 127; ++i) all.add(2, 7);
    for (int i = 0; i < 7; ++i) all.add(64, 30);
    EXPECT_THAT(all.points(), IsEmpty()) << "254 tokens, and 7 groups";
    all.add(2, 7);
    EXPECT_THAT(all.points(), ElementsAre(DistinctPoint{2.0, 7.0}));
    all.add(72, 30);
    EXPECT_THAT(all.points(), ElementsAre(DistinctPoint{2.0, 7.0}, DistinctPoint{65.0, 30.0}));
    for (int i = 0; i < 100; ++i) all.add(16, 6);
    EXPECT_THAT(all.points(), ElementsAre(DistinctPoint{2.0, 7.0}, DistinctPoint{16.0, 7.0}, DistinctPoint{65.0, 30.0}))
        << "more tokens need no fewer experts";
}

TEST(DistinctExperts, KeepsTheirMeansWhereTheyAreLimited) {
    DistinctExperts all;
    for (int i = 0; i < 20000; ++i) all.add(8 + i % 5, 20 + i % 5);
    all.add(2, 5);
    const DistinctExperts limited = all.limited();
    EXPECT_LE(limited.sums()[3].tokens, DistinctExperts::kMostTokens);
    EXPECT_GT(limited.sums()[3].tokens, DistinctExperts::kMostTokens - 16);
    EXPECT_EQ(limited.sums()[1], all.sums()[1]);
    ASSERT_THAT(limited.points(), SizeIs(1));
    EXPECT_NEAR(limited.points()[0].n_tokens, 10.0, 0.01);
    EXPECT_NEAR(limited.points()[0].n_distinct, 22.0, 0.01);
}

// A group never has more experts than the layer, whatever the number of groups is.
TEST(DistinctExperts, HaveNoMoreExpertsWhereTheyAreLimited) {
    for (const int n_groups : {4096, 4097, 5001, 12289, 100003}) {
        DistinctExperts all;
        for (int i = 0; i < n_groups; ++i) all.add(16, 8);
        const DistinctSum sum = all.limited().sums()[4];
        EXPECT_EQ(sum.distinct, 8 * sum.groups) << n_groups;
        EXPECT_EQ(sum.tokens, 16 * sum.groups) << n_groups;
        EXPECT_LE(sum.tokens, DistinctExperts::kMostTokens);
    }
}

// Groups of each size follow one another, from the first token, or the first one after an unknown one, on.
TEST(NeighbourExperts, AreThoseOfConsecutiveGroups) {
    constexpr unsigned kExperts = 24;
    constexpr std::size_t kChosen = 3;
    std::mt19937 random(7);
    NeighbourExperts neighbours(kExperts);
    std::vector<Experts> since;
    DistinctExperts expected;
    for (int token = 0; token < 1300; ++token) {
        if (token == 300 || token == 301) {
            neighbours.add({});
            since.clear();
            continue;
        }
        std::set<std::uint16_t> chosen;
        while (chosen.size() < kChosen) chosen.insert(static_cast<std::uint16_t>(random() % kExperts));
        since.emplace_back(chosen.begin(), chosen.end());
        neighbours.add(since.back());
        for (std::size_t size = 2; size <= NeighbourExperts::kMostNeighbours; size *= 2) {
            if (since.size() % size != 0) continue;
            std::set<std::uint16_t> distinct;
            for (std::size_t i = since.size() - size; i < since.size(); ++i)
                distinct.insert(since[i].begin(), since[i].end());
            expected.add(static_cast<std::int64_t>(size), static_cast<std::int64_t>(distinct.size()));
        }
    }
    EXPECT_EQ(neighbours.distinct(), expected);
    EXPECT_EQ(expected.sums()[8].groups, 4U);
}

TEST(NeighbourExperts, OfALayerWithoutExpertsAreNone) {
    NeighbourExperts none(0);
    for (int i = 0; i < 10; ++i) none.add({});
    EXPECT_TRUE(none.distinct().empty());
}

}  // namespace
}  // namespace slipstream
