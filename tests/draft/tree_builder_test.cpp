// The merged tree: the best paths of sources whose probabilities are known, limits, costs, and who is asked.
#include "draft/tree/tree_builder.h"

#include <algorithm>
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

double path_probability(const ToyWords& words, const ToyText& text, const TokenTree& tree, std::int32_t node) {
    if (node == 0) return 1.0;
    for (const Proposal& word : words(text_behind(text, tree, tree.parent(node))))
        if (word.token == tree.token(node))
            return static_cast<double>(word.probability) * path_probability(words, text, tree, tree.parent(node));
    ADD_FAILURE() << "node " << node << " was never proposed";
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
            TreeBuilder builder({&source}, nullptr, 20);
            for (int repeat = 0; repeat < 20; ++repeat) {
                const Grown grown = grow(builder, text, {.budget = budget, .max_depth = depth});
                ASSERT_EQ(grown.tree.size(), budget);
                double sum = 0.0;
                for (std::int32_t node = 1; node < grown.tree.size(); ++node) {
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
        TreeBuilder builder({}, &model, 20);
        const Grown grown = grow(builder, text, {.budget = budget, .max_depth = 5});
        ASSERT_EQ(grown.tree.size(), budget);
        double sum = 0.0;
        for (std::int32_t node = 1; node < grown.tree.size(); ++node)
            sum += path_probability(words, text, grown.tree, node);
        EXPECT_GT(sum, 0.95 * AllPaths(words, text, 5).best_sum(budget - 1)) << seed;
        EXPECT_LE(model.n_batches, 8);
    }
}

TEST(TreeBuilder, WithoutRoomOrDepthNothingGrows) {
    ToySource source(fixed_words({{1, 0.5F, 0}, {2, 0.4F, 0}}));
    ToyModel model(fixed_words({{1, 0.5F, 0}}));
    TreeBuilder builder({&source}, &model, 20);
    for (const auto& [budget, max_depth] : {std::pair{1, 8}, std::pair{8, 0}, std::pair{1, 0}}) {
        const Grown grown = grow(builder, {4}, {.budget = budget, .max_depth = max_depth});
        EXPECT_EQ(grown.tree.size(), 1);
        EXPECT_EQ(grown.expected, 1.0);
        learn_first(builder, grown.tree, 1);
    }
    EXPECT_EQ(model.n_batches, 0);
    ToySource silent(fixed_words({}));
    TreeBuilder without_words({&silent}, nullptr, 20);
    EXPECT_EQ(grow(without_words, {4}, {}).tree.size(), 1);
}

TEST(TreeBuilder, SourcesThatAgreeStandBeforeThoseThatDoNot) {
    ToySource first(fixed_words({{1, 0.3F, 0}, {2, 0.25F, 0}}));
    ToySource second(fixed_words({{3, 0.3F, 0}, {2, 0.25F, 0}}));
    TreeBuilder builder({&first, &second}, nullptr, 20);
    EXPECT_EQ(children_of_root(grow(builder, {4}, {.budget = 2}).tree), ToyText{2});
    EXPECT_EQ(children_of_root(grow(builder, {4}, {.budget = 9, .max_depth = 1}).tree), (ToyText{1, 2, 3}));
}

TEST(TreeBuilder, TheTreeIsAsLargeAsPays) {
    ToySource source(random_words(3, 12, 0.9, 0.9));
    TreeBuilder builder({&source}, nullptr, 20);
    const auto size_at = [&](const PassTimes& times) {
        return grow(builder, {4}, {.budget = times.max_nodes(), .times = &times}).tree.size();
    };
    PassTimes nodes_cost_nothing(64);
    nodes_cost_nothing.add(1, 1.0);
    nodes_cost_nothing.add(64, 1.0);
    EXPECT_EQ(size_at(nodes_cost_nothing), 64);
    PassTimes a_node_costs_a_pass(64);
    a_node_costs_a_pass.add(1, 1.0);
    a_node_costs_a_pass.add(64, 64.0);
    EXPECT_EQ(size_at(a_node_costs_a_pass), 1);
    PassTimes step_behind_eight(64);
    for (const std::int64_t size : step_behind_eight.sizes()) step_behind_eight.add(size, size <= 8 ? 1.0 : 10.0);
    const std::int32_t size = size_at(step_behind_eight);
    EXPECT_LE(size, 8);
    EXPECT_GE(size, 7);
}

TEST(TreeBuilder, WhereATokenIsDearMoreNodesPay) {
    // A pass of n nodes takes 1 + n / 20; the best child scores about 0.3.
    ToySource source(random_words(3, 12, 0.9, 0.9));
    PassTimes times(64);
    for (const std::int64_t size : times.sizes()) times.add(size, 1.0 + static_cast<double>(size) / 20.0);
    const auto grown_at = [&](double seconds_a_token) {
        TreeBuilder builder({&source}, nullptr, 20);
        return grow(builder, {4}, {.budget = 64, .times = &times, .seconds_a_token = seconds_a_token});
    };
    const Grown cheap = grown_at(0.1);
    const Grown usual = grown_at(0.3);
    const Grown dear = grown_at(1.05);
    EXPECT_EQ(grown_at(3.0).tree.size(), dear.tree.size()) << "a plain pass gives a token for 1.05";
    EXPECT_EQ(cheap.tree.size(), 1);
    EXPECT_GT(usual.tree.size(), cheap.tree.size());
    EXPECT_GT(dear.tree.size(), usual.tree.size());
    // Taken is what is worth its time: a node of so many more tokens.
    EXPECT_GE(dear.expected - usual.expected, (dear.tree.size() - usual.tree.size()) / 20.0 / 1.05);
}

TEST(TreeBuilder, AStepInTimeIsCrossedWhereManyNodesPayForIt) {
    // The second node takes more than its own 0.12 tokens are worth; the next ones are free.
    ToySource source(fixed_words({{1, 0.12F, 0}, {2, 0.12F, 0}, {3, 0.12F, 0}, {4, 0.12F, 0}, {5, 0.12F, 0}}));
    PassTimes times(16);
    times.add(1, 1.0);
    times.add(2, 1.15);
    times.add(16, 1.15);
    TreeBuilder builder({&source}, nullptr, 20);
    EXPECT_EQ(grow(builder, {4}, {.budget = 16, .max_depth = 1, .times = &times}).tree.size(), 6);
}

TEST(TreeBuilder, WhereANodeMoreIsCheapAModelTakesNobodysPlace) {
    ToySource source(fixed_words({{1, 0.6F, 0}}));
    ToyModel model(fixed_words({{2, 0.9F, 0}}), 64, nullptr, 1e-6);
    PassTimes times(16);
    times.add(1, 1.0);
    times.add(16, 1.001);
    TreeBuilder builder({&source}, &model, 20);
    EXPECT_TRUE(grow(builder, {4}, {.budget = 16, .max_depth = 1, .times = &times}).tree.child(0, 2).has_value());
}

TEST(TreeBuilder, AModelThatCostsMoreThanItBringsIsNotAsked) {
    ToySource source(fixed_words({{1, 0.5F, 0}}));
    ToyModel dear(fixed_words({{2, 0.5F, 0}}), 64, nullptr, 5.0);
    ToyModel cheap(fixed_words({{2, 0.5F, 0}}), 64, nullptr, 0.001);
    PassTimes times(16);
    times.add(1, 1.0);
    times.add(16, 1.1);
    TreeBuilder with_dear({&source}, &dear, 20);
    TreeBuilder with_cheap({&source}, &cheap, 20);
    EXPECT_FALSE(grow(with_dear, {4}, {.budget = 16, .times = &times}).tree.child(0, 2).has_value());
    EXPECT_EQ(dear.n_batches, 0);
    EXPECT_TRUE(grow(with_cheap, {4}, {.budget = 16, .times = &times}).tree.child(0, 2).has_value());
}

TEST(TreeBuilder, AModelMayTakeThePlaceOfATablesWeakNode) {
    // One node rides along at little cost, a second costs as much as a pass.
    ToySource source(fixed_words({{1, 0.3F, 0}}));
    ToyModel model(fixed_words({{2, 0.9F, 0}}), 64, nullptr, 0.05);
    PassTimes times(16);
    for (const std::int64_t size : times.sizes()) times.add(size, size <= 2 ? 1.0 : 2.0);
    TreeBuilder builder({&source}, &model, 20);
    const Grown grown = grow(builder, {4}, {.budget = 16, .max_depth = 1, .times = &times});
    EXPECT_EQ(children_of_root(grown.tree), ToyText{2});
}

TEST(TreeBuilder, ASureWordStaysSureAmongManyDoubtfulOnes) {
    ToySource sure(fixed_words({{1, 0.95F, 0}}));
    std::vector<Proposal> doubtful;
    for (TokenId token = 2; token < 14; ++token) doubtful.push_back({token, 0.05F, 0});
    ToySource doubting(fixed_words(doubtful));
    TreeBuilder builder({&sure, &doubting}, nullptr, 20);
    const Grown best = grow(builder, {4}, {.budget = 2, .max_depth = 1});
    EXPECT_EQ(best.tree.token(1), 1);
    EXPECT_NEAR(best.expected, 1.95, 0.01);
    // All of them are no more than certain.
    EXPECT_LE(grow(builder, {4}, {.budget = 32, .max_depth = 1}).expected, 1.99 + 1e-6);
}

TEST(TreeBuilder, SourcesThatDisagreeAreNotAllRight) {
    std::vector<ToySource> each;
    for (TokenId token = 1; token <= 4; ++token) each.emplace_back(fixed_words({{token, 0.9F, 0}}));
    TreeBuilder builder({&each[0], &each[1], &each[2], &each[3]}, nullptr, 20);
    const Grown grown = grow(builder, {9}, {.budget = 32, .max_depth = 1});
    EXPECT_EQ(grown.tree.size(), 5);
    EXPECT_LE(grown.expected, 1.99 + 1e-6);
}

TEST(TreeBuilder, UnderNoiseTablesNameNothingThatAModelDoesNot) {
    ToySource source(fixed_words({{1, 0.5F, 0}, {2, 0.3F, 0}}));
    ToyModel model(fixed_words({{2, 0.6F, 0}, {3, 0.3F, 0}}));
    TreeBuilder builder({&source}, &model, 20);
    const PathNoise noise(5);
    const Grown grown = grow(builder, {4}, {.budget = 16, .max_depth = 1, .noise = &noise});
    EXPECT_EQ(children_of_root(grown.tree), (ToyText{2, 3}));
    builder.reset();
    EXPECT_EQ(children_of_root(grow(builder, {4}, {.budget = 16, .max_depth = 1}).tree), (ToyText{1, 2, 3}));
}

TEST(TreeBuilder, EachCrewIsAskedAlone) {
    ToySource source(fixed_words({{1, 0.5F, 0}, {3, 0.4F, 0}}));
    ToyModel model(fixed_words({{2, 0.5F, 0}, {3, 0.4F, 0}}));
    TreeBuilder builder({&source}, &model, 20);
    const auto children = [&](Crew crew) {
        return children_of_root(grow(builder, {4}, {.budget = 16, .max_depth = 1, .crew = crew}).tree);
    };
    EXPECT_EQ(children(Crew::Tables), (ToyText{1, 3}));
    EXPECT_EQ(model.n_batches, 0);
    EXPECT_EQ(children(Crew::Quick), (ToyText{2, 3}));
    builder.reset();
    EXPECT_EQ(children(Crew::Everyone), (ToyText{1, 2, 3}));
}

TEST(TreeBuilder, LightTablesGoWithTheModelOrAlone) {
    ToySource heavy(fixed_words({{1, 0.2F, 0}}));
    ToySource light(fixed_words({{2, 0.2F, 0}}));
    ToySource of_model(fixed_words({{3, 0.2F, 0}}));
    light.make_light();
    of_model.make_light(true);
    ToyModel model(fixed_words({{4, 0.5F, 0}}));
    TreeBuilder builder({&heavy, &light, &of_model}, &model, 20);
    const PathNoise noise(5);
    const auto children = [&](Crew crew, const PathNoise* with = nullptr) {
        builder.reset();
        TreeLimits limits{.budget = 16, .max_depth = 1, .crew = crew};
        if (with != nullptr) limits.noise = with;
        return children_of_root(grow(builder, {4}, limits).tree);
    };
    EXPECT_EQ(children(Crew::Light), (ToyText{2, 3}));
    EXPECT_EQ(model.n_batches, 0);
    EXPECT_EQ(children(Crew::Light, &noise), (ToyText{2, 3}));
    EXPECT_EQ(children(Crew::Quick), (ToyText{2, 3, 4}));
    EXPECT_EQ(children(Crew::Tables), (ToyText{1, 2, 3}));
    EXPECT_EQ(children(Crew::Quick, &noise), (ToyText{4})) << "under noise a model's word stands alone";
    for (const auto& input : builder.words_for(1)) EXPECT_NE(input.source, 2) << "what is of the model is not asked";
    EXPECT_EQ(children(Crew::Everyone), (ToyText{1, 2, 3, 4}));
}

TEST(TreeBuilder, AModelThatNeverPaysIsTriedEverMoreRarely) {
    ToySource source(fixed_words({{1, 0.5F, 0}}));
    ToyModel dear(fixed_words({{2, 0.5F, 0}}), 64, nullptr, 5.0);
    PassTimes times(16);
    times.add(1, 1.0);
    times.add(16, 1.1);
    TreeBuilder builder({&source}, &dear, 20);
    const auto tries = [&](int n_trees) {
        const std::int64_t before = dear.n_batches;
        for (int i = 0; i < n_trees; ++i)
            static_cast<void>(grow(builder, {4}, {.budget = 16, .max_depth = 1, .times = &times}));
        return dear.n_batches - before;
    };
    EXPECT_GE(tries(400), 3);
    EXPECT_LE(tries(4000), 11);
    EXPECT_GE(tries(4000), 10);
}

TEST(TreeBuilder, ShortPassesAskAboutFewerNodes) {
    const auto n_named = [](double pass_seconds) {
        ToyNamed named;
        ToySource source(random_words(3, 12, 0.9, 0.9), 1, &named);
        TreeBuilder builder({&source}, nullptr, 20);
        PassTimes times(64);
        times.add(1, pass_seconds);
        times.add(64, pass_seconds);
        for (int i = 0; i < 20; ++i) static_cast<void>(grow(builder, {4}, {.budget = 64, .times = &times}));
        named.clear();
        const Grown grown = grow(builder, {4}, {.budget = 64, .times = &times});
        EXPECT_EQ(grown.tree.size(), 64);
        return named.size();
    };
    EXPECT_LT(n_named(1e-3), n_named(1e-2));
}

}  // namespace
}  // namespace slipstream::draft
