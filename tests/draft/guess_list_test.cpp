// The list against the sampler, which it must agree with wherever it says that it does.
#include "draft/models/guess_list.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <random>

#include <gtest/gtest.h>

namespace slipstream::draft {
namespace {

std::vector<float> random_logits(std::int64_t n, float deviation, std::uint32_t seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0.0F, deviation);
    std::vector<float> logits(static_cast<std::size_t>(n));
    for (float& logit : logits) logit = normal(random);
    return logits;
}

/// A list of a whole row.
class RowList {
public:
    RowList(const SamplerOptions& sampling, std::int64_t vocab, float greedy_temperature = 1.0F)
        : list(sampling, greedy_temperature), top_(list.n_listed(), vocab) {}
    void fill(std::span<const float> logits, std::span<const TokenId> path) {
        list.fill(top_.best(logits, list.n_listed()), path);
    }
    GuessList list;

private:
    RowTop top_;
};

TEST(GuessList, SurvivorsAreTheSamplersOwn) {
    const SamplerOptions settings[] = {
        {.temperature = 0.8, .top_k = 40, .top_p = 0.95},
        {.temperature = 0.8, .top_k = 5, .top_p = 1.0},
        {.temperature = 1.3, .top_k = 200, .top_p = 0.7, .min_p = 0.01},
        {.temperature = 0.3, .top_k = 0, .top_p = 0.9},
        {.temperature = 0.8, .top_k = 40, .top_p = 0.95, .repeat_penalty = 1.4, .repeat_window = 8},
        {.temperature = 1.0, .top_k = 1, .top_p = 0.5},
    };
    const std::vector<TokenId> path = {3, 9, 3, 17, 40, 41, 42, 43, 44, 45, 46};
    for (const SamplerOptions& options : settings) {
        for (const std::int64_t vocab : {64, 97, 1000, 4099}) {
            Sampler sampler(options, vocab);
            RowList row(options, vocab);
            const GuessList& list = row.list;
            for (std::uint32_t seed = 0; seed < 20; ++seed) {
                const std::vector<float> logits = random_logits(vocab, 4.0F, seed);
                const auto expected = sampler.distribution(logits, path);
                row.fill(logits, path);
                ASSERT_EQ(list.n_surviving(), expected.size()) << "T " << options.temperature << ", seed " << seed;
                for (std::size_t i = 0; i < expected.size(); ++i) {
                    ASSERT_EQ(list.guesses()[i].token, expected[i].id);
                    ASSERT_NEAR(list.guesses()[i].probability, expected[i].probability, 1e-5);
                    ASSERT_NEAR(list.guesses()[i].logit, expected[i].logit, 1e-4);
                }
            }
        }
    }
}

TEST(GuessList, OthersFollowTheSurvivorsInOrder) {
    RowList row({.temperature = 0.8, .top_k = 3, .top_p = 0.6}, 500);
    const GuessList& list = row.list;
    const std::vector<float> logits = random_logits(500, 1.0F, 4);
    row.fill(logits, {});
    EXPECT_LE(list.n_surviving(), 3U);
    ASSERT_EQ(list.guesses().size(), static_cast<std::size_t>(GuessList::kFewest));
    std::vector<float> sorted = logits;
    std::ranges::sort(sorted, std::greater<>());
    for (std::size_t i = 0; i < list.guesses().size(); ++i) EXPECT_EQ(logits[list.guesses()[i].token], sorted[i]);
}

TEST(GuessList, GreedilyTheOrderIsTheLogitsAndNothingIsFiltered) {
    RowList row({.temperature = 0.0, .top_k = 1, .top_p = 0.1, .repeat_penalty = 2.0}, 100, 0.25F);
    const GuessList& list = row.list;
    std::vector<float> logits(100, -5.0F);
    logits[7] = 3.0F;
    logits[50] = 2.0F;
    logits[51] = 2.0F;
    logits[52] = 1.9F;
    row.fill(logits, std::vector<TokenId>{7});  // 3 becomes 1.5
    ASSERT_GE(list.n_surviving(), 4U);
    const TokenId order[] = {50, 51, 52, 7};
    for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(list.guesses()[i].token, order[i]);
    float sum = 0.0F;
    for (const Guess& guess : list.guesses()) sum += guess.probability;
    EXPECT_NEAR(sum, 1.0F, 1e-5F);
    EXPECT_NEAR(list.guesses()[0].probability / list.guesses()[3].probability, std::exp(0.5F / 0.25F), 1e-4F);
}

TEST(GuessList, EqualTokensStandByIdWhateverTheirNumber) {
    std::mt19937 random(7);
    for (std::size_t n = 1; n <= 140; ++n) {
        RowList row({.temperature = 1.0, .top_k = 0, .top_p = 1.0}, static_cast<std::int64_t>(n));
        const GuessList& list = row.list;
        std::vector<float> logits(n);
        for (float& logit : logits) logit = static_cast<float>(random() % 5);
        std::vector<TokenId> expected(n);
        std::iota(expected.begin(), expected.end(), 0);
        std::ranges::stable_sort(expected, std::greater<>(), [&](TokenId id) { return logits[id]; });
        row.fill(logits, {});
        ASSERT_EQ(list.guesses().size(), n);
        for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(list.guesses()[i].token, expected[i]) << i << " of " << n;
    }
}

TEST(GuessList, WhatIsNoNumberIsNoGuess) {
    RowList row({.temperature = 1.0, .top_k = 0, .top_p = 1.0}, 40);
    const GuessList& list = row.list;
    std::vector<float> logits(40, std::numeric_limits<float>::quiet_NaN());
    row.fill(logits, {});
    EXPECT_TRUE(list.guesses().empty());
    std::ranges::fill(logits, -std::numeric_limits<float>::infinity());
    row.fill(logits, {});
    EXPECT_TRUE(list.guesses().empty());
    logits[3] = 1.0F;
    logits[39] = std::numeric_limits<float>::quiet_NaN();
    row.fill(logits, {});
    ASSERT_EQ(list.guesses().size(), 1U);
    EXPECT_EQ(list.guesses()[0].token, 3);
    EXPECT_FLOAT_EQ(list.guesses()[0].probability, 1.0F);
}

}  // namespace
}  // namespace slipstream::draft
