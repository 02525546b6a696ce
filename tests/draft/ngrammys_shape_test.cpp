// The mixed tree of N-Grammys against rows put together by hand.
#include "draft/sources/ngrammys_shape.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/draft/changing_text.h"
#include "tests/draft/toy_ngrams.h"

namespace slipstream::draft {
namespace {

using Path = std::vector<TokenId>;

/// All root paths of a tree, node 0 left out.
std::set<Path> paths_of(const TokenTree& tree) {
    std::set<Path> paths;
    for (const TreeNode leaf : tree.draft_nodes()) {
        Path path;
        for (TreeNode node = leaf; node != kTreeRoot; node = tree.parent(node))
            path.insert(path.begin(), tree.token(node));
        paths.insert(path);
    }
    return paths;
}

TEST(NgrammysShape, ContextRowsComeFirstThenExtendedBigrams) {
    // After 5: 1 2 twice, 3 4 once (later). The bigrams of 5 begin with 1 (extended by 2, so a row that is there),
    // 7, 8.
    BigramTable table{.vocab = 10, .k = 3};
    table.tokens.assign(30, -1);
    table.log_p.resize(30);
    const auto row = [&](std::size_t token, const std::vector<std::int32_t>& candidates) {
        for (std::size_t i = 0; i < candidates.size(); ++i) {
            table.tokens[3 * token + i] = candidates[i];
            table.log_p[3 * token + i] = to_half(-1.0F - static_cast<float>(i));
        }
    };
    row(5, {1, 7, 8});
    row(1, {2, 9});
    row(7, {0});
    row(8, {3});
    ModelBigram bigrams(std::make_shared<const BigramTable>(table), 0.0, 3);
    const Path text = {5, 1, 2, 5, 1, 2, 5, 3, 4, 5};
    const auto grown = [&](std::size_t rows, std::int64_t budget, ModelBigram* table_or_null) {
        TokenTree tree;
        tree.reset(5);
        grow_ngrammys(tree, {.text = text, .budget = budget, .max_depth = 9}, ContextRows::Taken, table_or_null,
                      {.rows = rows, .row_tokens = 2});
        return tree;
    };
    EXPECT_EQ(paths_of(grown(10, 50, nullptr)), (std::set<Path>{{1}, {1, 2}, {3}, {3, 4}}));
    EXPECT_EQ(paths_of(grown(3, 50, &bigrams)), (std::set<Path>{{1}, {1, 2}, {3}, {3, 4}, {7}, {7, 0}}))
        << "the bigram row 1 2 is there already and does not count";
    EXPECT_EQ(paths_of(grown(4, 50, &bigrams)), (std::set<Path>{{1}, {1, 2}, {3}, {3, 4}, {7}, {7, 0}, {8}, {8, 3}}));
    EXPECT_EQ(paths_of(grown(1, 50, &bigrams)), (std::set<Path>{{1}, {1, 2}}));
    EXPECT_EQ(paths_of(grown(4, 4, &bigrams)), (std::set<Path>{{1}, {1, 2}, {3}})) << "later rows are cut";
    EXPECT_EQ(grown(4, 1, &bigrams).size(), 1);
}

TEST(NgrammysShape, KeepsToBudgetDepthAndTheNumberOfRows) {
    std::mt19937 random(21);
    ModelBigram bigrams(shared_toy_bigrams(8, 4, 3), 0.9, 4);
    Path text;
    for (int round = 0; round < 300; ++round) {
        const std::size_t n = 1 + random() % 4;
        for (std::size_t i = 0; i < n; ++i) text.push_back(static_cast<TokenId>(random() % 8));
        const PathNoise noise = round % 2 == 0 ? PathNoise() : PathNoise(static_cast<std::uint64_t>(round));
        const NgrammysOptions options{.rows = 1 + random() % 6,
                                      .row_tokens = 1 + static_cast<std::int64_t>(random() % 5)};
        const ShapeRequest request{.text = text,
                                   .budget = 1 + static_cast<std::int64_t>(random() % 30),
                                   .max_depth = static_cast<std::int64_t>(random() % 7),
                                   .noise = &noise};
        TokenTree tree;
        tree.reset(text.back());
        grow_ngrammys(tree, request, ContextRows::Taken, &bigrams, options);
        expect_within(tree, request);
        std::int32_t n_leaves = 0;
        const std::int64_t w = std::min(options.row_tokens, request.max_depth);
        for (const TreeNode node : tree.draft_nodes()) {
            EXPECT_LE(tree.depth(node), w);
            n_leaves += std::ranges::count(tree.parents(), node) == 0 ? 1 : 0;
        }
        EXPECT_LE(n_leaves, static_cast<std::int64_t>(options.rows));
        // Where the text says nothing, the bigrams do.
        EXPECT_TRUE(request.budget == 1 || w == 0 || text.back() == 7 || tree.size() > 1);
    }
}

TEST(NgrammysShape, NoisePutsTheRowFirstWhoseBeginningItFavours) {
    // After 5 every token of 0..3 followed: 0 four times, the others once.
    const Path text = {5, 0, 5, 0, 5, 0, 5, 0, 5, 1, 5, 2, 5, 3, 5};
    const float counts[] = {4, 1, 1, 1};
    std::map<TokenId, int> n_first;
    for (std::uint64_t seed = 0; seed < 40; ++seed) {
        const PathNoise noise(seed);
        TokenTree tree;
        tree.reset(5);
        grow_ngrammys(tree, {.text = text, .budget = 50, .max_depth = 9, .noise = &noise}, ContextRows::Taken, nullptr,
                      {.rows = 1, .row_tokens = 1});
        ASSERT_EQ(tree.size(), 2);
        TokenId expected = 0;
        for (TokenId token = 1; token < 4; ++token)
            if (noise.rank(counts[token] / 8, std::ssize(text), token) >
                noise.rank(counts[expected] / 8, std::ssize(text), expected))
                expected = token;
        EXPECT_EQ(tree.token(TreeNode(1)), expected) << "seed " << seed;
        ++n_first[tree.token(TreeNode(1))];
    }
    EXPECT_GT(n_first.size(), 2U);
}

}  // namespace
}  // namespace slipstream::draft
