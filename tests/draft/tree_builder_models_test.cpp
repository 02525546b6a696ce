// When models are asked, and what their votes are worth beside tables' and each other's.
#include "draft/tree/tree_builder.h"

#include <vector>

#include <gtest/gtest.h>

#include "tests/draft/grown_tree.h"
#include "tests/draft/toy_sources.h"

namespace slipstream::draft {
namespace {

// A node more costs little of a pass.
const PassCurve kCheapNodes = curve_by(16, [](double n) { return 1.0 + 0.1 * (n - 1.0) / 15.0; });

// Behind every text the next token, nearly always.
ToyWords counting(float probability) {
    return [probability](std::span<const TokenId> text) {
        return std::vector<Proposal>{{(text.back() + 1) % 20, probability, 0}};
    };
}

TEST(TreeBuilderModels, WhereANodeMoreIsCheapAModelTakesNobodysPlace) {
    ToySource source(fixed_words({{1, 0.6F, 0}}));
    ToyModel model(fixed_words({{2, 0.9F, 0}}), 64, nullptr, 1e-6);
    const PassCurve curve = curve_by(16, [](double n) { return 1.0 + 0.001 * (n - 1.0) / 15.0; });
    TreeBuilder builder({&source}, Models{&model}, 20);
    EXPECT_TRUE(
        grow(builder, {4}, {.budget = 16, .max_depth = 1, .curve = &curve}).tree.child(kTreeRoot, 2).has_value());
}

TEST(TreeBuilderModels, AModelThatCostsMoreThanItBringsIsNotAsked) {
    ToySource source(fixed_words({{1, 0.5F, 0}}));
    ToyModel dear(fixed_words({{2, 0.5F, 0}}), 64, nullptr, 5.0);
    ToyModel cheap(fixed_words({{3, 0.5F, 0}}), 64, nullptr, 0.001);
    TreeBuilder with_dear({&source}, Models{&dear}, 20);
    TreeBuilder with_cheap({&source}, Models{&cheap}, 20);
    EXPECT_FALSE(grow(with_dear, {4}, {.budget = 16, .curve = &kCheapNodes}).tree.child(kTreeRoot, 2).has_value());
    EXPECT_EQ(dear.n_batches, 0);
    EXPECT_TRUE(grow(with_cheap, {4}, {.budget = 16, .curve = &kCheapNodes}).tree.child(kTreeRoot, 3).has_value());
    // Of two, the one that pays is asked, whichever place the other has.
    for (const Models& models : {Models{&cheap, &dear}, Models{&dear, &cheap}}) {
        cheap.n_batches = 0;
        TreeBuilder both({&source}, models, 20);
        const Grown grown = grow(both, {4}, {.budget = 16, .curve = &kCheapNodes});
        EXPECT_TRUE(grown.tree.child(kTreeRoot, 3).has_value());
        EXPECT_FALSE(grown.tree.child(kTreeRoot, 2).has_value());
        EXPECT_GT(cheap.n_batches, 0);
        EXPECT_EQ(dear.n_batches, 0);
    }
}

// A node that only a table named is asked about together with its parent if what this is expected to save of a later
// batch is at least what it adds to this one.
TEST(TreeBuilderModels, ANodeIsAskedAboutEarlyIfThatSavesMoreThanItCosts) {
    const auto batches_of = [](float table_probability, double seconds_per_batch) {
        ToySource source(counting(table_probability));
        ToyModel model(counting(0.9F), 64, nullptr, 0.001, seconds_per_batch);
        const PassCurve curve = curve_by(16, [](double n) { return 1.0 + 0.001 * (n - 1.0) / 15.0; });
        TreeBuilder builder({&source}, Models{&model}, 20);
        grow(builder, {4}, {.budget = 16, .max_depth = 5, .curve = &curve});
        return model.n_batches;
    };
    EXPECT_EQ(batches_of(0.9F, 0.01), 1);   // saves 11, costs 1
    EXPECT_GE(batches_of(0.9F, 0.0), 5);    // saves what it costs, at most
    EXPECT_GE(batches_of(0.05F, 0.01), 4);  // saves little, so seldom
}

TEST(TreeBuilderModels, AModelMayTakeThePlaceOfATablesWeakNode) {
    // One node rides along at little cost, a second costs as much as a pass.
    ToySource source(fixed_words({{1, 0.3F, 0}}));
    ToyModel model(fixed_words({{2, 0.9F, 0}}), 64, nullptr, 0.05);
    const PassCurve curve = curve_by(16, [](double n) { return n <= 2.0 ? 1.0 : 2.0; });
    TreeBuilder builder({&source}, Models{&model}, 20);
    const Grown grown = grow(builder, {4}, {.budget = 16, .max_depth = 1, .curve = &curve});
    EXPECT_EQ(children_of_root(grown.tree), ToyText{2});
}

TEST(TreeBuilderModels, UnderNoiseTablesNameNothingThatAModelDoesNot) {
    ToySource source(fixed_words({{1, 0.5F, 0}, {2, 0.3F, 0}}));
    ToyModel model(fixed_words({{2, 0.6F, 0}, {3, 0.3F, 0}}));
    TreeBuilder builder({&source}, Models{&model}, 20);
    const PathNoise noise(5);
    const Grown grown = grow(builder, {4}, {.budget = 16, .max_depth = 1, .noise = &noise});
    EXPECT_EQ(children_of_root(grown.tree), (ToyText{2, 3}));
    builder.reset();
    EXPECT_EQ(children_of_root(grow(builder, {4}, {.budget = 16, .max_depth = 1}).tree), (ToyText{1, 2, 3}));
}

TEST(TreeBuilderModels, UnderNoiseTheDearestVoteStandsAlone) {
    const ToyWords said_by_dear = fixed_words({{2, 0.6F, 0}, {3, 0.3F, 0}});
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
        ToySource source(fixed_words({{1, 0.5F, 0}, {2, 0.3F, 0}}));
        ToyModel cheap(fixed_words({{4, 0.5F, 0}, {2, 0.1F, 0}, {3, 0.2F, 0}}));
        ToyModel dear(said_by_dear);
        ToyModel alone(said_by_dear);
        TreeBuilder both({&source}, Models{&cheap, &dear}, 20);
        TreeBuilder one({}, Models{&alone}, 20);
        const PathNoise noise(seed);
        const TreeLimits limits{.budget = 16, .max_depth = 1, .noise = &noise};
        const Grown with_both = grow(both, {4}, limits);
        EXPECT_EQ(cheap.n_batches, 1);
        EXPECT_EQ(dear.n_batches, 1);
        EXPECT_EQ(children_of_root(with_both.tree), (ToyText{2, 3}));
        EXPECT_NEAR(with_both.expected, grow(one, {4}, limits).expected, 1e-5);
    }
}

TEST(TreeBuilderModels, GreedilyTheVotesOfAllAreMerged) {
    ToyModel cheap(fixed_words({{1, 0.4F, 0}, {2, 0.3F, 0}}));
    ToyModel dear(fixed_words({{2, 0.3F, 0}, {3, 0.3F, 0}}));
    TreeBuilder builder({}, Models{&cheap, &dear}, 20);
    const Grown all = grow(builder, {4}, {.budget = 16, .max_depth = 1});
    EXPECT_EQ(children_of_root(all.tree), (ToyText{1, 2, 3}));
    EXPECT_EQ(all.tree.token(TreeNode(1)), 2) << "what both name comes first";
    std::vector<std::uint32_t> named_by(4);
    for (const TreeNode node : all.tree.nodes()) named_by[all.tree.token(node) % 4] = builder.named_by(node);
    EXPECT_EQ(named_by, (std::vector<std::uint32_t>{0, 1, 3, 2})) << "a vote against is none for";
}

TEST(TreeBuilderModels, ACheapModelFillsTheBatchesOfADearOne) {
    // Alone, the dear one learns of a level by being asked about the one above.
    const TreeLimits limits{.budget = 10, .max_depth = 8};  // room is left, so that no node has to go
    ToyModel lonely(counting(0.95F));
    TreeBuilder alone({}, Models{&lonely}, 20);
    EXPECT_EQ(grow(alone, {0}, limits).tree.size(), 9);
    EXPECT_GE(lonely.n_batches, 8);
    ToyModel cheap(counting(0.9F));
    ToyModel dear(counting(0.95F));
    TreeBuilder both({}, Models{&cheap, &dear}, 20);
    EXPECT_EQ(grow(both, {0}, limits).tree.size(), 9);
    EXPECT_GE(dear.n_asked, 6);
    EXPECT_LE(dear.n_batches, 3);
}

TEST(TreeBuilderModels, AModelOfFewNodesIsAskedAboutTheBestOfThem) {
    ToyModel cheap(random_words(3, 12, 0.8, 0.9));
    ToyModel dear(random_words(3, 12, 0.8, 0.9), 3);
    TreeBuilder builder({}, Models{&cheap, &dear}, 20);
    EXPECT_EQ(grow(builder, {4}, {.budget = 32, .max_depth = 6}).tree.size(), 32);
    EXPECT_LE(dear.n_asked, 3);
    EXPECT_GT(cheap.n_asked, 3);
}

TEST(TreeBuilderModels, AModelThatNeverPaysIsTriedEverMoreRarely) {
    ToySource source(fixed_words({{1, 0.5F, 0}}));
    ToyModel paying(fixed_words({{3, 0.5F, 0}}), 64, nullptr, 0.001);
    ToyModel dear(fixed_words({{2, 0.5F, 0}}), 64, nullptr, 5.0);
    for (const Models& models : {Models{&dear}, Models{&paying, &dear}}) {
        TreeBuilder builder({&source}, models, 20);
        const auto tries = [&](int n_trees) {
            const std::int64_t before = dear.n_batches;
            for (int i = 0; i < n_trees; ++i)
                static_cast<void>(grow(builder, {4}, {.budget = 16, .max_depth = 1, .curve = &kCheapNodes}));
            return dear.n_batches - before;
        };
        EXPECT_GE(tries(400), 3);
        EXPECT_LE(tries(4000), 11);
        EXPECT_GE(tries(4000), 10);
        EXPECT_TRUE(models.size() == 1 || paying.n_batches >= 8400);
    }
}

TEST(TreeBuilderModels, AModelWhoseWordNeverComesIsAskedNoMore) {
    // It costs little, so that it is asked at first; then what it brings is known.
    ToySource source(fixed_words({{1, 0.5F, 0}}));
    ToyModel cheap(fixed_words({{3, 0.5F, 0}}), 64, nullptr, 0.05);
    ToyModel wrong(fixed_words({{2, 0.5F, 0}}), 64, nullptr, 0.1);
    TreeBuilder builder({&source}, Models{&cheap, &wrong}, 20);
    const auto batches = [&](int n_trees) {
        const std::int64_t before = wrong.n_batches;
        for (int i = 0; i < n_trees; ++i)
            learn_first(builder, grow(builder, {4}, {.budget = 16, .max_depth = 1, .curve = &kCheapNodes}).tree, 3);
        return wrong.n_batches - before;
    };
    EXPECT_GT(batches(20), 5);
    static_cast<void>(batches(500));
    EXPECT_LE(batches(400), 20);
}

}  // namespace
}  // namespace slipstream::draft
