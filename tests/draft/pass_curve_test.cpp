// What passes take by a plan that may be wrong: how soon passes mend it, what a single slow one does to it, and that a
// machine which becomes slower or faster is followed at all sizes.
#include "draft/control/pass_curve.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

#include <gtest/gtest.h>

namespace slipstream::draft {
namespace {

constexpr std::int64_t kMost = 64;

// A streamed model behind an empty text: 20 ms, and half a millisecond a node.
double planned(std::int64_t n_nodes) {
    return 0.02 + 0.0005 * static_cast<double>(n_nodes);
}

PassCurve planned_curve() {
    return PassCurve(kMost, [](std::int64_t n, std::int64_t) { return planned(n); });
}

void expect_rising(const PassCurve& curve) {
    for (std::int64_t n = 1; n <= curve.max_nodes(); ++n) {
        ASSERT_TRUE(std::isfinite(curve.at(n)) && curve.at(n) > 0.0) << n << " nodes";
        ASSERT_TRUE(n == 1 || curve.at(n) >= curve.at(n - 1) * (1.0 - 1e-12)) << n << " nodes";
    }
}

TEST(PassCurve, NodesCostNothingUntilSomethingIsKnown) {
    PassCurve curve(kMost);
    EXPECT_FALSE(curve.known());
    EXPECT_EQ(curve.at(1), 0.0);
    EXPECT_EQ(curve.at(kMost), 0.0);
    curve.add(8, 2.0);
    EXPECT_TRUE(curve.known());
    for (const std::int64_t n : {1, 8, 64}) EXPECT_DOUBLE_EQ(curve.at(n), 2.0) << "one pass says the same of all";
}

TEST(PassCurve, EveryLargestSizeHasATime) {
    for (const std::int64_t most : {1, 2, 3, 5, 16, 17, 64, 512}) {
        PassCurve curve(most, [](std::int64_t n, std::int64_t) { return planned(n); });
        EXPECT_EQ(curve.max_nodes(), most);
        EXPECT_DOUBLE_EQ(curve.at(most), planned(most));
        expect_rising(curve);
        curve.add(most, 0.5);
        expect_rising(curve);
    }
}

TEST(PassCurve, BeforeAnyPassThePlanIsBelieved) {
    const PassCurve curve = planned_curve();
    EXPECT_TRUE(curve.known());
    for (std::int64_t n = 1; n <= kMost; ++n) EXPECT_NEAR(curve.at(n), planned(n), 1e-12) << n;
}

TEST(PassCurve, APlanThatIsWrongAsAWholeIsRightAfterOnePass) {
    for (const double wrong : {1.0 / 3.0, 0.5, 2.0, 3.0})
        for (const std::int64_t seen : {1, 6, 17, 64}) {
            PassCurve curve = planned_curve();
            curve.add(seen, wrong * planned(seen));
            for (std::int64_t n = 1; n <= kMost; ++n)
                EXPECT_NEAR(curve.at(n) / (wrong * planned(n)), 1.0, 0.25) << wrong << ", " << seen << ", " << n;
        }
}

TEST(PassCurve, APlanThatIsWrongByFarIsRightAfterAFewPasses) {
    for (const double wrong : {0.001, 0.03, 10.0, 100.0}) {
        PassCurve curve = planned_curve();
        for (int i = 0; i < 12; ++i) curve.add(8, wrong * planned(8));
        for (const std::int64_t n : {1, 8, 64}) EXPECT_NEAR(curve.at(n) / (wrong * planned(n)), 1.0, 0.05) << wrong;
    }
}

TEST(PassCurve, WithoutAPlanSizesAreWhatTheirPassesTook) {
    PassCurve curve(kMost);
    for (int i = 0; i < 40; ++i)
        for (const std::int64_t n : {1, 4, 16, 64}) curve.add(n, planned(n));
    for (const std::int64_t n : {1, 4, 16, 64}) EXPECT_NEAR(curve.at(n) / planned(n), 1.0, 0.1) << n;
    expect_rising(curve);
}

TEST(PassCurve, SizesNearAPassAreCorrectedMoreThanSizesFarFromIt) {
    PassCurve curve = planned_curve();
    for (int i = 0; i < 3; ++i) {
        curve.add(1, planned(1));
        curve.add(24, 2.0 * planned(24));
    }
    const auto ratio = [&](std::int64_t n) { return curve.at(n) / planned(n); };
    EXPECT_NEAR(ratio(1), 1.0, 0.1);
    EXPECT_NEAR(ratio(24), 2.0, 0.1);
    EXPECT_GT(ratio(16), 1.6);
    EXPECT_LT(ratio(2), 1.3);
    EXPECT_LT(ratio(4), ratio(8));
}

TEST(PassCurve, ASinglePassThatWasHeldUpCountsLittle) {
    for (const double factor : {3.0, 10.0, 1e5}) {
        PassCurve curve = planned_curve();
        for (int i = 0; i < 20; ++i)
            for (const std::int64_t n : {1, 8, 24}) curve.add(n, planned(n));
        curve.add(8, factor * planned(8));
        for (const std::int64_t n : {1, 8, 24, 64}) EXPECT_NEAR(curve.at(n) / planned(n), 1.0, 0.05) << factor;
        for (int i = 0; i < 10; ++i) curve.add(24, planned(24));
        for (const std::int64_t n : {1, 8, 24, 64}) EXPECT_NEAR(curve.at(n) / planned(n), 1.0, 0.05) << factor;
    }
}

TEST(PassCurve, TheFirstPassOfAllBeingHeldUpIsForgottenByAndBy) {
    for (const std::int64_t next : {8, 6, 12, 1}) {
        PassCurve curve = planned_curve();
        curve.add(8, 10.0 * planned(8));
        EXPECT_LE(curve.at(8), PassCurve::kDoubt * planned(8) * 1.001);
        for (int i = 0; i < 5; ++i) curve.add(next, planned(next));
        // Of a neighbour's passes it is the only one of its size, which is not seen again.
        EXPECT_NEAR(curve.at(next) / planned(next), 1.0, next == 8 ? 0.01 : 0.35) << next;
        for (int i = 0; i < 30; ++i) curve.add(next, planned(next));
        EXPECT_NEAR(curve.at(next) / planned(next), 1.0, 0.1) << next;
        expect_rising(curve);
    }
}

TEST(PassCurve, AMachineThatBecomesSlowerOrFasterIsFollowedAtAllSizesByPassesOfOne) {
    for (const double speed : {0.5, 2.0})
        for (const std::int64_t used : {1, 8, 24}) {
            PassCurve curve = planned_curve();
            for (int i = 0; i < 5; ++i)
                for (const std::int64_t n : {1, 4, 8, 24, 64}) curve.add(n, planned(n));
            for (int i = 0; i < 60; ++i) curve.add(used, planned(used));
            for (int i = 0; i < 5; ++i) curve.add(used, speed * planned(used));
            for (std::int64_t n = 1; n <= kMost; ++n) {
                // Sizes beyond the one in use are due for a try, and believed to take less.
                EXPECT_LT(curve.at(n) / (speed * planned(n)), 1.05) << speed << ", " << used << ", " << n;
                EXPECT_GT(curve.at(n) / (speed * planned(n)), n <= used ? 0.95 : 0.8)
                    << speed << ", " << used << ", " << n;
            }
        }
}

TEST(PassCurve, TheShapeSeenOfOldOutlivesAChangeOfSpeed) {
    // Large passes take three times what is planned; the machine slows down while small ones are made.
    PassCurve curve = planned_curve();
    for (int i = 0; i < 5; ++i)
        for (const std::int64_t n : {1, 24}) curve.add(n, (n > 1 ? 3.0 : 1.0) * planned(n));
    for (int i = 0; i < 40; ++i) curve.add(1, planned(1));
    for (int i = 0; i < 5; ++i) curve.add(1, 2.0 * planned(1));
    EXPECT_NEAR(curve.at(24) / (6.0 * planned(24)), 1.0, 0.25);
    EXPECT_NEAR(curve.at(1) / (2.0 * planned(1)), 1.0, 0.1);
}

TEST(PassCurve, GrowthOfTheTextGoesByThePlan) {
    PassCurve curve(kMost, [](std::int64_t n, std::int64_t text_tokens) {
        return planned(n) * (1.0 + static_cast<double>(text_tokens) / 1000.0);
    });
    for (int i = 0; i < 3; ++i) curve.add(8, 1.5 * planned(8));
    for (std::int64_t tokens = 0; tokens <= 20000; tokens += 10) {
        curve.move_to(tokens);
        const double now = 1.5 * planned(8) * (1.0 + static_cast<double>(tokens) / 1000.0);
        ASSERT_NEAR(curve.at(8) / now, 1.0, 0.125) << tokens;
        ASSERT_NEAR(curve.at(64) / curve.at(8), planned(64) / planned(8), 0.02) << tokens;
    }
    curve.move_to(1000);  // cut back
    EXPECT_NEAR(curve.at(8) / (3.0 * planned(8)), 1.0, 0.01);
    curve.move_to(0);
    EXPECT_NEAR(curve.at(8) / (1.5 * planned(8)), 1.0, 0.01);
}

TEST(PassCurve, AnotherPlanKeepsWhatPassesSaid) {
    PassCurve curve = planned_curve();
    for (int i = 0; i < 3; ++i) curve.add(8, 2.0 * planned(8));
    curve.replan([](std::int64_t n, std::int64_t) { return 5.0 * planned(n); });
    EXPECT_NEAR(curve.at(24) / (10.0 * planned(24)), 1.0, 0.01);
}

TEST(PassCurve, GrowsToTheSizeThatBringsMost) {
    // 3 for the second node, 1 for each up to the eighth, 2 for each after it.
    const PassCurve curve(16, [](std::int64_t n, std::int64_t) {
        return n < 2 ? 2.0 : static_cast<double>(3 + n + std::max<std::int64_t>(0, n - 8));
    });
    EXPECT_DOUBLE_EQ(curve.best_growth(1, 1.5, 16), 1.5 * 7 - 9);  // to 8 nodes
    EXPECT_DOUBLE_EQ(curve.best_growth(1, 1.5, 6), 0.5);           // to 6: as many as there may be
    EXPECT_DOUBLE_EQ(curve.best_growth(1, 1.5, 5), 0.0);
    EXPECT_DOUBLE_EQ(curve.best_growth(1, 3.5, 16), 3.5 * 15 - 25);
    EXPECT_DOUBLE_EQ(curve.best_growth(1, 1.2, 16), 0.0);
    EXPECT_DOUBLE_EQ(curve.best_growth(8, 1.9, 16), 0.0);
    EXPECT_DOUBLE_EQ(curve.best_growth(16, 9.0, 16), 0.0);
    EXPECT_DEATH(static_cast<void>(curve.best_growth(4, 1.0, 17)), "4 to 17 nodes of 16");
}

TEST(PassCurve, APlainPassIsWantedWhereNoneWasSeenAndItMatters) {
    PassCurve curve = planned_curve();
    EXPECT_TRUE(curve.wants_plain_pass(true)) << "none was ever seen";
    EXPECT_FALSE(curve.wants_plain_pass(false)) << "the plan serves";
    curve.add(1, planned(1));
    EXPECT_FALSE(curve.wants_plain_pass(true));
    int n_passes = 0;
    for (; !curve.wants_plain_pass(true) && n_passes < 1000; ++n_passes) curve.add(8, planned(8));
    EXPECT_GE(n_passes, 20);
    EXPECT_LE(n_passes, 40);
    EXPECT_FALSE(curve.wants_plain_pass(false));
    for (int i = 0; i < 3; ++i) curve.add(8, 1.6 * planned(8));
    EXPECT_TRUE(curve.wants_plain_pass(false)) << "the machine is slow, or guesses are dear";
    curve.add(1, 1.6 * planned(1));
    EXPECT_FALSE(curve.wants_plain_pass(false));
    PassCurve unplanned(kMost);
    unplanned.add(8, 1.0);
    EXPECT_FALSE(unplanned.wants_plain_pass(true)) << "without a plan nothing is said of plain passes";
}

TEST(PassCurve, NeverFallsWhateverComes) {
    for (std::uint32_t seed = 0; seed < 20; ++seed) {
        std::mt19937 random(seed);
        const std::int64_t most = 1 + static_cast<std::int64_t>(random() % 130);
        std::lognormal_distribution<double> seconds(0.0, 2.0);
        PlannedSeconds plan;
        if (seed % 2 == 0) plan = [](std::int64_t n, std::int64_t) { return n % 7 == 0 ? 3.0 : 1.0; };  // falls itself
        PassCurve curve(most, plan);
        for (int i = 0; i < 300; ++i) {
            curve.add(1 + static_cast<std::int64_t>(random() % static_cast<std::uint32_t>(most)), seconds(random));
            ASSERT_NO_FATAL_FAILURE(expect_rising(curve)) << "seed " << seed << ", pass " << i;
        }
    }
}

TEST(PassCurve, WhatCannotBeIsNotCounted) {
    constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    PassCurve curve(16);
    curve.add(4, 1.0);
    for (const std::int64_t n : {0, -3, 17}) curve.add(n, 9.0);
    for (const double seconds : {0.0, -1.0, kNan, kInfinity}) curve.add(4, seconds);
    for (const std::int64_t n : {1, 4, 16}) EXPECT_EQ(curve.at(n), 1.0);
    // A plan that knows nothing of some sizes, or of all.
    for (const double strange : {0.0, -1.0, kNan, kInfinity}) {
        PassCurve partly(kMost, [=](std::int64_t n, std::int64_t) { return n == 12 ? strange : planned(n); });
        expect_rising(partly);
        PassCurve wholly(kMost, [=](std::int64_t, std::int64_t) { return strange; });
        for (int i = 0; i < 12; ++i) wholly.add(8, 0.01);
        expect_rising(wholly);
        EXPECT_NEAR(wholly.at(8), 0.01, 1e-3);
    }
}

}  // namespace
}  // namespace slipstream::draft
