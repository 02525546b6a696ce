// Trees drawn from a draft model: their shapes and limits, and that rejection over them keeps the target's
// distribution.
#include "draft/papers/drawn_shape.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "tests/draft/toy_models.h"

namespace slipstream::draft {
namespace {

// One distribution behind every node; sees to it that nodes are expanded as a batch source may be asked.
class UniformBatch final : public ModelSource {
public:
    explicit UniformBatch(std::int64_t vocab, std::int64_t max_nodes = 64) : max_nodes_(max_nodes) {
        for (TokenId id = 0; id < vocab; ++id) q_.push_back({id, 0.0F, 1.0 / static_cast<double>(vocab)});
    }
    std::string_view name() const override { return "uniform"; }
    std::uint16_t n_bins() const override { return 1; }
    std::int64_t max_nodes() const override { return max_nodes_; }
    void observe(const Observation&) override {}
    void expand(const TokenTree& tree, std::span<const TokenId>, std::span<const TreeNode> nodes) override {
        ASSERT_FALSE(nodes.empty());
        ASSERT_TRUE(!expanded.empty() || nodes.front() == kTreeRoot);
        for (const TreeNode node : nodes) {
            ASSERT_TRUE(tree.has(node));
            ASSERT_EQ(std::ranges::count(expanded, node), 0);
            ASSERT_TRUE(node == kTreeRoot || std::ranges::count(expanded, tree.parent(node)) == 1);
            expanded.push_back(node);
        }
        ASSERT_LE(std::ssize(expanded), max_nodes_);
    }
    std::size_t propose(TreeNode, std::int64_t, const PathNoise&, std::span<Proposal>) override { return 0; }
    std::span<const Candidate> distribution(TreeNode node) override {
        EXPECT_EQ(std::ranges::count(expanded, node), 1);
        return q_;
    }
    double expand_seconds(std::int64_t) const override { return 0.0; }
    std::vector<TreeNode> expanded;

private:
    std::vector<Candidate> q_;
    std::int64_t max_nodes_;
};

struct Drawn {
    TokenTree tree;
    DrawnTree record{3};
};

Drawn draw(UniformBatch& source, const DrawnShapeOptions& options, std::int64_t budget, std::int64_t max_depth) {
    const std::vector<TokenId> text = {1, 2, 3};
    Drawn drawn;
    drawn.tree.reset(text.back());
    drawn.record.reset(std::ssize(text), budget);
    propose_drawn(drawn.tree, {.text = text, .budget = budget, .max_depth = max_depth}, options, source, drawn.record);
    return drawn;
}

TEST(DrawnShape, AChainIsGammaLongWithinItsLimits) {
    const struct {
        std::int64_t gamma, budget, max_depth, max_nodes, expected;
    } cases[] = {{5, 64, 64, 64, 6}, {5, 4, 64, 64, 4}, {5, 64, 3, 64, 4},
                 {5, 64, 64, 2, 3},  {5, 64, 0, 64, 1}, {5, 1, 9, 64, 1}};
    for (const auto& [gamma, budget, max_depth, max_nodes, expected] : cases) {
        UniformBatch source(9, max_nodes);
        const Drawn drawn = draw(source, {.shape = DrawnShape::Chain, .gamma = gamma}, budget, max_depth);
        EXPECT_EQ(drawn.tree.size(), expected);
        for (const TreeNode node : drawn.tree.draft_nodes())
            EXPECT_EQ(drawn.tree.parent(node), TreeNode(node.index - 1));
        for (TreeNode node = kTreeRoot; node.index + 1 < drawn.tree.size(); ++node.index)
            EXPECT_EQ(drawn.record.drawn(node).draws.size(), 1U);
    }
}

TEST(DrawnShape, ATreeIsWideAtItsRoot) {
    UniformBatch source(50);
    const Drawn drawn = draw(source, {.shape = DrawnShape::Tree}, 512, 64);
    // 4 children, 2 of each, 2 of each, then one of each three times.
    EXPECT_EQ(drawn.tree.size(), 1 + 4 + 8 + 16 + 3 * 16);
    constexpr std::size_t children[] = {4, 2, 2, 1, 1, 1, 0};
    for (const TreeNode node : drawn.tree.nodes()) {
        const auto wanted = children[drawn.tree.depth(node)];
        EXPECT_EQ(std::ranges::count(drawn.tree.parents(), node), static_cast<std::ptrdiff_t>(wanted));
        EXPECT_EQ(drawn.record.drawn(node).draws.size(), wanted);
    }
}

TEST(DrawnShape, ABudgetCutsTheTreeButNotTheRecord) {
    for (const std::int64_t budget : {2, 3, 7, 20, 60}) {
        UniformBatch source(50, 12);
        const Drawn drawn = draw(source, {.shape = DrawnShape::Tree}, budget, 5);
        EXPECT_LE(drawn.tree.size(), budget);
        EXPECT_LE(source.expanded.size(), 12U);
        EXPECT_EQ(drawn.record.drawn(kTreeRoot).draws.size(), 4U);
        for (const TreeNode node : drawn.tree.draft_nodes()) {
            EXPECT_LE(drawn.tree.depth(node), 5);
            const auto draws = drawn.record.drawn(drawn.tree.parent(node)).draws;
            EXPECT_EQ(std::ranges::count(draws, drawn.tree.token(node)), 1);
        }
    }
}

TEST(DrawnShape, AVocabularySmallerThanTheTreeIsWideGivesWhatThereIs) {
    UniformBatch source(2);
    EXPECT_EQ(draw(source, {.shape = DrawnShape::Tree}, 512, 1).tree.size(), 3);
}

// The toy's draft model.
class ToyBatch final : public ModelSource {
public:
    explicit ToyBatch(ToyPass& pass) : pass_(pass) {}
    std::string_view name() const override { return "toy"; }
    std::uint16_t n_bins() const override { return 1; }
    std::int64_t max_nodes() const override { return 64; }
    void observe(const Observation&) override {}
    void expand(const TokenTree&, std::span<const TokenId>, std::span<const TreeNode>) override {}
    std::size_t propose(TreeNode, std::int64_t, const PathNoise&, std::span<Proposal>) override { return 0; }
    std::span<const Candidate> distribution(TreeNode node) override {
        const std::span<const TokenId> path = pass_.path_of(node);
        return pass_.draft_sampler.distribution(ToyModels::row(pass_.models.draft, path), path);
    }
    double expand_seconds(std::int64_t) const override { return 0.0; }

private:
    ToyPass& pass_;
};

TEST(DrawnShape, RejectionOverItKeepsTheTargetsDistribution) {
    for (const DrawnShape shape : {DrawnShape::Chain, DrawnShape::Tree})
        for (const double penalty : {1.0, 1.4}) {
            const ToyModels models(static_cast<std::uint32_t>(shape) + 7);
            const SamplerOptions sampling{
                .temperature = 0.9, .top_k = 0, .top_p = 0.92, .repeat_penalty = penalty, .seed = 1000};
            for (const std::int64_t budget : {4, 64}) {
                const double p = toy_p_value(
                    models, sampling,
                    [&](ToyPass& pass) {
                        ToyBatch source(pass);
                        propose_drawn(pass.tree, {.text = pass.text, .budget = budget, .max_depth = pass.max_depth},
                                      {.shape = shape, .gamma = 3}, source, pass.drawn);
                    },
                    30000);
                EXPECT_GT(p, 1e-4) << "shape " << static_cast<int>(shape) << ", penalty " << penalty << ", budget "
                                   << budget;
            }
        }
}

}  // namespace
}  // namespace slipstream::draft
