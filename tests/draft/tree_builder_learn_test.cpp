// What a merged tree's walk teaches, whom it credits, and which of its nodes models know.
#include "draft/tree/tree_builder.h"

#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/draft/grown_tree.h"
#include "tests/draft/toy_sources.h"

namespace slipstream::draft {
namespace {

TEST(TreeBuilder, AMergedNodeCountsForAllThatNamedIt) {
    ToySource first(fixed_words({{1, 0.3F, 0}, {2, 0.25F, 0}}));
    ToySource second(fixed_words({{3, 0.3F, 0}, {2, 0.25F, 0}}));
    ToyModel model(fixed_words({{2, 0.5F, 0}, {5, 0.2F, 0}}));
    TreeBuilder builder({&first, &second}, Models{&model}, 20);
    const Grown grown = grow(builder, {4}, {.budget = 5, .max_depth = 1});
    ASSERT_EQ(children_of_root(grown.tree), (ToyText{1, 2, 3, 5}));
    learn_first(builder, grown.tree, 2);
    const auto counts = builder.counts();
    ASSERT_EQ(counts.size(), 3U);
    for (const GuessCounts& of_source : counts) {
        EXPECT_EQ(of_source.offered, 2);
        EXPECT_EQ(of_source.accepted, 1);
    }
    // What is not in the tree is not offered.
    TreeBuilder tables({&first, &second}, {}, 20);
    learn_first(tables, grow(tables, {4}, {.budget = 2, .max_depth = 1}).tree, 9);
    for (const GuessCounts& of_source : tables.counts()) {
        EXPECT_EQ(of_source.offered, 1);
        EXPECT_EQ(of_source.accepted, 0);
    }
}

TEST(TreeBuilder, ASourceThatLiesLosesItsPlaceToOneThatIsRight) {
    for (const bool model_lies : {false, true}) {
        ToySource right(fixed_words({{1, 0.2F, 0}}));
        ToySource lying_source(fixed_words({{2, 0.9F, 0}}));
        ToyModel lying_model(fixed_words({{2, 0.9F, 0}}));
        std::vector<TableSource*> sources{&right};
        if (!model_lies) sources.push_back(&lying_source);
        TreeBuilder builder(sources, model_lies ? Models{&lying_model} : Models{}, 20);
        const auto tree = [&] { return grow(builder, {4}, {.budget = 3, .max_depth = 1}).tree; };
        ASSERT_EQ(tree().token(TreeNode(1)), 2);  // the best comes first
        for (int i = 0; i < 150; ++i) learn_first(builder, tree(), i % 3 == 0 ? 7 : 1);
        EXPECT_EQ(tree().token(TreeNode(1)), 1) << model_lies;
        // A model's bins are one higher: its first is that of votes against.
        EXPECT_LT(builder.calibration().corrected_log_odds(1, model_lies ? 1 : 0, 0.9F), -1.5F);
        EXPECT_GT(builder.calibration().corrected_log_odds(0, 0, 0.4F), 0.0F);
        builder.reset();
        EXPECT_EQ(tree().token(TreeNode(1)), 2);
    }
}

TEST(TreeBuilder, UnderNoiseEveryTreeLearnsFromTheTargetsWord) {
    const PathNoise noise(5);
    const PassCurve curve = curve_by(64, [](double) { return 1e-4; });
    const auto learnt = [&](std::int64_t n, bool with_target) {
        ToySource source(fixed_words({{1, 0.5F, 0}, {2, 0.3F, 0}}));
        TreeBuilder builder({&source}, {}, 20);
        std::vector<float> logits;
        for (std::int64_t i = 0; i <= n; ++i) {
            const Grown grown = grow(builder, {4}, {.budget = 8, .max_depth = 1, .noise = &noise, .curve = &curve});
            const TreeNode accepted[] = {kTreeRoot};
            const TokenId came[] = {3};
            logits.assign(static_cast<std::size_t>(grown.tree.size() * 20), 0.0F);
            BuildOutcome outcome{.accepted = accepted, .came = came, .temperature = 1.0};
            if (i == n && with_target)
                outcome.logits = matrix_view(std::as_const(logits).data(), grown.tree.size(), 20);
            builder.learn(outcome);
        }
        return builder.calibration().state();
    };
    for (const std::int64_t n : {0, 3, 16, 17, 25}) EXPECT_NE(learnt(n, true), learnt(n, false)) << "tree " << n;
}

TEST(TreeBuilder, NodesThatOthersHangUnderItTeachNothing) {
    ToyModel model(random_words(5, 8, 0.7, 0.9));
    TreeBuilder builder({}, Models{&model}, 20);
    Grown grown = grow(builder, {4}, {.budget = 20, .max_depth = 6});
    const TreeNode foreign = grown.tree.add(kTreeRoot, 19);
    const std::vector<float> before = builder.calibration().state();
    builder.learn({.accepted = std::vector{foreign}, .came = ToyText{3}});
    EXPECT_EQ(builder.calibration().state(), before);
    builder.learn({.accepted = std::vector{kTreeRoot, foreign}, .came = ToyText{19, 3}});
    EXPECT_NE(builder.calibration().state(), before);
}

}  // namespace
}  // namespace slipstream::draft
