// The target's own probabilities against sums in double, and logits that are no numbers.
#include "draft/tree/target_softmax.h"

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace slipstream::draft {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<double> exact(std::span<const float> logits, double temperature) {
    double greatest = -std::numeric_limits<double>::infinity();
    for (const float logit : logits)
        if (!std::isnan(logit)) greatest = std::max(greatest, static_cast<double>(logit));
    std::vector<double> p;
    double sum = 0.0;
    for (const float logit : logits) {
        p.push_back(std::isnan(logit) ? 0.0 : std::exp((logit - greatest) / temperature));
        sum += p.back();
    }
    for (double& value : p) value /= sum;
    return p;
}

// Within 1 %, and float's own rounding of large arguments.
void expect_close(std::span<const float> logits, double temperature) {
    const TargetSoftmax target = target_softmax(logits, temperature);
    const std::vector<double> p = exact(logits, temperature);
    double sum = 0.0;
    for (std::size_t i = 0; i < logits.size(); ++i) {
        const float got = target.probability(logits[i]);
        EXPECT_NEAR(got, p[i], 0.0101 * p[i] + 1e-30) << "logit " << i << " of " << logits.size();
        sum += got;
    }
    EXPECT_NEAR(sum, 1.0, 0.01);
}

TEST(TargetSoftmax, IsWithinOnePercentOfTheExactSoftmax) {
    std::mt19937 random(1);
    for (const std::size_t vocab : {1U, 2U, 7U, 97U, 32000U})
        for (const double temperature : {0.05, 0.3, 0.8, 1.0, 2.5})
            for (const double spread : {0.0, 0.5, 3.0, 12.0}) {
                SCOPED_TRACE(testing::Message() << vocab << " logits, T " << temperature << ", spread " << spread);
                std::normal_distribution<double> normal(-4.0, spread);
                std::vector<float> logits(vocab);
                for (float& logit : logits) logit = static_cast<float>(normal(random));
                expect_close(logits, temperature);
            }
}

TEST(TargetSoftmax, ManyThatAreHardlyPossibleDoNotAddUp) {
    std::vector<float> logits(200000, -1000.0F);
    logits[77] = 3.0F;
    EXPECT_NEAR(target_softmax(logits, 0.8).probability(3.0F), 1.0F, 1e-3F);
}

TEST(TargetSoftmax, WhatIsNoNumberCountsAsNothing) {
    const std::vector<float> with = {1.0F, kNan, 0.5F, -kInfinity, 2.0F, kNan};
    const std::vector<float> without = {1.0F, 0.5F, 2.0F};
    const TargetSoftmax target = target_softmax(with, 0.7);
    const TargetSoftmax reference = target_softmax(without, 0.7);
    EXPECT_FLOAT_EQ(target.probability(2.0F), reference.probability(2.0F));
    EXPECT_FLOAT_EQ(target.probability(0.5F), reference.probability(0.5F));
    EXPECT_EQ(target.probability(kNan), 0.0F);
    EXPECT_EQ(target.probability(-kInfinity), 0.0F);
}

TEST(TargetSoftmax, NothingIsLearntOfARowWithoutNumbers) {
    for (const std::vector<float>& row :
         {std::vector<float>(5, kNan), std::vector<float>(5, -kInfinity), std::vector<float>{kInfinity, 1.0F, kNan}})
        for (const float logit : row) {
            const float p = target_softmax(row, 0.8).probability(logit);
            EXPECT_TRUE(p >= 0.0F && p <= 1.0F) << p;
        }
}

}  // namespace
}  // namespace slipstream::draft
