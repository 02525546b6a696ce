// Bins and weights of the context mixer: what they start from, what they learn, and numbers out of files.
#include "draft/sources/context_mixer.h"

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "draft/log_odds.h"

namespace slipstream::draft {
namespace {

using BinIndex = ContextMixer::BinIndex;

float mix(const ContextMixer& mixer, std::span<const BinIndex> bins, int longest, int highest) {
    const ContextMixer::Weights& weights = mixer.weights(longest, highest);
    float sum = weights.back();
    for (std::size_t order = 0; order < bins.size(); ++order) sum += weights[order] * mixer.log_odds(bins[order]);
    return logistic(sum);
}

TEST(ContextMixer, EveryCountHasABin) {
    // The state holds two numbers a bin, then the weights.
    const ContextMixer mixer;
    const std::size_t n_weights = ContextMixer::kOrders * 4 * (ContextMixer::kOrders + 1);
    const std::size_t n_bins = (mixer.state().size() - n_weights) / 2;
    for (const std::uint32_t total : {1U, 2U, 3U, 7U, 21U, 22U, 100U, 4000000000U})
        for (const std::uint32_t count : {0U, 1U, 2U, 5U, 20U, 21U, 100U, 4000000000U}) {
            if (count > total) continue;
            for (int order = 0; order < ContextMixer::kOrders; ++order) {
                for (const std::size_t rank : {0U, 1U, 2U, 3U, 127U})
                    EXPECT_LT(ContextMixer::seen(order, count, total, rank), n_bins);
                for (const std::size_t distinct : {1U, 4U, 128U})
                    EXPECT_LT(ContextMixer::unseen(order, total, distinct), n_bins);
            }
            for (const std::uint32_t age : {0U, 3U, 4U, 100U, 300U, 4000000000U})
                EXPECT_LT(ContextMixer::unigram(count, total, age), n_bins);
        }
}

TEST(ContextMixer, BinsTellTheSeenFromTheUnseenAndOftenFromRarely) {
    const ContextMixer mixer;
    for (int order = 1; order < ContextMixer::kOrders; ++order) {
        EXPECT_GT(mixer.log_odds(ContextMixer::seen(order, 3, 3, 0)),
                  mixer.log_odds(ContextMixer::seen(order, 1, 3, 0)));
        EXPECT_GT(mixer.log_odds(ContextMixer::seen(order, 1, 3, 0)),
                  mixer.log_odds(ContextMixer::seen(order, 1, 30, 0)));
        EXPECT_GT(mixer.log_odds(ContextMixer::seen(order, 1, 30, 0)),
                  mixer.log_odds(ContextMixer::unseen(order, 30, 9)));
    }
    EXPECT_GT(mixer.log_odds(ContextMixer::unigram(50, 100, 3)), mixer.log_odds(ContextMixer::unigram(1, 100, 3)));
    EXPECT_NE(ContextMixer::seen(1, 2, 5, 0), ContextMixer::seen(2, 2, 5, 0));
    EXPECT_NE(ContextMixer::unigram(2, 100, 1), ContextMixer::unigram(2, 100, 20));
}

TEST(ContextMixer, ABinLearnsHowOftenItsTokensCome) {
    ContextMixer mixer;
    std::mt19937 random(1);
    const BinIndex bins[] = {ContextMixer::unigram(3, 100, 8), ContextMixer::seen(1, 2, 5, 1)};
    for (int i = 0; i < 5000; ++i) {
        mixer.learn(bins, 1, 1, mix(mixer, bins, 1, 1), std::bernoulli_distribution(0.04)(random) ? 1.0F : 0.0F);
        mixer.refresh();
    }
    EXPECT_NEAR(mixer.log_odds(bins[1]), std::log(0.04 / 0.96), 0.5);
    EXPECT_NEAR(mix(mixer, bins, 1, 1), 0.04, 0.025);
    // Others are as in a new one.
    EXPECT_EQ(mixer.log_odds(ContextMixer::seen(2, 2, 5, 1)), ContextMixer().log_odds(ContextMixer::seen(2, 2, 5, 1)));
}

TEST(ContextMixer, WhatIsLearntIsHeardAfterRefresh) {
    ContextMixer mixer;
    const BinIndex bins[] = {ContextMixer::unigram(3, 100, 8)};
    const float before = mixer.log_odds(bins[0]);
    mixer.learn(bins, 0, 0, 0.5F, 1.0F);
    mixer.learn(bins, 0, 0, 0.5F, 1.0F);
    EXPECT_EQ(mixer.log_odds(bins[0]), before);
    mixer.refresh();
    EXPECT_GT(mixer.log_odds(bins[0]), before);
}

TEST(ContextMixer, TheOrderThatKnowsGainsWeight) {
    // Order 2 tells hits from misses; order 1 says something at random.
    ContextMixer mixer;
    std::mt19937 random(2);
    double at_first = 0.0;
    double at_last = 0.0;
    constexpr int n = 20000;
    for (int i = 0; i < n; ++i) {
        const bool hit = random() % 2 == 0;
        const bool told = random() % 10 == 0 ? !hit : hit;
        const BinIndex bins[] = {ContextMixer::unigram(3, 100, 8),
                                 ContextMixer::seen(1, random() % 2 == 0 ? 1 : 5, 6, 0),
                                 ContextMixer::seen(2, told ? 5 : 1, 6, 0)};
        const float p = mix(mixer, bins, 2, 2);
        const double loss = -std::log(hit ? p : 1.0F - p);
        (i < n / 10 ? at_first : at_last) += i < n / 10 || i >= n - n / 10 ? loss : 0.0;
        mixer.learn(bins, 2, 2, p, hit ? 1.0F : 0.0F);
        mixer.refresh();
    }
    EXPECT_LT(at_last, at_first);
    EXPECT_LT(at_last / (n / 10), 0.36);  // 0.325 is what a tell that is right nine times in ten leaves
    EXPECT_EQ(mixer.weights(3, 3), ContextMixer().weights(3, 3));
}

TEST(ContextMixer, StateIsTakenUpAgainAndResetForgetsIt) {
    ContextMixer learnt;
    std::mt19937 random(3);
    for (int i = 0; i < 3000; ++i) {
        const BinIndex bins[] = {ContextMixer::unigram(random() % 9, 1000, random() % 300),
                                 ContextMixer::seen(1, 1 + random() % 9, 20, random() % 5)};
        learnt.learn(bins, 1, static_cast<int>(random() % 2), mix(learnt, bins, 1, 1), random() % 4 == 0 ? 1.0F : 0.0F);
        learnt.refresh();
    }
    ContextMixer taken_up;
    ASSERT_TRUE(taken_up.restore(learnt.state()));
    EXPECT_EQ(taken_up.state(), learnt.state());
    const BinIndex bins[] = {ContextMixer::unigram(3, 1000, 8), ContextMixer::seen(1, 2, 20, 1)};
    EXPECT_EQ(mix(taken_up, bins, 1, 1), mix(learnt, bins, 1, 1));
    taken_up.reset();
    EXPECT_EQ(taken_up.state(), ContextMixer().state());
}

TEST(ContextMixer, NumbersThatCannotBeAreRefusedAndChangeNothing) {
    ContextMixer mixer;
    const std::vector<float> good = mixer.state();
    for (const float value :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 1e6F, -1e6F})
        for (const std::size_t at : {std::size_t{0}, std::size_t{1}, good.size() - 1}) {
            std::vector<float> bad = good;
            bad[at] = value;
            EXPECT_FALSE(mixer.restore(bad)) << at << " " << value;
        }
    std::vector<float> bad = good;
    bad[0] = 1.5F;  // a probability
    EXPECT_FALSE(mixer.restore(bad));
    EXPECT_FALSE(mixer.restore(std::span(good).first(good.size() - 1)));
    EXPECT_FALSE(mixer.restore({}));
    EXPECT_EQ(mixer.state(), good);
    // The extremes that a file may hold leave probabilities within bounds.
    std::vector<float> extreme = good;
    extreme[0] = 0.0F;
    extreme[2] = 1.0F;
    EXPECT_TRUE(mixer.restore(extreme));
    EXPECT_TRUE(std::isfinite(mixer.log_odds(0)));
    EXPECT_TRUE(std::isfinite(mixer.log_odds(1)));
}

}  // namespace
}  // namespace slipstream::draft
