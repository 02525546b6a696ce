// Bigrams of the model as a source, and the rows that it reads: temperature, noise, extension.
#include "draft/sources/model_bigram.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/draft/changing_text.h"
#include "tests/draft/toy_ngrams.h"

namespace slipstream::draft {
namespace {

TEST(ModelBigram, TemperatureSharpensWhatIsKeptAndWhatIsNot) {
    // Three candidates of 0.4, 0.2, 0.1; 0.3 are behind them, in pieces of at most 0.1.
    BigramTable table{.vocab = 3, .k = 3};
    table.tokens = {1, 0, 2, -1, -1, -1, -1, -1, -1};
    for (const double p : {0.4, 0.2, 0.1, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0})
        table.log_p.push_back(to_half(static_cast<float>(std::log(p))));
    const auto row_at = [&](double temperature, std::int64_t k, TokenId token) {
        ModelBigram source(std::make_shared<const BigramTable>(table), temperature, k);
        std::vector<Proposal> row(5);
        row.resize(source.propose(static_cast<Cursor>(token), 1, PathNoise(), row));
        return row;
    };
    const auto first = [&](double temperature) {
        return static_cast<double>(row_at(temperature, 3, 0)[0].probability);
    };
    EXPECT_NEAR(first(1.0), 0.4, 1e-3);
    EXPECT_NEAR(first(0.0), 0.4, 1e-3);
    EXPECT_NEAR(first(0.5), 0.16 / (0.16 + 0.04 + 0.01 + 0.3 * 0.1), 1e-3);
    EXPECT_NEAR(first(2.0), std::sqrt(0.4) / (std::sqrt(0.4) + std::sqrt(0.2) + std::sqrt(0.1) + 0.3 / std::sqrt(0.1)),
                1e-3);
    EXPECT_NEAR(first(0.01), 1.0, 1e-3);
    EXPECT_LT(first(0.01), 1.0);
    EXPECT_GT(row_at(0.01, 3, 0)[2].probability, 0.0F);
    EXPECT_EQ(row_at(1.0, 2, 0).size(), 2U);
    EXPECT_NEAR(row_at(1.0, 2, 0)[0].probability, 0.4, 1e-3) << "the sum is the whole row's";
    EXPECT_TRUE(row_at(1.0, 2, 1).empty());
    ModelBigram two(std::make_shared<const BigramTable>(table), 1.0, 2);
    EXPECT_EQ(two.best(1, 5, {}), -1);
    EXPECT_EQ(two.best(0, 5, {}), 1);
}

TEST(ModelBigram, FollowsTheTemperature) {
    constexpr std::int64_t vocab = 20;
    const auto table = shared_toy_bigrams(vocab, 12, 4);
    ModelBigram source(table, 0.8, 9);
    for (const double temperature : {0.3, 0.0, 1.4, 0.8}) {
        source.set_temperature(temperature);
        ModelBigram fresh(table, temperature, 9);
        for (Cursor token = 0; token < vocab; ++token) {
            std::vector<Proposal> out(12);
            std::vector<Proposal> expected(12);
            out.resize(source.propose(token, 1, {}, out));
            expected.resize(fresh.propose(token, 1, {}, expected));
            ASSERT_EQ(out.size(), token + 1 == vocab ? 0U : 9U);
            ASSERT_EQ(out.size(), expected.size());
            for (std::size_t i = 0; i < out.size(); ++i) {
                EXPECT_EQ(out[i].token, expected[i].token);
                EXPECT_EQ(out[i].probability, expected[i].probability);
            }
        }
    }
}

TEST(ModelBigram, ProposesTheRowOfTheLastTokenByTheNoise) {
    constexpr std::int64_t vocab = 60;
    ModelBigram source(shared_toy_bigrams(vocab, 12, 1), 0.8, 12);
    int n_moved = 0;
    for (TokenId token = 0; token < vocab; ++token) {
        for (const bool noisy : {false, true}) {
            const PathNoise noise = noisy ? PathNoise(9) : PathNoise();
            const TokenId text[] = {3, token};
            std::vector<Proposal> out(5);
            const std::size_t n = source.propose(source.root(text), 2, noise, out);
            EXPECT_EQ(n, token + 1 == vocab ? 0U : 5U);
            expect_valid(std::span(out).first(n), source, 2, noise);
            EXPECT_EQ(source.advance(source.root({text, 1}), token), source.root(text));
            if (n == 0) continue;
            EXPECT_EQ(out[0].token, source.best(token, 2, noise));
            std::vector<Proposal> row(12);
            ASSERT_EQ(source.propose(source.root(text), 2, PathNoise(), row), 12U);
            const TokenId most_probable = row[0].token;
            if (out[0].token != most_probable) ++n_moved;
            EXPECT_TRUE(noisy || out[0].token == most_probable);
            // Nothing that was left out would have come before.
            for (const Proposal& other : row) {
                if (std::ranges::find(out, other.token, &Proposal::token) != out.end()) continue;
                EXPECT_LE(noise.rank(other.probability, 2, other.token),
                          noise.rank(out[4].probability, 2, out[4].token));
            }
        }
    }
    EXPECT_GT(n_moved, 10);
}

TEST(ModelBigram, ItsTreeIsRowsExtendedByTheirOwnBest) {
    constexpr std::int64_t vocab = 60;
    ModelBigram source(shared_toy_bigrams(vocab, 12, 2), 1.0, 12);
    const std::vector<TokenId> text = {1, 2, 3};
    for (const bool noisy : {false, true}) {
        const PathNoise noise = noisy ? PathNoise(5) : PathNoise();
        std::vector<Proposal> firsts(10);
        ASSERT_EQ(source.propose(source.root(text), 3, noise, firsts), 10U);
        for (const std::int64_t budget : {1, 2, 6, 13, 50, 200}) {
            for (const std::int64_t max_depth : {0, 1, 2, 3, 10, 12}) {
                const ShapeRequest request{.text = text, .budget = budget, .max_depth = max_depth, .noise = &noise};
                TokenTree tree;
                tree.reset(3);
                source.propose_shape(tree, request);
                expect_within(tree, request);
                TokenTree expected;
                expected.reset(3);
                for (const Proposal& proposal : firsts) {
                    TreeNode node = kTreeRoot;
                    TokenId token = proposal.token;
                    for (std::int64_t depth = 1; depth <= std::min<std::int64_t>(10, max_depth) && token >= 0;
                         ++depth) {
                        if (expected.size() >= budget) break;
                        node = expected.add(node, token);
                        token = source.best(token, 2 + depth + 1, noise);
                    }
                }
                EXPECT_TRUE(std::ranges::equal(tree.tokens(), expected.tokens()));
                EXPECT_TRUE(std::ranges::equal(tree.parents(), expected.parents()));
            }
        }
    }
}

}  // namespace
}  // namespace slipstream::draft
