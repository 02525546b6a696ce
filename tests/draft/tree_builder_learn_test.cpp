// What a merged tree's walk teaches, whom it credits, and how far each crew would have come.
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
    TreeBuilder builder({&first, &second}, &model, 20);
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
    TreeBuilder tables({&first, &second}, nullptr, 20);
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
        TreeBuilder builder(sources, model_lies ? &lying_model : nullptr, 20);
        const auto tree = [&] { return grow(builder, {4}, {.budget = 3, .max_depth = 1}).tree; };
        ASSERT_EQ(tree().token(1), 2);  // the best comes first
        for (int i = 0; i < 150; ++i) learn_first(builder, tree(), i % 3 == 0 ? 7 : 1);
        EXPECT_EQ(tree().token(1), 1) << model_lies;
        EXPECT_LT(builder.calibration().corrected_log_odds(1, 0, 0.9F), -1.5F);
        EXPECT_GT(builder.calibration().corrected_log_odds(0, 0, 0.4F), 0.0F);
        builder.reset();
        EXPECT_EQ(tree().token(1), 2);
    }
}

TEST(TreeBuilder, LightTablesAreCreditedWithTheirOwnWordsAlone) {
    ToySource heavy(fixed_words({{1, 0.5F, 0}, {2, 0.3F, 0}}));
    ToySource light(fixed_words({{2, 0.3F, 0}}));
    TreeBuilder none({&heavy}, nullptr, 20);
    const auto shares_at = [](TreeBuilder& builder, TokenId came) {
        PassTimes times(16);
        times.add(1, 1.0);
        times.add(16, 1.5);
        return learn_first(builder, grow(builder, {4}, {.budget = 16, .max_depth = 1, .times = &times}).tree, came);
    };
    EXPECT_EQ(shares_at(none, 2).by_light, 0.0) << "there are none";
    light.make_light();
    TreeBuilder builder({&heavy, &light}, nullptr, 20);
    const WalkShares heavy_one = shares_at(builder, 1);
    EXPECT_EQ(heavy_one.by_tables, 2.0);
    EXPECT_EQ(heavy_one.by_light, 1.0);
    builder.reset();
    const WalkShares both = shares_at(builder, 2);
    EXPECT_EQ(both.by_light, 2.0);
    EXPECT_EQ(both.by_quick, 0.0) << "there is no model";
}

TEST(TreeBuilder, ACrewIsNotHeldToTheSurestChain) {
    // Both tables know a chain by heart, the heavy one more surely, and a step in time ends the tree behind it: what
    // the light one says scores less than the last node of the tree, but more than a node has to.
    const auto counting = [](float probability) {
        return [probability](std::span<const TokenId> text) {
            return std::vector<Proposal>{{text.back() + 1, probability, 0}};
        };
    };
    ToySource heavy(counting(0.98F));
    ToySource light(counting(0.9F));
    light.make_light();
    PassTimes times(16);
    times.add(1, 1.0);
    times.add(4, 1.3);
    times.add(8, 10.0);
    TreeBuilder builder({&heavy, &light}, nullptr, 20);
    const Grown grown = grow(builder, {4}, {.budget = 16, .max_depth = 10, .times = &times});
    ASSERT_EQ(grown.tree.size(), 4);
    const std::vector<std::int32_t> accepted{0, 1, 2, 3};
    const ToyText came{5, 6, 7, 8};
    EXPECT_EQ(builder.learn({.accepted = accepted, .came = came}).by_light, 4.0);
}

TEST(TreeBuilder, TellsHowFarEachCrewWouldHaveCome) {
    ToySource source(fixed_words({{1, 0.5F, 0}, {3, 0.3F, 0}}));
    ToyModel model(fixed_words({{2, 0.5F, 0}, {3, 0.3F, 0}}));
    TreeBuilder builder({&source}, &model, 20);
    struct Case {
        TokenId came;
        double tokens, by_tables, by_quick;
    };
    for (const Case& at : {Case{1, 2, 2, 1}, Case{2, 2, 1, 2}, Case{3, 2, 2, 2}, Case{9, 1, 1, 1}}) {
        const WalkShares shares =
            learn_first(builder, grow(builder, {4}, {.budget = 16, .max_depth = 1}).tree, at.came);
        EXPECT_EQ(shares.tokens, at.tokens) << at.came;
        EXPECT_EQ(shares.by_tables, at.by_tables) << at.came;
        EXPECT_EQ(shares.by_quick, at.by_quick) << at.came;
        builder.reset();
    }
}

