// Top-k of a row of logits against a full sort, and its normaliser against sums in double.
#include "draft/logit_row.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <utility>

#include <gtest/gtest.h>

namespace slipstream::draft {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<TopToken> reference(const std::vector<float>& logits, std::size_t k) {
    std::vector<TopToken> all;
    for (std::size_t i = 0; i < logits.size(); ++i)
        if (logits[i] > -kInfinity) all.push_back({static_cast<TokenId>(i), logits[i]});
    std::ranges::stable_sort(all, [](const TopToken& a, const TopToken& b) { return a.logit > b.logit; });
    all.resize(std::min(all.size(), k));
    return all;
}

void expect_best(const std::vector<float>& logits, std::int64_t k, std::int64_t max_k) {
    RowTop row_top(max_k, std::ssize(logits));
    const std::vector<TopToken> expected = reference(logits, static_cast<std::size_t>(k));
    const std::span<const TopToken> best = row_top.best(logits, k);
    ASSERT_EQ(best.size(), expected.size());
    for (std::size_t i = 0; i < best.size(); ++i) {
        EXPECT_EQ(best[i].token, expected[i].token) << "rank " << i << " of " << logits.size();
        EXPECT_EQ(best[i].logit, expected[i].logit);
    }
}

TEST(LogitRow, BestTokensAreThoseOfASort) {
    std::mt19937 random(7);
    std::normal_distribution<float> normal(0.0F, 3.0F);
    for (const std::size_t n : {1U, 2U, 7U, 31U, 32U, 33U, 64U, 97U, 257U, 4096U, 5000U}) {
        for (const std::int64_t k : {1, 8, 40}) {
            std::vector<float> logits(n);
            for (float& logit : logits) logit = normal(random);
            expect_best(logits, k, 40);
        }
    }
}

TEST(LogitRow, TiesGoToTheLowestIdAndWhatIsNoNumberIsPassedOver) {
    std::mt19937 random(8);
    for (int round = 0; round < 200; ++round) {
        std::vector<float> logits(1 + random() % 2000);
        // Few values, so that ties cross every border; NaN and infinities among them.
        for (float& logit : logits) {
            const auto draw = random() % 16;
            logit = draw == 0 ? kNan : draw == 1 ? -kInfinity : static_cast<float>(draw / 4);
        }
        expect_best(logits, 8, 8);
    }
    expect_best(std::vector<float>(100, kNan), 8, 8);
    expect_best(std::vector<float>(100, -kInfinity), 8, 8);
    std::vector<float> rising(1999);
    std::iota(rising.begin(), rising.end(), -1000.0F);
    expect_best(rising, 8, 8);
    rising[500] = kInfinity;
    expect_best(rising, 8, 8);
}

TEST(LogitRow, NormaliserIsTheLogarithmOfTheSum) {
    std::mt19937 random(9);
    for (const float temperature : {0.3F, 0.8F, 1.0F, 2.0F}) {
        for (const std::size_t n : {1U, 5U, 8U, 97U, 4096U, 32000U}) {
            std::normal_distribution<float> normal(2.0F, 4.0F);
            std::vector<float> logits(n);
            for (float& logit : logits) logit = normal(random);
            const float greatest = *std::ranges::max_element(logits);
            double sum = 0.0;
            for (const float logit : logits)
                sum += std::exp((static_cast<double>(logit) - static_cast<double>(greatest)) /
                                static_cast<double>(temperature));
            EXPECT_NEAR(static_cast<double>(log_normaliser(logits, greatest, temperature)), std::log(sum), 2e-4);
        }
    }
    const float mixed[] = {1.0F, kNan, -kInfinity, -2000.0F, 1.0F};
    EXPECT_NEAR(log_normaliser(mixed, 1.0F, 1.0F), std::log(2.0), 2e-4);
}

TEST(LogitRow, EstimatedNormaliserIsCloseOnFlatRowsAndExactOnSteepOnes) {
    std::mt19937 random(10);
    for (const std::size_t n : {97U, 2048U, 4096U, 32001U}) {
        RowTop row_top(8, static_cast<std::int64_t>(n));
        for (const float spread : {0.5F, 2.0F, 4.0F, 12.0F}) {
            std::normal_distribution<float> normal(0.0F, spread);
            std::vector<float> logits(n);
            for (float& logit : logits) logit = normal(random);
            logits[n / 2] = 6.0F * spread;
            const LogitRows rows(matrix_view(std::as_const(logits).data(), 1, static_cast<std::int64_t>(n)));
            for (const float temperature : {0.7F, 1.0F}) {
                const float greatest = *std::ranges::max_element(logits);
                const float exact = log_normaliser(logits, greatest, temperature);
                const float estimated = estimated_log_normaliser(rows, 0, row_top.best(rows, 0, 8), temperature);
                EXPECT_NEAR(estimated, exact, n < 2048 || spread > 10.0F ? 1e-3 : 0.15) << n << " " << spread;
            }
        }
    }
}

}  // namespace
}  // namespace slipstream::draft
