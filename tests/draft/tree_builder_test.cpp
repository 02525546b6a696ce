// The merged tree: the best paths of sources whose probabilities are known, limits, costs, and who is asked.
#include "draft/tree/tree_builder.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/draft/grown_tree.h"
#include "tests/draft/toy_sources.h"

namespace slipstream::draft {
namespace {

// Every path of at most `depth` tokens, by probability.
class AllPaths {
public:
    AllPaths(const ToyWords& words, const ToyText& text, std::int64_t depth) { visit(words, text, 1.0, depth); }

    [[nodiscard]] double best_sum(std::size_t n) {
        std::ranges::sort(probabilities_, std::greater<>());
        double sum = 0.0;
        for (std::size_t i = 0; i < std::min(n, probabilities_.size()); ++i) sum += probabilities_[i];
        return sum;
    }
    [[nodiscard]] double nth(std::size_t n) const { return probabilities_[n]; }

private:
    void visit(const ToyWords& words, const ToyText& text, double p, std::int64_t depth) {
        if (depth == 0) return;
        for (const Proposal& word : words(text)) {
            const double reached = p * static_cast<double>(word.probability);
            if (reached < 1e-5) continue;
            probabilities_.push_back(reached);
            ToyText longer = text;
            longer.push_back(word.token);
            visit(words, longer, reached, depth - 1);
        }
    }
    std::vector<double> probabilities_;
};

double path_probability(const ToyWords& words, const ToyText& text, const TokenTree& tree, TreeNode node) {
    if (node == kTreeRoot) return 1.0;
    for (const Proposal& word : words(text_behind(text, tree, tree.parent(node))))
        if (word.token == tree.token(node))
            return static_cast<double>(word.probability) * path_probability(words, text, tree, tree.parent(node));
    ADD_FAILURE() << "node " << node.index << " was never proposed";
    return 0.0;
}

TEST(TreeBuilder, HoldsTheMostProbablePaths) {
    for (std::uint32_t seed = 0; seed < 12; ++seed)
        for (const std::int64_t budget : {2, 3, 9, 24, 48}) {
            SCOPED_TRACE(testing::Message() << "seed " << seed << ", budget " << budget);
            constexpr std::int64_t depth = 4;
            const ToyWords words = random_words(seed, 7, 0.8, 0.9);
            const ToyText text = {1, static_cast<TokenId>(seed)};
            AllPaths all(words, text, depth);
            const auto n = static_cast<std::size_t>(budget - 1);
            const double best = all.best_sum(n);
            ToySource source(words);
            TreeBuilder builder({&source}, {}, 20);
            for (int repeat = 0; repeat < 20; ++repeat) {
                const Grown grown = grow(builder, text, {.budget = budget, .max_depth = depth});
                ASSERT_EQ(grown.tree.size(), budget);
                double sum = 0.0;
                for (const TreeNode node : grown.tree.draft_nodes()) {
                    const double p = path_probability(words, text, grown.tree, node);
                    // At first exactly the best ones, but for the rounding of tabled log-odds.
                    ASSERT_TRUE(repeat > 0 || p >= 0.995 * all.nth(n - 1)) << p << " " << all.nth(n - 1);
                    sum += p;
                }
                ASSERT_GE(sum, 0.99 * best);
                ASSERT_NEAR(grown.expected, 1.0 + sum, 0.01 * (1.0 + sum));
            }
        }
}

TEST(TreeBuilder, TheBestOfAModelAreFoundInFewBatches) {
    for (std::uint32_t seed = 0; seed < 8; ++seed) {
        constexpr std::int64_t budget = 16;
        const ToyWords words = random_words(seed, 6, 0.8, 0.95);
        const ToyText text = {3};
        ToyModel model(words);
        TreeBuilder builder({}, Models{&model}, 20);
        const Grown grown = grow(builder, text, {.budget = budget, .max_depth = 5});
        ASSERT_EQ(grown.tree.size(), budget);
        double sum = 0.0;
        for (const TreeNode node : grown.tree.draft_nodes()) sum += path_probability(words, text, grown.tree, node);
        EXPECT_GT(sum, 0.95 * AllPaths(words, text, 5).best_sum(budget - 1)) << seed;
        EXPECT_LE(model.n_batches, 8);
    }
}

TEST(TreeBuilder, WithoutRoomOrDepthNothingGrows) {
    ToySource source(fixed_words({{1, 0.5F, 0}, {2, 0.4F, 0}}));
    ToyModel model(fixed_words({{1, 0.5F, 0}}));
    TreeBuilder builder({&source}, Models{&model}, 20);
    for (const auto& [budget, max_depth] : {std::pair{1, 8}, std::pair{8, 0}, std::pair{1, 0}}) {
        const Grown grown = grow(builder, {4}, {.budget = budget, .max_depth = max_depth});
        EXPECT_EQ(grown.tree.size(), 1);
        EXPECT_EQ(grown.expected, 1.0);
        learn_first(builder, grown.tree, 1);
    }
    EXPECT_EQ(model.n_batches, 0);
    ToySource silent(fixed_words({}));
    TreeBuilder without_words({&silent}, {}, 20);
    EXPECT_EQ(grow(without_words, {4}, {}).tree.size(), 1);
}

TEST(TreeBuilder, SourcesThatAgreeStandBeforeThoseThatDoNot) {
    ToySource first(fixed_words({{1, 0.3F, 0}, {2, 0.25F, 0}}));
    ToySource second(fixed_words({{3, 0.3F, 0}, {2, 0.25F, 0}}));
    TreeBuilder builder({&first, &second}, {}, 20);
    EXPECT_EQ(children_of_root(grow(builder, {4}, {.budget = 2}).tree), ToyText{2});
    EXPECT_EQ(children_of_root(grow(builder, {4}, {.budget = 9, .max_depth = 1}).tree), (ToyText{1, 2, 3}));
}

TEST(TreeBuilder, TheTreeIsAsLargeAsPays) {
    ToySource source(random_words(3, 12, 0.9, 0.9));
    TreeBuilder builder({&source}, {}, 20);
    const auto size_at = [&](const PassCurve& curve) {
        return grow(builder, {4}, {.budget = curve.max_nodes(), .curve = &curve}).tree.size();
    };
    EXPECT_EQ(size_at(curve_by(64, [](double) { return 1.0; })), 64);
    EXPECT_EQ(size_at(curve_by(64, [](double n) { return n; })), 1);
    const auto size = size_at(curve_by(64, [](double n) { return n <= 8.0 ? 1.0 : 10.0; }));
    EXPECT_LE(size, 8);
    EXPECT_GE(size, 7);
}

TEST(TreeBuilder, WhereATokenIsDearMoreNodesPay) {
    // A pass of n nodes takes 1 + n / 20; the best child scores about 0.3.
    ToySource source(random_words(3, 12, 0.9, 0.9));
    const PassCurve curve = curve_by(64, [](double n) { return 1.0 + n / 20.0; });
    const auto grown_at = [&](double seconds_per_token) {
        TreeBuilder builder({&source}, {}, 20);
        return grow(builder, {4}, {.budget = 64, .curve = &curve, .seconds_per_token = seconds_per_token});
    };
    const Grown cheap = grown_at(0.1);
    const Grown usual = grown_at(0.3);
    const Grown dear = grown_at(1.05);
    EXPECT_EQ(cheap.tree.size(), 1);
    EXPECT_GT(usual.tree.size(), cheap.tree.size());
    EXPECT_GT(dear.tree.size(), usual.tree.size());
    // Taken is what is worth its time: a node of so many more tokens.
    EXPECT_GE(dear.expected - usual.expected, static_cast<double>(dear.tree.size() - usual.tree.size()) / 20.0 / 1.05);
}

TEST(TreeBuilder, TreesAreSmallerWhereLessCameTrueThanWasExpected) {
    ToySource source(random_words(3, 12, 0.9, 0.9));
    const PassCurve curve = curve_by(64, [](double n) { return 1.0 + n / 20.0; });
    const auto grown_at = [&](double realised_fraction) {
        TreeBuilder builder({&source}, {}, 20);
        TokenTree tree;
        tree.reset(4);
        const double expected = builder.grow(tree, {.text = ToyText{4},
                                                    .budget = 64,
                                                    .max_depth = 32,
                                                    .noise = &kNoNoise,
                                                    .curve = &curve,
                                                    .seconds_per_token = 1.0,
                                                    .realised_fraction = realised_fraction});
        EXPECT_TRUE(tree.size() == 1 || expected > 1.0);
        return tree.size();
    };
    EXPECT_EQ(grown_at(0.0), 1);
    EXPECT_LT(grown_at(0.5), grown_at(1.0));
    EXPECT_GT(grown_at(1.5), grown_at(1.0));
}

TEST(TreeBuilder, AStepInTimeIsCrossedWhereManyNodesPayForIt) {
    // The second node takes more than its own 0.12 tokens are worth; the next ones are free.
    ToySource source(fixed_words({{1, 0.12F, 0}, {2, 0.12F, 0}, {3, 0.12F, 0}, {4, 0.12F, 0}, {5, 0.12F, 0}}));
    const PassCurve curve = curve_by(16, [](double n) { return n < 2.0 ? 1.0 : 1.15; });
    TreeBuilder builder({&source}, {}, 20);
    EXPECT_EQ(grow(builder, {4}, {.budget = 16, .max_depth = 1, .curve = &curve}).tree.size(), 6);
}

TEST(TreeBuilder, AnExpensiveSecondNodeIsTakenWhereALongChainPays) {
    // A mixture of 16 experts, 4 a token: the second token reads three new ones, later ones nearly none. A token is
    // worth the time that it takes in long chains, so a tree of two nodes is worth less than none.
    ToySource source(fixed_words({{1, 0.97F, 0}}));
    const PassCurve curve =
        curve_by(32, [](double n) { return 0.2 + 0.75 * 4.0 * (1.0 - std::pow(0.75, n)) + 0.05 * n; });
    constexpr double kATokenOfLongChains = 0.4;
    ASSERT_LT(1.97 - curve.at(2) / kATokenOfLongChains, 1.0 - curve.at(1) / kATokenOfLongChains - 0.5);
    TreeBuilder builder({&source}, {}, 20);
    EXPECT_GT(grow(builder, {4}, {.budget = 32, .curve = &curve, .seconds_per_token = kATokenOfLongChains}).tree.size(),
              16);
}

TEST(TreeBuilder, TheSearchEndsWhereNoLongerTreeCanBeBetter) {
    // Nodes after the second are free. A chain of 32 pays for the step, one of 8 does not.
    std::int64_t n_asked = 0;
    ToySource source([&](std::span<const TokenId>) {
        ++n_asked;
        return std::vector<Proposal>{{1, 0.97F, 0}};
    });
    const PassCurve curve = curve_by(32, [](double n) { return n < 2.0 ? 1.0 : 3.0; });
    const auto asked = [&](std::int64_t budget, std::int64_t size) {
        n_asked = 0;
        TreeBuilder builder({&source}, {}, 20);
        EXPECT_EQ(grow(builder, {4}, {.budget = budget, .curve = &curve, .seconds_per_token = 0.2}).tree.size(), size);
        return n_asked;
    };
    EXPECT_GE(asked(32, 32), 31);
    EXPECT_EQ(asked(8, 1), 1);
}

TEST(TreeBuilder, ASureWordStaysSureAmongManyDoubtfulOnes) {
    ToySource sure(fixed_words({{1, 0.95F, 0}}));
    std::vector<Proposal> doubtful;
    for (TokenId token = 2; token < 14; ++token) doubtful.push_back({token, 0.05F, 0});
    ToySource doubting(fixed_words(doubtful));
    TreeBuilder builder({&sure, &doubting}, {}, 20);
    const Grown best = grow(builder, {4}, {.budget = 2, .max_depth = 1});
    EXPECT_EQ(best.tree.token(TreeNode(1)), 1);
    EXPECT_NEAR(best.expected, 1.95, 0.01);
    // All of them are no more than certain.
    EXPECT_LE(grow(builder, {4}, {.budget = 32, .max_depth = 1}).expected, 1.99 + 1e-6);
}

TEST(TreeBuilder, SourcesThatDisagreeAreNotAllRight) {
    std::vector<ToySource> each;
    for (TokenId token = 1; token <= 4; ++token) each.emplace_back(fixed_words({{token, 0.9F, 0}}));
    TreeBuilder builder({&each[0], &each[1], &each[2], &each[3]}, {}, 20);
    const Grown grown = grow(builder, {9}, {.budget = 32, .max_depth = 1});
    EXPECT_EQ(grown.tree.size(), 5);
    EXPECT_LE(grown.expected, 1.99 + 1e-6);
}

TEST(TreeBuilder, UnderNoiseTablesNameNothingThatAModelDoesNot) {
    ToySource source(fixed_words({{1, 0.5F, 0}, {2, 0.3F, 0}}));
    ToyModel model(fixed_words({{2, 0.6F, 0}, {3, 0.3F, 0}}));
    TreeBuilder builder({&source}, Models{&model}, 20);
    const PathNoise noise(5);
    const Grown grown = grow(builder, {4}, {.budget = 16, .max_depth = 1, .noise = &noise});
    EXPECT_EQ(children_of_root(grown.tree), (ToyText{2, 3}));
    builder.reset();
    EXPECT_EQ(children_of_root(grow(builder, {4}, {.budget = 16, .max_depth = 1}).tree), (ToyText{1, 2, 3}));
}

}  // namespace
}  // namespace slipstream::draft
