// The pass-time curve: what lies between measurements, that it never falls, and what single slow passes do to it.
#include "draft/control/pass_curve.h"

#include <limits>
#include <random>

#include <gtest/gtest.h>

namespace slipstream::draft {
namespace {

void expect_rising(const PassTimes& times) {
    for (std::int64_t n = 2; n <= times.max_nodes(); ++n)
        ASSERT_GE(times.at(n), times.at(n - 1) * (1.0 - 1e-12)) << n << " nodes";
    for (std::int64_t n = 1; n <= times.max_nodes(); ++n) ASSERT_GT(times.at(n), 0.0);
}

TEST(PassTimes, KeepsAscendingSizesFromOneToTheLargest) {
    for (const std::int64_t most : {1, 2, 3, 5, 16, 17, 64, 512}) {
        const PassTimes times(most);
        EXPECT_EQ(times.sizes().front(), 1);
        EXPECT_EQ(times.sizes().back(), most);
        EXPECT_EQ(times.max_nodes(), most);
        for (std::size_t i = 1; i < times.sizes().size(); ++i) EXPECT_GT(times.sizes()[i], times.sizes()[i - 1]);
    }
}

TEST(PassTimes, NodesCostNothingUntilSomethingIsMeasured) {
    const PassTimes times(64);
    EXPECT_FALSE(times.measured());
    EXPECT_EQ(times.at(1), 0.0);
    EXPECT_EQ(times.at(64), 0.0);
}

TEST(PassTimes, WhatWasMeasuredIsTheTime) {
    PassTimes times(64);
    double seconds = 0.5;
    for (const std::int64_t size : times.sizes()) times.add(size, seconds += 0.25);
    EXPECT_TRUE(times.measured());
    seconds = 0.5;
    for (const std::int64_t size : times.sizes()) EXPECT_DOUBLE_EQ(times.at(size), seconds += 0.25);
    expect_rising(times);
}

TEST(PassTimes, IsLinearBetweenMeasurementsAndBeyondTheLast) {
    PassTimes times(64);
    times.add(1, 1.0);
    times.add(8, 2.4);
    for (std::int64_t n = 1; n <= 64; ++n) EXPECT_NEAR(times.at(n), 1.0 + 0.2 * static_cast<double>(n - 1), 1e-12) << n;
}

TEST(PassTimes, OneMeasurementSaysTheSameOfAll) {
    PassTimes times(64);
    times.add(8, 2.0);
    EXPECT_EQ(times.at(1), 2.0);
    EXPECT_EQ(times.at(64), 2.0);
}

TEST(PassTimes, APassBetweenTwoSizesMovesBoth) {
    PassTimes times(64);
    times.add(8, 1.0);
    times.add(12, 2.0);
    for (int i = 0; i < 100; ++i) times.add(10, 1.2);
    EXPECT_NEAR(times.at(10), 1.2, 0.01);
    EXPECT_LT(times.at(8), 1.0);
    EXPECT_LT(times.at(12), 2.0);
}

TEST(PassTimes, NeverFallsWhateverComes) {
    for (std::uint32_t seed = 0; seed < 20; ++seed) {
        std::mt19937 random(seed);
        const std::int64_t most = 1 + static_cast<std::int64_t>(random() % 130);
        PassTimes times(most);
        std::lognormal_distribution<double> seconds(0.0, 2.0);
        for (int i = 0; i < 300; ++i) {
            times.add(1 + static_cast<std::int64_t>(random() % static_cast<std::uint32_t>(most)), seconds(random));
            expect_rising(times);
        }
    }
}

TEST(PassTimes, ASinglePassThatWasHeldUpCountsLittle) {
    for (const double factor : {3.0, 20.0, 1e5}) {
        PassTimes times(32);
        for (int i = 0; i < 20; ++i)
            for (const std::int64_t size : times.sizes()) times.add(size, 0.01 + 0.001 * static_cast<double>(size));
        const double before = times.at(8);
        times.add(8, before * factor);
        EXPECT_LT(times.at(8), 1.25 * before) << factor;
        EXPECT_GT(times.at(8), before);
    }
}

TEST(PassTimes, FollowsAMachineThatBecomesSlowerOrFaster) {
    PassTimes times(32);
    for (const double speed : {1.0, 3.0, 0.5}) {
        for (int i = 0; i < 80; ++i)
            for (const std::int64_t size : times.sizes())
                times.add(size, speed * (1.0 + 0.1 * static_cast<double>(size)));
        for (const std::int64_t size : times.sizes())
            EXPECT_NEAR(times.at(size) / (speed * (1.0 + 0.1 * static_cast<double>(size))), 1.0, 0.05) << size;
    }
}

TEST(PassTimes, TheFirstPassOfASizeBetweenMeasuredOnesCountsLittle) {
    PassTimes times(32);
    for (const std::int64_t size : {1, 2, 4, 8, 16}) times.add(size, 0.01 + 0.001 * static_cast<double>(size));
    times.add(3, 0.05);
    EXPECT_LT(times.at(3) / times.at(2), 1.25);
    times.add(12, 0.0005);
    EXPECT_GT(times.at(12) / times.at(8), 0.8);
    expect_rising(times);
}

TEST(PassTimes, ASizeThatWasHeldUpDoesNotMakeMoreNodesDearer) {
    PassTimes times(16);
    const auto true_seconds = [](std::int64_t n) { return 0.01 + 0.001 * static_cast<double>(n); };
    for (const std::int64_t size : times.sizes()) times.add(size, true_seconds(size));
    for (int i = 0; i < 8; ++i) {
        times.add(3, 1.5 * true_seconds(3));
        for (const std::int64_t size : {1, 4, 8, 16}) times.add(size, true_seconds(size));
    }
    EXPECT_NEAR(times.at(8) / times.at(1), true_seconds(8) / true_seconds(1), 0.05);
    EXPECT_LE(times.at(3), times.at(4));
}

TEST(PassTimes, ASlowTimeOfFewNodesGivesWayToFasterPassesOfMore) {
    // The first pass of all was slow, and no pass of its size ever comes again.
    PassTimes times(64);
    times.add(1, 10.0);
    for (int i = 0; i < 100; ++i) times.add(24, 1.0);
    EXPECT_NEAR(times.at(24), 1.0, 0.12);
    EXPECT_NEAR(times.at(1), 1.0, 0.12);
    expect_rising(times);
}

TEST(PassTimes, WhatCannotBeIsNotCounted) {
    PassTimes times(16);
    times.add(4, 1.0);
    times.add(0, 9.0);
    times.add(-3, 9.0);
    times.add(17, 9.0);
    times.add(4, 0.0);
    times.add(4, -1.0);
    times.add(4, std::numeric_limits<double>::quiet_NaN());
    times.add(4, std::numeric_limits<double>::infinity());
    EXPECT_EQ(times.at(4), 1.0);
    EXPECT_EQ(times.at(16), 1.0);
}

}  // namespace
}  // namespace slipstream::draft
