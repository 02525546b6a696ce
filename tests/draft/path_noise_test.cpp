// The noise as proposers see it: the sampler's own, whatever was asked before; and what knowing it is worth.
#include "draft/path_noise.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/loop/sampling/sampler.h"

namespace slipstream::draft {
namespace {

TEST(PathNoise, IsNoneWithoutASeed) {
    const PathNoise noise;
    EXPECT_FALSE(noise.present());
    EXPECT_EQ(noise.seed(), 0U);
    EXPECT_EQ(noise.gumbel(7, 12), 0.0F);
    EXPECT_NEAR(noise.rank(0.25F, 7, 12), std::log(0.25F), 1e-4F);
}

TEST(PathNoise, IsTheSamplersNoiseWhateverWasAskedBefore) {
    // More pairs than are kept, each asked for several times, by two copies in turn.
    const std::uint64_t seed = 0x123456789abcdefU;
    const PathNoise noise(seed);
    const PathNoise copy = noise;
    const PathNoise other(seed + 1);
    EXPECT_TRUE(noise.present());
    EXPECT_EQ(copy.seed(), seed);
    std::mt19937 random(1);
    std::int64_t n_equal = 0;
    for (int i = 0; i < 100000; ++i) {
        const auto position = static_cast<std::int64_t>(random() % 500) + (i % 3 == 0 ? std::int64_t{1} << 33 : 0);
        const auto token = static_cast<TokenId>(random() % 300);
        const float expected =
            gumbel_noise(seed, static_cast<std::uint64_t>(position), static_cast<std::uint32_t>(token));
        ASSERT_EQ((i % 2 == 0 ? noise : copy).gumbel(position, token), expected) << position << " " << token;
        n_equal += other.gumbel(position, token) == expected ? 1 : 0;
    }
    EXPECT_LT(n_equal, 10);
}

TEST(PathNoise, RankIsLogProbabilityAndNoise) {
    const PathNoise noise(9);
    for (const float p : {1e-6F, 0.01F, 0.5F, 0.999F})
        EXPECT_NEAR(noise.rank(p, 3, 4), std::log(p) + noise.gumbel(3, 4), 1e-4F);
}

struct Shares {
    double aware = 0.0;  // of positions whose token is among the best 4
    double blind = 0.0;
};

// How often the sampled token is among the four best guesses of a source that tells the target's logits with an error.
Shares among_four(double error) {
    constexpr std::int64_t vocab = 200;
    constexpr std::int64_t n_trials = 2000;
    std::mt19937 random(2);
    std::normal_distribution<float> normal;
    Sampler sampler({.temperature = 1.0, .top_k = 0, .seed = 77}, vocab);
    const PathNoise noise(77);
    Shares shares;
    for (std::int64_t position = 0; position < n_trials; ++position) {
        std::vector<float> logits(vocab);
        std::vector<float> guess(vocab);
        float sum = 0.0F;
        for (std::size_t i = 0; i < logits.size(); ++i) {
            logits[i] = 2.0F * normal(random);
            guess[i] = std::exp(logits[i] + static_cast<float>(error) * normal(random));
            sum += guess[i];
        }
        const TokenId sampled = sampler.sample(logits, position, {});
        const auto is_among = [&](const auto& value) {
            const float own = value(sampled);
            std::int64_t better = 0;
            for (TokenId id = 0; id < vocab; ++id) better += value(id) > own ? 1 : 0;
            return better < 4 ? 1.0 / n_trials : 0.0;
        };
        const auto p = [&](TokenId id) { return guess[id] / sum; };
        shares.blind += is_among(p);
        shares.aware += is_among([&](TokenId id) { return noise.rank(p(id), position, id); });
    }
    return shares;
}

TEST(PathNoise, MakesSampledTokensAsEasyToGuessAsLikelyOnes) {
    const Shares exact = among_four(0.0);
    EXPECT_GT(exact.aware, 0.999);  // the best of log p + gumbel is the sample
    EXPECT_LT(exact.blind, 0.6);
    const Shares close = among_four(0.3);
    EXPECT_GT(close.aware, 0.95);
    const Shares rough = among_four(1.0);
    EXPECT_GT(rough.aware, 1.5 * rough.blind);
}

}  // namespace
}  // namespace slipstream::draft
