// Unigrams of the model as a source: Zipf's law by rank, and with noise the best of them, found by brute force.
#include "draft/papers/model_unigram.h"

#include <cmath>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/draft/changing_text.h"

namespace slipstream::draft {
namespace {

/// n distinct tokens of a vocabulary, in no order.
std::vector<TokenId> common_tokens(std::int64_t n, std::int64_t vocab) {
    std::vector<TokenId> tokens;
    for (std::int64_t i = 0; i < n; ++i) tokens.push_back(static_cast<TokenId>((7 * i + 3) % vocab));
    return tokens;
}

TEST(ModelUnigram, ProbabilitiesFollowTheRank) {
    ModelUnigram source(std::vector<TokenId>{5, 0, 3}, 6, 0.5);
    std::array<Proposal, 8> out;
    ASSERT_EQ(source.propose(source.root({}), 1, PathNoise(), out), 3U);
    double sum = 0.0;
    for (int rank = 0; rank < 6; ++rank) sum += 1.0 / (rank + 2.7) / (rank + 2.7);
    for (int rank = 0; rank < 3; ++rank) {
        const auto i = static_cast<std::size_t>(rank);
        EXPECT_EQ(out[i].token, (std::vector<TokenId>{5, 0, 3})[i]);
        EXPECT_NEAR(out[i].probability, 1.0 / (rank + 2.7) / (rank + 2.7) / sum, 1e-6);
    }
    ModelUnigram greedy(std::vector<TokenId>{5, 0, 3}, 6, 0.0);
    ModelUnigram at_one(std::vector<TokenId>{5, 0, 3}, 6, 1.0);
    std::array<Proposal, 8> other;
    ASSERT_EQ(greedy.propose(0, 1, PathNoise(), out), at_one.propose(0, 1, PathNoise(), other));
    for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(out[i].probability, other[i].probability);
}

TEST(ModelUnigram, FollowsTheTemperature) {
    const std::vector<TokenId> common = common_tokens(30, 300);
    ModelUnigram source(common, 300, 0.8);
    for (const double temperature : {0.3, 0.0, 1.4, 0.8}) {
        source.set_temperature(temperature);
        ModelUnigram fresh(common, 300, temperature);
        std::array<Proposal, 16> out;
        std::array<Proposal, 16> expected;
        ASSERT_EQ(source.propose(0, 1, PathNoise(), out), 16U);
        ASSERT_EQ(fresh.propose(0, 1, PathNoise(), expected), 16U);
        for (std::size_t i = 0; i < out.size(); ++i) {
            EXPECT_EQ(out[i].token, expected[i].token);
            EXPECT_EQ(out[i].probability, expected[i].probability);
        }
    }
}

TEST(ModelUnigram, FindsTheBestByTheNoiseOfEachPosition) {
    for (const std::int64_t n : {3, 97, 256}) {
        for (const double temperature : {0.05, 0.3, 1.0, 1.2}) {
            const std::vector<TokenId> common = common_tokens(n, 4098);
            ModelUnigram source(common, 4098, temperature);
            std::vector<Proposal> all(16);
            ASSERT_EQ(source.propose(0, 0, PathNoise(), all), std::min<std::size_t>(16, common.size()));
            for (const std::uint64_t seed : {77U, 78U}) {
                const PathNoise noise(seed);
                for (const std::int64_t position : {1, 2, 66, 2}) {
                    std::vector<std::size_t> order(common.size());
                    std::iota(order.begin(), order.end(), 0);
                    const auto rank = [&](std::size_t i) {
                        return -std::log(static_cast<double>(i) + 2.7) / temperature +
                               static_cast<double>(noise.gumbel(position, common[i]));
                    };
                    std::ranges::stable_sort(order, std::ranges::greater{}, rank);
                    std::vector<Proposal> out(8);
                    const std::size_t found = source.propose(source.root({}), position, noise, out);
                    ASSERT_EQ(found, std::min<std::size_t>(8, common.size()));
                    expect_valid(std::span(out).first(found), source, position, noise);
                    for (std::size_t i = 0; i < found; ++i)
                        ASSERT_EQ(out[i].token, common[order[i]]) << "rank " << i << ", position " << position;
                }
            }
        }
    }
}

TEST(ModelUnigram, ItsTreeIsAFanUnderNodeZero) {
    ModelUnigram source(common_tokens(100, 500), 500, 1.0);
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
            for (const TreeNode node : tree.draft_nodes()) {
                EXPECT_EQ(tree.parent(node), kTreeRoot);
                EXPECT_EQ(tree.token(node), out[static_cast<std::size_t>(node.index) - 1].token);
            }
        }
    }
}

}  // namespace
}  // namespace slipstream::draft