TEST(TreeBuilder, AModelThatWasNotAskedMightHaveComeAsFar) {
    ToySource source(fixed_words({{1, 0.99F, 0}}));
    ToyModel model(fixed_words({{1, 0.5F, 0}}), 64, nullptr, 0.25);
    PassTimes times(16);
    times.add(1, 1.0);
    times.add(16, 1.5);
    TreeBuilder builder({&source}, &model, 20);
    const Grown grown = grow(builder, {4}, {.budget = 16, .max_depth = 1, .times = &times});
    ASSERT_EQ(model.n_batches, 0);
    const WalkShares shares = learn_first(builder, grown.tree, 1);
    EXPECT_EQ(shares.by_tables, 2.0);
    EXPECT_GT(shares.by_quick, 1.3);
    EXPECT_LT(shares.by_quick, 2.0);
    EXPECT_EQ(shares.model_seconds, 0.25);
}

TEST(TreeBuilder, ShortPassesLearnFromTheTargetsWordMoreRarelyWithTime) {
    // Whether it learns from the target's probabilities of the n-th tree.
    const auto is_taught_by = [](std::int64_t n, double pass_seconds) {
        PassTimes times(64);
        times.add(1, pass_seconds);
        times.add(64, pass_seconds);
        const PathNoise noise(5);
        const auto learnt = [&](bool with_target) {
            ToySource source(fixed_words({{1, 0.5F, 0}, {2, 0.3F, 0}}));
            TreeBuilder builder({&source}, nullptr, 20);
            std::vector<float> logits;
            for (std::int64_t i = 0; i <= n; ++i) {
                const Grown grown = grow(builder, {4}, {.budget = 8, .max_depth = 1, .noise = &noise, .times = &times});
                const std::int32_t accepted[] = {0};
                const TokenId came[] = {3};
                logits.assign(static_cast<std::size_t>(grown.tree.size() * 20), 0.0F);
                BuildOutcome outcome{.accepted = accepted, .came = came, .temperature = 1.0};
                if (i == n && with_target)
                    outcome.logits = matrix_view(std::as_const(logits).data(), grown.tree.size(), 20);
                builder.learn(outcome);
            }
            return builder.calibration().state();
        };
        return learnt(true) != learnt(false);
    };
    for (const std::int64_t n : {0, 3, 15, 16, 24}) EXPECT_TRUE(is_taught_by(n, 1e-4)) << "tree " << n;
    for (const std::int64_t n : {17, 20, 23, 25}) {
        EXPECT_FALSE(is_taught_by(n, 1e-4)) << "tree " << n;
        EXPECT_TRUE(is_taught_by(n, 1e-2)) << "tree " << n << ", long passes";
    }
}

TEST(TreeBuilder, ExpandedPathNamesTheNodesThatAModelWasAskedAbout) {
    ToyModel model(random_words(5, 8, 0.7, 0.9));
    TreeBuilder builder({}, &model, 20);
    const ToyText text = {4};
    Grown grown = grow(builder, text, {.budget = 20, .max_depth = 6});
    for (std::int32_t leaf = 0; leaf < grown.tree.size(); ++leaf) {
        std::vector<std::int32_t> path;
        for (std::int32_t node = leaf; node >= 0; node = grown.tree.parent(node)) path.insert(path.begin(), node);
        const auto expanded = builder.expanded_path(path);
        ASSERT_EQ(expanded.size(), path.size());
        for (std::size_t i = 0; i < path.size(); ++i)
            EXPECT_EQ(text_behind(text, builder.expanded_tree(), expanded[i]), text_behind(text, grown.tree, path[i]));
    }
    // Nodes that others hang under the finished tree are not known.
    const std::int32_t foreign = grown.tree.add(grown.tree.size() - 1, 19);
    const std::vector<std::int32_t> path = {0, foreign};
    EXPECT_EQ(builder.expanded_path(path).size(), 1U);
    builder.learn({.accepted = path, .came = ToyText{19, 3}});
}

}  // namespace
}  // namespace slipstream::draft
