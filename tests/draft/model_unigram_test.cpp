// Unigrams of the model as a source: with noise the best of the likeliest tokens, found by brute force.
#include "draft/papers/model_unigram.h"

#include <cmath>
#include <numeric>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/draft/changing_text.h"

namespace slipstream::draft {
namespace {

UnigramTable random_table(std::size_t vocab, std::uint32_t seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(8.0F, 2.5F);
    UnigramTable table;
    for (std::size_t i = 0; i < vocab; ++i) {
        table.distances.push_back(std::max(0.0F, normal(random)));
        table.alignments.push_back(normal(random));
    }
    return table;
}

TEST(UnigramLogP, FollowsTheRule) {
    const UnigramTable table{.distances = {3.0F, 1.0F, 2.0F}, .alignments = {0.5F, 0.7F, -3.0F}};
    const std::vector<float> near = unigram_log_p(table, UnigramRule::Distance);
    const double sum = std::exp(-1.0) + std::exp(-2.0) + std::exp(-3.0);
    for (std::size_t i = 0; i < 3; ++i)
        EXPECT_NEAR(near[i], -static_cast<double>(table.distances[i]) - std::log(sum), 1e-6);
    const std::vector<float> ranked = unigram_log_p(table, UnigramRule::Alignment);
    const double ranks = 1 / 2.7 + 1 / 3.7 + 1 / 4.7;
    EXPECT_NEAR(std::exp(ranked[2]), 1 / 2.7 / ranks, 1e-6);
    EXPECT_NEAR(std::exp(ranked[0]), 1 / 3.7 / ranks, 1e-6);
    EXPECT_NEAR(std::exp(ranked[1]), 1 / 4.7 / ranks, 1e-6);
}

TEST(ModelUnigram, FindsTheBestOfTheLikeliestAtEachPosition) {
    for (const std::size_t vocab : {3U, 97U, 4098U}) {
        const UnigramTable table = random_table(vocab, 4);
        for (const UnigramRule rule : {UnigramRule::Distance, UnigramRule::Alignment}) {
            for (const double temperature : {0.3, 1.0, 1.2}) {
                ModelUnigram source(table, {.rule = rule, .temperature = temperature});
                // The distribution at that temperature, in plain sums.
                const std::vector<float> log_p = unigram_log_p(table, rule);
                std::vector<double> p;
                for (const float value : log_p) p.push_back(std::exp(static_cast<double>(value) / temperature));
                const double sum = std::accumulate(p.begin(), p.end(), 0.0);
                std::vector<std::size_t> likeliest(vocab);
                std::iota(likeliest.begin(), likeliest.end(), 0);
                std::ranges::stable_sort(likeliest, [&](std::size_t a, std::size_t b) { return log_p[a] > log_p[b]; });
                likeliest.resize(std::min(vocab, ModelUnigram::kNoisy));
                for (const bool noisy : {false, true}) {
                    const PathNoise noise = noisy ? PathNoise(77) : PathNoise();
                    // Twice, so that what is remembered serves too; a position far on has the same slot as one before.
                    for (const std::int64_t position : {1, 2, 3, 2, 66, 2}) {
                        std::vector<double> ranks;
                        for (std::size_t token = 0; token < vocab; ++token)
                            ranks.push_back(std::log(p[token] / sum) +
                                            static_cast<double>(noise.gumbel(position, static_cast<TokenId>(token))));
                        std::vector<std::size_t> order = likeliest;
                        std::ranges::stable_sort(order,
                                                 [&](std::size_t a, std::size_t b) { return ranks[a] > ranks[b]; });
                        std::vector<Proposal> out(8);
                        const std::size_t n = source.propose(source.root({}), position, noise, out);
                        ASSERT_EQ(n, std::min<std::size_t>(8, vocab));
                        expect_valid(std::span(out).first(n), source, position, noise);
                        for (std::size_t i = 0; i < n; ++i) {
                            ASSERT_EQ(out[i].token, static_cast<TokenId>(order[i]))
                                << "rank " << i << ", position " << position << ", vocabulary " << vocab;
                            EXPECT_NEAR(out[i].probability / (p[order[i]] / sum), 1.0, 1e-3);
                        }
                    }
                }
            }
        }
    }
}

TEST(ModelUnigram, AnotherSeedIsAnotherNoise) {
    ModelUnigram source(random_table(500, 6), {.temperature = 1.0});
    std::vector<Proposal> first(8);
    std::vector<Proposal> second(8);
    std::vector<Proposal> again(8);
    ASSERT_EQ(source.propose(0, 5, PathNoise(1), first), 8U);
    ASSERT_EQ(source.propose(0, 5, PathNoise(2), second), 8U);
    ASSERT_EQ(source.propose(0, 5, PathNoise(1), again), 8U);
    EXPECT_NE(first[0].token, second[0].token);
    for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(first[i].token, again[i].token);
}

TEST(ModelUnigram, ItsTreeIsAFanUnderNodeZero) {
    ModelUnigram source(random_table(500, 6), {.temperature = 1.0, .rows = 10});
    const std::vector<TokenId> text = {1, 2, 3};
    const PathNoise noise(3);
    for (const std::int64_t budget : {1, 4, 11, 30}) {
        for (const std::int64_t max_depth : {0, 1, 5}) {
            const ShapeRequest request{.text = text, .budget = budget, .max_depth = max_depth, .noise = &noise};
            TokenTree tree;
            tree.reset(3);
            source.propose_shape(tree, request);
            EXPECT_EQ(tree.size(), max_depth == 0 ? 1 : std::min<std::int64_t>(11, budget));
            std::vector<Proposal> out(10);
            ASSERT_EQ(source.propose(0, 3, noise, out), 10U);
            for (std::int32_t node = 1; node < tree.size(); ++node) {
                EXPECT_EQ(tree.parent(node), 0);
                EXPECT_EQ(tree.token(node), out[static_cast<std::size_t>(node) - 1].token);
            }
        }
    }
}

}  // namespace
}  // namespace slipstream::draft
