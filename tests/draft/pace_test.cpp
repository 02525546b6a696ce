// What a committed token takes of late.
#include "draft/control/pace.h"

#include <gtest/gtest.h>

namespace slipstream::draft {
namespace {

TEST(Pace, NobodyKnowsItAtFirst) {
    const Pace pace;
    EXPECT_EQ(pace.seconds_a_token(), 0.0);
}

TEST(Pace, IsAllTheTimeOverAllTheTokens) {
    Pace pace;
    pace.add(1, 2.0);
    EXPECT_DOUBLE_EQ(pace.seconds_a_token(), 2.0);
    for (int i = 0; i < 1000; ++i) pace.add(i % 2 == 0 ? 3 : 1, 2.0);
    EXPECT_NEAR(pace.seconds_a_token(), 1.0, 0.03);
}

TEST(Pace, FollowsWhatChanges) {
    Pace pace;
    for (int i = 0; i < 100; ++i) pace.add(4, 1.0);
    for (int i = 0; i < 200; ++i) pace.add(1, 1.0);
    EXPECT_NEAR(pace.seconds_a_token(), 1.0, 0.05);
}

TEST(Pace, OneHeldUpPassCountsForNoMoreThanTwo) {
    Pace pace;
    for (int i = 0; i < 500; ++i) pace.add(2, 1.0);
    pace.add(2, 1000.0);
    EXPECT_LT(pace.seconds_a_token(), 0.52);
    EXPECT_GT(pace.seconds_a_token(), 0.5);
}

}  // namespace
}  // namespace slipstream::draft
