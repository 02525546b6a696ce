#include "draft/expand_time.h"

#include <gtest/gtest.h>

namespace slipstream::draft {
namespace {

TEST(ExpandTime, KnowsNothingAtFirst) {
    EXPECT_EQ(ExpandTime().seconds(1), 0.0);
}

TEST(ExpandTime, IsLinearBetweenWhatWasMeasured) {
    ExpandTime time;
    time.add(4, 1.0);
    EXPECT_DOUBLE_EQ(time.seconds(1), 0.25) << "in proportion below";
    EXPECT_DOUBLE_EQ(time.seconds(4), 1.0);
    EXPECT_DOUBLE_EQ(time.seconds(8), 2.0) << "in proportion beyond";
    time.add(16, 4.0);
    EXPECT_DOUBLE_EQ(time.seconds(10), 2.5);
    EXPECT_DOUBLE_EQ(time.seconds(16), 4.0);
}

TEST(ExpandTime, ASlowPassNowAndThenHardlyCounts) {
    ExpandTime time;
    for (int i = 0; i < 400; ++i) time.add(1, i % 10 == 3 ? 1.0 : 1e-4);
    EXPECT_NEAR(time.seconds(1), 1e-4, 2e-5);
    for (int i = 0; i < 200; ++i) time.add(1, 3e-4);
    EXPECT_NEAR(time.seconds(1), 3e-4, 1e-5) << "it follows what lasts";
}

}  // namespace
}  // namespace slipstream::draft
