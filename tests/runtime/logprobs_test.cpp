#include "runtime/loop/logprobs.h"

#include <cmath>
#include <limits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace slipstream {
namespace {

TEST(Logprobs, AreTheLogSoftmax) {
    const std::vector<float> logits{1.0F, 3.0F, 2.0F, 3.0F, -std::numeric_limits<float>::infinity()};
    double sum = 0.0;
    for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
    const TokenLogprob token = token_logprob(logits, 2, 3);
    EXPECT_EQ(token.id, 2);
    EXPECT_NEAR(token.logprob, 2.0 - std::log(sum), 1e-6);
    ASSERT_EQ(token.best.size(), 3U);
    EXPECT_EQ(token.best[0].id, 1);  // of equal ones the lower id
    EXPECT_EQ(token.best[1].id, 3);
    EXPECT_EQ(token.best[2].id, 2);
    EXPECT_EQ(token.best[2].logprob, token.logprob);
}

TEST(Logprobs, AreFiniteForLargeLogitsAndSmallVocabularies) {
    const std::vector<float> logits{1e4F, -1e4F};
    const TokenLogprob token = token_logprob(logits, 1, 20);
    EXPECT_EQ(token.best.size(), 2U);
    EXPECT_NEAR(token.best[0].logprob, 0.0, 1e-6);
    EXPECT_NEAR(token.logprob, -2e4, 1.0);
    EXPECT_TRUE(token_logprob(logits, 0, 0).best.empty());
}

}  // namespace
}  // namespace slipstream
