// Merged trees of random sources on random courses keep to their limits; and what knowing the noise is worth.
#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "draft/tree/tree_builder.h"
#include "tests/draft/grown_tree.h"
#include "tests/draft/toy_sources.h"

namespace slipstream::draft {
namespace {

constexpr TokenId kVocab = 24;

void expect_tree(const TokenTree& tree, const ToyText& text, std::int64_t budget, std::int64_t max_depth,
                 const ToyNamed& named) {
    ASSERT_LE(tree.size(), budget);
    std::set<std::pair<TreeNode, TokenId>> siblings;
    for (const TreeNode node : tree.draft_nodes()) {
        ASSERT_TRUE(tree.has(tree.parent(node)) && tree.parent(node) < node);
        ASSERT_LE(tree.depth(node), max_depth);
        ASSERT_TRUE(siblings.emplace(tree.parent(node), tree.token(node)).second)
            << "node " << node.index << " has a twin";
        ASSERT_TRUE(named.contains(text_behind(text, tree, node))) << "nobody proposed node " << node.index;
    }
}

// A walk of somebody who likes the tree: down to a child more often than not.
struct Walk {
    std::vector<TreeNode> accepted{kTreeRoot};
    std::vector<TokenId> came;

    Walk(const TokenTree& tree, std::mt19937& random) {
        for (;;) {
            std::vector<TreeNode> children;
            for (const TreeNode node : tree.draft_nodes())
                if (tree.parent(node) == accepted.back()) children.push_back(node);
            if (children.empty() || random() % 3 == 0) {
                came.push_back(static_cast<TokenId>(random() % kVocab));
                // The token must not stand there: else the walk would go on.
                if (!tree.child(accepted.back(), came.back())) return;
                accepted.push_back(*tree.child(accepted.back(), came.back()));
            } else {
                accepted.push_back(children[random() % children.size()]);
                came.push_back(tree.token(accepted.back()));
            }
        }
    }
};

TEST(TreeBuilderAtRandom, TreesKeepToTheirLimits) {
    for (std::uint32_t seed = 0; seed < 40; ++seed) {
        SCOPED_TRACE(seed);
        std::mt19937 random(seed);
        ToyNamed named;
        std::vector<std::unique_ptr<ToySource>> owned;
        std::vector<TableSource*> sources;
        for (std::uint32_t i = 0; i < seed % 4; ++i) {
            const double mass = i == 0 ? 0.95 : 0.4;
            owned.push_back(std::make_unique<ToySource>(random_words(seed * 8 + i, kVocab, 0.4, mass, 3),
                                                        static_cast<std::uint16_t>(3), &named, i == 1 ? 3 : 0));
            sources.push_back(owned.back().get());
        }
        const bool with_model = sources.empty() || seed % 2 == 0;
        ToyModel model(random_words(seed * 8 + 7, kVocab, 0.3, 0.9), 1 + seed % 9 * 6, &named,
                       seed % 3 == 0 ? 1e-3 : 0.0);
        ToyModel dear(random_words(seed * 8 + 6, kVocab, 0.3, 0.9), 1 + seed % 7 * 5, &named,
                      seed % 3 == 0 ? 2e-3 : 0.0);
        Models models;
        if (with_model) models.push_back(&model);
        if (seed % 4 == 2) models.push_back(&dear);
        TreeBuilder builder(sources, models, kVocab);
        const PathNoise noise = seed % 5 < 2 ? PathNoise(seed) : PathNoise();
        const PassCurve curve = curve_by(200, [](double n) { return 1.0 + n / 100.0; });
        ToyText text = {1};
        for (int pass = 0; pass < 25; ++pass) {
            const auto budget = static_cast<std::int64_t>(1 + random() % 150);
            const auto max_depth = static_cast<std::int64_t>(random() % 12);
            TokenTree tree;
            tree.reset(text.back());
            named.clear();
            const double expected =
                builder.grow(tree, {.text = text,
                                    .budget = budget,
                                    .max_depth = max_depth,
                                    .noise = &noise,
                                    .curve = random() % 2 == 0 ? &curve : nullptr,
                                    .seconds_per_token = 0.1 * static_cast<double>(1 + random() % 12),
                                    .realised_fraction = 0.1 * static_cast<double>(1 + random() % 20)});
            ASSERT_NO_FATAL_FAILURE(expect_tree(tree, text, budget, max_depth, named));
            ASSERT_TRUE(std::isfinite(expected) && expected >= 1.0);
            if (pass % 7 == 6) continue;  // a pass that was given up
            const Walk walk(tree, random);
            std::vector<float> logits(static_cast<std::size_t>(tree.size() * kVocab));
            for (float& logit : logits) {
                logit = static_cast<float>(random() % 1000) / 100.0F;
                if (random() % 200 == 0) logit = std::numeric_limits<float>::quiet_NaN();
                if (random() % 200 == 0) logit = -std::numeric_limits<float>::infinity();
            }
            builder.learn({.accepted = walk.accepted,
                           .came = walk.came,
                           .logits = matrix_view(std::as_const(logits).data(), tree.size(), kVocab),
                           .temperature = 0.8});
            for (const float number : builder.calibration().state()) ASSERT_TRUE(std::isfinite(number));
            text.insert(text.end(), walk.came.begin(), walk.came.end());
        }
        for (const GuessCounts& counts : builder.counts()) EXPECT_LE(counts.accepted, counts.offered);
        EXPECT_GT(builder.counts().front().offered, 0);
    }
}

TEST(TreeBuilderAtRandom, AStateFromAFileIsNoDanger) {
    // Every estimate is taken for twelve times what it says.
    ToySource source(random_words(1, kVocab, 0.5, 0.9));
    ToyModel model(random_words(2, kVocab, 0.5, 0.9));
    TreeBuilder builder({&source}, Models{&model}, kVocab);
    std::vector<float> state = builder.calibration().state();
    const std::size_t n_bins = 1 + 2;  // of the table; of the model, and what it does not name
    for (std::size_t i = 2 * n_bins; i < 2 * (n_bins + 200); i += 2) state[i] = 3000.0F;
    ASSERT_TRUE(builder.calibration().restore(state));
    const PassCurve curve = curve_by(64, [](double) { return 1.0; });
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
        const PathNoise noise(seed);
        TokenTree tree;
        tree.reset(3);
        const double expected = builder.grow(tree, {.text = ToyText{3},
                                                    .budget = 64,
                                                    .max_depth = 20,
                                                    .noise = &noise,
                                                    .curve = seed % 2 == 0 ? &curve : nullptr,
                                                    .seconds_per_token = 1.0});
        ASSERT_TRUE(std::isfinite(expected));
        ASSERT_LE(tree.size(), 64);
    }
}

// A target over a small vocabulary, its distribution a function of the last token; sampled with known noise.
class ToyTarget {
public:
    explicit ToyTarget(double spread) {
        std::mt19937 random(5);
        std::normal_distribution<double> normal(0.0, spread);
        for (TokenId i = 0; i < kVocab * kVocab; ++i) logits_.push_back(static_cast<float>(normal(random)));
    }
    [[nodiscard]] std::span<const float> row(TokenId last) const {
        return std::span(logits_).subspan(static_cast<std::size_t>(last * kVocab), kVocab);
    }
    /// Tells it all, with an error in the logits.
    [[nodiscard]] ToyWords words(double error) const {
        return [this, error](std::span<const TokenId> text) {
            std::mt19937 random(static_cast<std::uint32_t>(text.back()));
            std::normal_distribution<double> normal(0.0, 1.0);
            std::vector<Proposal> words;
            double sum = 0.0;
            for (TokenId id = 0; id < kVocab; ++id) {
                const double weight = std::exp(row(text.back())[id] + error * normal(random));
                sum += weight;
                words.push_back({.token = id, .probability = static_cast<float>(weight), .bin = 0});
            }
            for (Proposal& word : words) word.probability /= static_cast<float>(sum);
            return words;
        };
    }
    [[nodiscard]] TokenId sample(TokenId last, std::int64_t position, const PathNoise& noise) const {
        TokenId best = 0;
        const auto value = [&](TokenId id) { return row(last)[id] + noise.gumbel(position, id); };
        for (TokenId id = 1; id < kVocab; ++id)
            if (value(id) > value(best)) best = id;
        return best;
    }

private:
    std::vector<float> logits_;
};

/// Tokens a pass; `seen`: the noise as the builder knows it.
double tokens_a_pass(const ToyTarget& target, TreeBuilder& builder, const PathNoise& seen, std::int64_t budget) {
    const PathNoise noise(99);
    ToyText text = {0};
    constexpr int n_passes = 400;
    for (int pass = 0; pass < n_passes; ++pass) {
        TokenTree tree;
        tree.reset(text.back());
        builder.grow(tree, {.text = text, .budget = budget, .max_depth = 16, .noise = &seen});
        std::vector<float> logits;
        for (const TreeNode node : tree.nodes())
            logits.insert(logits.end(), target.row(tree.token(node)).begin(), target.row(tree.token(node)).end());
        std::vector<TreeNode> accepted = {kTreeRoot};
        std::vector<TokenId> came;
        for (;;) {
            came.push_back(target.sample(tree.token(accepted.back()), std::ssize(text), noise));
            text.push_back(came.back());
            const auto child = tree.child(accepted.back(), came.back());
            if (!child) break;
            accepted.push_back(*child);
        }
        builder.learn({.accepted = accepted,
                       .came = came,
                       .logits = matrix_view(std::as_const(logits).data(), tree.size(), kVocab),
                       .temperature = 1.0});
    }
    return static_cast<double>(text.size() - 1) / n_passes;
}

TEST(TreeBuilderAtRandom, KnowingTheNoiseBeatsBlindRankingByFar) {
    const ToyTarget target(1.5);
    const PathNoise noise(99);
    const struct {
        double error, least_gain_of_table, least_gain_of_model;
    } cases[] = {{0.0, 1.6, 2.6}, {0.4, 1.5, 2.1}};
    for (const auto& [error, least_gain_of_table, least_gain_of_model] : cases) {
        const auto gain = [&](bool by_model, std::int64_t budget) {
            ToySource source(target.words(error));
            ToyModel model(target.words(error));
            std::vector<TableSource*> sources;
            if (!by_model) sources.push_back(&source);
            const Models models = by_model ? Models{&model} : Models{};
            TreeBuilder aware(sources, models, kVocab);
            TreeBuilder blind(sources, models, kVocab);
            const double with = tokens_a_pass(target, aware, noise, budget);
            const double without = tokens_a_pass(target, blind, {}, budget);
            return with / without;
        };
        for (const std::int64_t budget : {8, 32}) {
            EXPECT_GT(gain(false, budget), least_gain_of_table);
            EXPECT_GT(gain(true, budget), least_gain_of_model);
        }
    }
}

// The noise of all tokens is known, of those that a model does not name as well: they lost. So a child that is likely
// by its noise alone is not doubted for their sake.
TEST(TreeBuilderAtRandom, UnlikelyTokensThatTheNoiseLiftsComeAsOftenAsIsSaid) {
    const ToyTarget target(0.5);  // flat: what wins, wins by its noise
    const PathNoise noise(99);
    ToyModel model(target.words(0.8));
    TreeBuilder builder({}, Models{&model}, kVocab);
    double expected = 0.0;
    double came = 0.0;
    constexpr int n_passes = 300;
    ToyText text = {0};
    for (int pass = 0; pass < n_passes; ++pass) {
        TokenTree tree;
        tree.reset(text.back());
        expected += builder.grow(tree, {.text = text, .budget = 2, .max_depth = 1, .noise = &noise}) - 1.0;
        text.push_back(target.sample(text.back(), std::ssize(text), noise));
        came += tree.child(kTreeRoot, text.back()) ? 1.0 : 0.0;
    }
    EXPECT_GT(came / n_passes, 0.4);
    EXPECT_NEAR(expected / n_passes, came / n_passes, 0.15) << "nothing was learnt meanwhile";
}

}  // namespace
}  // namespace slipstream::draft
