// What sources' estimates are worth: log-odds and back, bins that learn, agreement, and numbers out of files.
#include "draft/tree/calibration.h"

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "draft/log_odds.h"

namespace slipstream::draft {
namespace {

using Input = Calibration::Input;

double exact_logistic(double x) {
    return 1.0 / (1.0 + std::exp(-x));
}

TEST(LogOdds, LogisticIsWithinItsBoundAndRises) {
    float before = 0.0F;
    for (int i = -13000; i <= 13000; ++i) {
        const double x = i / 1000.0;
        const float got = logistic(static_cast<float>(x));
        EXPECT_NEAR(got, exact_logistic(std::clamp(x, -10.0, 10.0)), 2e-4) << x;
        EXPECT_GE(got, before) << x;
        EXPECT_GT(got, 0.0F);
        EXPECT_LT(got, 1.0F);
        before = got;
    }
    EXPECT_EQ(logistic(std::numeric_limits<float>::infinity()), logistic(10.0F));
    EXPECT_EQ(logistic(-std::numeric_limits<float>::infinity()), logistic(-10.0F));
}

TEST(LogOdds, AreThoseOfTheProbability) {
    for (double p = 1e-6; p < 0.996; p = p < 0.01 ? p * 1.07 : p + 0.0013)
        EXPECT_NEAR(log_odds(static_cast<float>(p)), std::log(p / (1.0 - p)), 1e-4) << p;
    for (double p = 1e-4; p < 0.995; p *= 1.1) EXPECT_NEAR(logistic(log_odds(static_cast<float>(p))), p, 1e-3 * p) << p;
}

Calibration two_sources(std::size_t n_models = 0) {
    const std::vector<std::uint16_t> n_bins = {3, 2};
    return Calibration(n_bins, n_models);
}

Input word(const Calibration& calibration, std::uint16_t source, std::uint16_t bin, float p) {
    return {.source = source, .bin = bin, .probability = p, .log_odds = calibration.corrected_log_odds(source, bin, p)};
}

float alone(const Calibration& calibration, std::uint16_t source, std::uint16_t bin, float p) {
    const Input input = word(calibration, source, bin, p);
    return calibration.merge({&input, 1});
}

TEST(Calibration, BelievesASourceThatSpeaksAloneAtFirst) {
    const Calibration calibration = two_sources();
    for (const float p : {0.002F, 0.03F, 0.2F, 0.5F, 0.9F, 0.99F}) {
        EXPECT_NEAR(alone(calibration, 0, 2, p), p, 2e-3F * p);
        EXPECT_NEAR(alone(calibration, 1, 0, p), p, 2e-3F * p);
    }
}

TEST(Calibration, SourcesThatAgreeAreWorthMoreThanOneButNoNoisyOr) {
    const Calibration calibration = two_sources();
    for (const float p : {0.05F, 0.2F, 0.5F}) {
        const Input both[] = {word(calibration, 0, 0, p), word(calibration, 1, 0, p)};
        const float merged = calibration.merge(both);
        EXPECT_GT(merged, p);
        EXPECT_LT(merged, 1.0F - (1.0F - p) * (1.0F - p));
    }
}

TEST(Calibration, ABinThatLiesIsCorrectedAndItsNeighbourIsNot) {
    Calibration calibration = two_sources();
    std::mt19937 random(3);
    for (int i = 0; i < 3000; ++i) {
        // Says 1/2 where 1 in 10 comes; the other bin says 1/2 and is right.
        for (const auto& [bin, rate] : {std::pair{std::uint16_t{0}, 0.1}, std::pair{std::uint16_t{1}, 0.5}}) {
            const Input input = word(calibration, 0, bin, 0.5F);
            calibration.learn({&input, 1}, calibration.merge({&input, 1}),
                              std::bernoulli_distribution(rate)(random) ? 1.0F : 0.0F);
        }
    }
    EXPECT_NEAR(exact_logistic(calibration.corrected_log_odds(0, 0, 0.5F)), 0.1, 0.03);
    EXPECT_NEAR(exact_logistic(calibration.corrected_log_odds(0, 1, 0.5F)), 0.5, 0.05);
    EXPECT_NEAR(exact_logistic(calibration.corrected_log_odds(1, 0, 0.5F)), 0.5, 1e-3);
    calibration.reset();
    EXPECT_NEAR(alone(calibration, 0, 0, 0.5F), 0.5F, 1e-3F);
}

TEST(Calibration, WhereTwoNameATokenTheOneThatKnowsGainsWeight) {
    Calibration calibration = two_sources();
    std::mt19937 random(4);
    std::uniform_real_distribution<float> uniform(0.02F, 0.98F);
    double loss_at_first = 0.0;
    double loss_at_last = 0.0;
    constexpr int n = 20000;
    for (int i = 0; i < n; ++i) {
        const float truth = uniform(random);
        const float noise = uniform(random);  // as well spread, and tells nothing
        const Input both[] = {word(calibration, 0, 0, truth), word(calibration, 1, 0, noise)};
        const float merged = calibration.merge(both);
        const bool hit = std::bernoulli_distribution(truth)(random);
        const double loss = -std::log(hit ? merged : 1.0F - merged);
        if (i < n / 10) loss_at_first += loss;
        if (i >= n - n / 10) loss_at_last += loss;
        calibration.learn(both, merged, hit ? 1.0F : 0.0F);
    }
    EXPECT_LT(loss_at_last, loss_at_first);
    EXPECT_LT(loss_at_last / (n / 10), 0.535);  // 1/2 is what the one that knows leaves
    const auto change = [&](std::size_t of) {
        Input low[] = {word(calibration, 0, 0, 0.5F), word(calibration, 1, 0, 0.5F)};
        Input high[] = {low[0], low[1]};
        low[of] = word(calibration, static_cast<std::uint16_t>(of), 0, 0.1F);
        high[of] = word(calibration, static_cast<std::uint16_t>(of), 0, 0.9F);
        return calibration.merge(high) - calibration.merge(low);
    };
    EXPECT_GT(change(0), 3.0F * change(1));
}

TEST(Calibration, AModelAmongTablesHasWeightsOfItsOwn) {
    Calibration calibration = two_sources(1);
    const float before = alone(calibration, 0, 0, 0.3F);
    const Input with_model[] = {word(calibration, 0, 1, 0.3F), word(calibration, 1, 0, 0.3F)};
    // Its word outweighs the other's.
    const Input model_says_more[] = {word(calibration, 0, 1, 0.1F), word(calibration, 1, 0, 0.6F)};
    const Input table_says_more[] = {word(calibration, 0, 1, 0.6F), word(calibration, 1, 0, 0.1F)};
    EXPECT_GT(calibration.merge(model_says_more), 2.0F * calibration.merge(table_says_more));
    for (int i = 0; i < 500; ++i) calibration.learn(with_model, calibration.merge(with_model), 1.0F);
    EXPECT_GT(calibration.merge(with_model), 0.35F);
    EXPECT_EQ(alone(calibration, 0, 0, 0.3F), before);  // another bin, another number of voices
}

TEST(Calibration, OfTwoModelsEachHasWeightsOfItsOwnAndTheDearerOneOutweighs) {
    const std::vector<std::uint16_t> n_bins = {1, 1, 1};  // a table, a cheap model, a dear one
    Calibration calibration(n_bins, 2);
    const auto merged = [&](float table, float cheap, float dear) {
        const Input all[] = {word(calibration, 0, 0, table), word(calibration, 1, 0, cheap),
                             word(calibration, 2, 0, dear)};
        return calibration.merge(all);
    };
    EXPECT_GT(merged(0.1F, 0.1F, 0.6F), 2.0F * merged(0.1F, 0.6F, 0.1F));
    EXPECT_NEAR(merged(0.1F, 0.6F, 0.1F), merged(0.6F, 0.1F, 0.1F), 1e-6F) << "beside a dear one the cheap is a table";
    const Input with_cheap[] = {word(calibration, 0, 0, 0.3F), word(calibration, 1, 0, 0.3F)};
    const Input with_dear[] = {word(calibration, 0, 0, 0.3F), word(calibration, 2, 0, 0.3F)};
    EXPECT_EQ(calibration.merge(with_cheap), calibration.merge(with_dear));
    // What is learnt of one model's company is not learnt of the other's, nor are its estimates.
    const float bin = calibration.corrected_log_odds(1, 0, 0.3F);
    for (int i = 0; i < 500; ++i) calibration.learn(with_cheap, calibration.merge(with_cheap), 1.0F);
    EXPECT_GT(calibration.merge(with_cheap), calibration.merge(with_dear));
    EXPECT_GT(calibration.corrected_log_odds(1, 0, 0.3F), bin);
    for (int i = 0; i < 500; ++i) calibration.learn_estimate(0.5F, 0.5F, 1, 0.0F);
    EXPECT_LT(calibration.combined_estimate(0.5F, 0.5F, 1), 0.1F);
    EXPECT_FLOAT_EQ(calibration.combined_estimate(0.5F, 0.5F, 0), 0.5F);
    Calibration taken_up(n_bins, 2);
    ASSERT_TRUE(taken_up.restore(calibration.state()));
    EXPECT_EQ(taken_up.combined_estimate(0.5F, 0.5F, 1), calibration.combined_estimate(0.5F, 0.5F, 1));
    EXPECT_FALSE(Calibration(n_bins, 1).restore(calibration.state())) << "of another number of models";
}

TEST(Calibration, EstimatesAreCorrectedByWhatTheyCameToBe) {
    Calibration calibration = two_sources(1);
    // A model's are believed at first, tables' half.
    EXPECT_FLOAT_EQ(calibration.combined_estimate(0.1F, 0.3F, 0), 0.3F);
    EXPECT_LE(calibration.combined_estimate(0.1F, 0.3F, -1), 0.3F);
    EXPECT_FLOAT_EQ(calibration.combined_estimate(0.9F, 5.0F, 0), 0.995F);
    std::mt19937 random(5);
    const auto learn = [&](float merged, float estimate, double rate) {
        calibration.learn_estimate(merged, estimate, -1, std::bernoulli_distribution(rate)(random) ? 1.0F : 0.0F);
    };
    for (int i = 0; i < 3000; ++i) {
        learn(0.1F, 0.3F, 0.15);
        learn(0.3F, 0.1F, 0.2);
    }
    EXPECT_NEAR(calibration.combined_estimate(0.1F, 0.3F, -1), 0.15F, 0.04F);
    EXPECT_NEAR(calibration.combined_estimate(0.3F, 0.1F, -1), 0.2F, 0.05F);
    EXPECT_FLOAT_EQ(calibration.combined_estimate(0.1F, 0.3F, 0), 0.3F);
    for (const float p : {0.0F, 1e-30F, 1.0F}) EXPECT_TRUE(std::isfinite(calibration.combined_estimate(p, p, 0)));
}

TEST(Calibration, StateIsTakenUpAgain) {
    Calibration learnt = two_sources(1);
    std::mt19937 random(6);
    std::uniform_real_distribution<float> uniform(0.01F, 0.99F);
    for (int i = 0; i < 5000; ++i) {
        const Input both[] = {word(learnt, 0, static_cast<std::uint16_t>(i % 3), uniform(random)),
                              word(learnt, 1, static_cast<std::uint16_t>(i % 2), uniform(random))};
        const std::span<const Input> inputs = i % 5 == 0 ? std::span(both) : std::span(both).first(1);
        learnt.learn(inputs, learnt.merge(inputs), i % 3 == 0 ? 1.0F : 0.0F);
        learnt.learn_estimate(uniform(random), uniform(random), i % 2 - 1, i % 7 == 0 ? 1.0F : 0.0F);
    }
    Calibration taken_up = two_sources(1);
    ASSERT_TRUE(taken_up.restore(learnt.state()));
    EXPECT_EQ(taken_up.state(), learnt.state());
    for (const float p : {0.01F, 0.2F, 0.7F}) {
        EXPECT_EQ(alone(taken_up, 0, 1, p), alone(learnt, 0, 1, p));
        EXPECT_EQ(taken_up.combined_estimate(p, p, 0), learnt.combined_estimate(p, p, 0));
    }
}

TEST(Calibration, WhateverIsLearntCanBeTakenUpAgain) {
    // Far likelier than it says, and far less likely, without end.
    for (const float truth : {0.0F, 1.0F}) {
        Calibration calibration = two_sources();
        for (int i = 0; i < 200000; ++i) {
            const Input both[] = {word(calibration, 0, 0, 1e-4F), word(calibration, 1, 1, 0.9F)};
            calibration.learn(both, calibration.merge(both), truth);
            calibration.learn_estimate(0.2F, 1e-5F, -1, truth);
        }
        EXPECT_TRUE(two_sources().restore(calibration.state()));
        const float merged = alone(calibration, 0, 0, 1e-4F);
        EXPECT_LE(merged, 13e-4F);  // a bounded correction, and weights that were not learnt here
        EXPECT_GT(merged, 0.0F);
    }
}

TEST(Calibration, NumbersThatCannotBeAreRefused) {
    Calibration calibration = two_sources();
    const std::vector<float> good = calibration.state();
    const auto refused = [&](std::size_t at, float value) {
        std::vector<float> bad = good;
        bad[at] = value;
        return !calibration.restore(bad);
    };
    for (const float value : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 1e9F})
        for (const std::size_t at : {std::size_t{0}, std::size_t{1}, good.size() / 2, good.size() - 2, good.size() - 1})
            EXPECT_TRUE(refused(at, value)) << at << " " << value;
    EXPECT_TRUE(refused(0, -1.0F));                 // a negative count
    EXPECT_TRUE(refused(good.size() - 2, -0.5F));   // a negative weight
    EXPECT_FALSE(refused(good.size() - 1, -0.5F));  // a constant may be
    std::vector<float> longer = good;
    longer.push_back(0.0F);
    EXPECT_FALSE(calibration.restore(longer));
    EXPECT_FALSE(calibration.restore(std::span(good).first(good.size() - 1)));
    EXPECT_FALSE(calibration.restore({}));
    EXPECT_TRUE(calibration.restore(good));
}

TEST(Calibration, ARefusedStateChangesNothing) {
    Calibration calibration = two_sources();
    const Input input = word(calibration, 0, 0, 0.5F);
    for (int i = 0; i < 100; ++i) calibration.learn({&input, 1}, 0.5F, 0.0F);
    const std::vector<float> before = calibration.state();
    std::vector<float> bad = two_sources().state();
    bad.back() = std::numeric_limits<float>::quiet_NaN();
    EXPECT_FALSE(calibration.restore(bad));
    EXPECT_EQ(calibration.state(), before);
}

}  // namespace
}  // namespace slipstream::draft
