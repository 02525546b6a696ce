#include "runtime/plan/pass_cost.h"

#include <gtest/gtest.h>

namespace slipstream {
namespace {

TEST(ByteCost, IsFlatThenPiecewiseLinearThenRises) {
    const ByteCost cost(
        {{.vectors = 1, .seconds = 2.0}, {.vectors = 4, .seconds = 3.5}, {.vectors = 16, .seconds = 8.0}});
    EXPECT_DOUBLE_EQ(cost.seconds(0.5), 2.0);
    EXPECT_DOUBLE_EQ(cost.seconds(1), 2.0);
    EXPECT_DOUBLE_EQ(cost.seconds(2), 2.5);
    EXPECT_DOUBLE_EQ(cost.seconds(4), 3.5);
    EXPECT_DOUBLE_EQ(cost.seconds(10), 5.75);
    EXPECT_DOUBLE_EQ(cost.seconds(16), 8.0);
    EXPECT_DOUBLE_EQ(cost.seconds(64), 32.0);
    EXPECT_DOUBLE_EQ(cost.scaled(0.5).seconds(10), 2.875);
}

TEST(ByteCost, OfNothingIsNothing) {
    EXPECT_EQ(ByteCost().seconds(1), 0.0);
    EXPECT_EQ(ByteCost().seconds(1000), 0.0);
}

TEST(ByteCost, RooflineIsTheLargerOfMemoryAndComputing) {
    // 100 bytes a second; 1000 operations a second, 2 for each byte and vector: even at 5 vectors.
    const ByteCost cost = ByteCost::roofline(100.0, 1000.0, 2.0);
    for (const double vectors : {1.0, 4.9, 5.0, 5.1, 50.0})
        EXPECT_DOUBLE_EQ(cost.seconds(vectors), std::max(1.0 / 100.0, vectors * 2.0 / 1000.0)) << vectors;
}

TEST(ByteCost, PointsAscend) {
    EXPECT_DEATH(ByteCost({{.vectors = 4, .seconds = 1.0}, {.vectors = 4, .seconds = 2.0}}), "vectors");
    EXPECT_DEATH(ByteCost({{.vectors = 1, .seconds = -1.0}}), "seconds");
}

}  // namespace
}  // namespace slipstream
