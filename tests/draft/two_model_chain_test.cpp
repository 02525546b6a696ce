// Chains that two models draw together: that each token has the upper one's distribution, and that the target's
// distribution survives both checks. The fault of TriForce's released code must be seen.
#include "draft/papers/two_model_chain.h"

#include <algorithm>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "tests/draft/toy_models.h"

namespace slipstream::draft {
namespace {

// A table of logits as a model that is asked about nodes of a tree.
class TableModel final : public ModelSource {
public:
    TableModel(const std::vector<float>& table, Sampler& sampler, const std::vector<TokenId>& text,
               std::int64_t max_nodes = 64)
        : table_(table), sampler_(sampler), text_(text), max_nodes_(max_nodes) {}
    std::string_view name() const override { return "table"; }
    std::uint16_t n_bins() const override { return 1; }
    std::int64_t max_nodes() const override { return max_nodes_; }
    void observe(const Observation&) override {}
    void expand(const TokenTree& tree, std::span<const TokenId>, std::span<const TreeNode> nodes) override {
        tree_ = &tree;
        ASSERT_FALSE(nodes.empty());
        for (const TreeNode node : nodes) {
            ASSERT_EQ(std::ranges::count(expanded_, node), 0) << "asked twice";
            ASSERT_TRUE(expanded_.empty() ? node == kTreeRoot : std::ranges::count(expanded_, tree.parent(node)) == 1)
                << "a node whose parent was not asked about";
            expanded_.push_back(node);
        }
        ASSERT_LE(std::ssize(expanded_), max_nodes_);
    }
    std::size_t propose(TreeNode, std::int64_t, const PathNoise&, std::span<Proposal>) override { return 0; }
    std::span<const Candidate> distribution(TreeNode node) override {
        EXPECT_EQ(std::ranges::count(expanded_, node), 1);
        path_.assign(text_.begin(), text_.end());
        path_.resize(text_.size() + static_cast<std::size_t>(tree_->depth(node)));
        for (std::size_t i = path_.size(); node != kTreeRoot; node = tree_->parent(node))
            path_[--i] = tree_->token(node);
        return sampler_.distribution(ToyModels::row(table_, path_), path_);
    }
    double expand_seconds(std::int64_t) const override { return 0.0; }

private:
    const std::vector<float>& table_;
    Sampler& sampler_;
    const std::vector<TokenId>& text_;
    std::int64_t max_nodes_;
    const TokenTree* tree_ = nullptr;
    std::vector<TreeNode> expanded_;
    std::vector<TokenId> path_;
};

constexpr std::int64_t kTrials = 30000;

// The target's table below, the draft's in the middle, and a third that knows little.
ToyShape hierarchy(const ToyModels& low, std::uint64_t* seed) {
    return [&low, seed](ToyPass& pass) {
        Sampler sampler = pass.draft_sampler;
        TableModel lower(low.draft, sampler, pass.text);
        TableModel upper(pass.models.draft, pass.draft_sampler, pass.text);
        TwoModelChain(kToyVocab, (*seed)++)
            .propose(pass.tree, {.text = pass.text, .budget = 64, .max_depth = pass.max_depth}, 3, lower, upper,
                     pass.drawn);
    };
}

TEST(TwoModelChain, TheJointDistributionIsTheTargets) {
    for (const double penalty : {1.0, 1.4}) {
        const ToyModels models(21);
        const ToyModels low(22);
        const SamplerOptions sampling{
            .temperature = 0.9, .top_k = 0, .top_p = 0.92, .repeat_penalty = penalty, .seed = 5000};
        std::uint64_t seed = 77;
        EXPECT_GT(toy_p_value(models, sampling, hierarchy(low, &seed), kTrials), 1e-4) << penalty;
    }
}

// The chain's first two tokens alone, without a target: the upper model's distribution.
std::vector<std::int64_t> counts_of_chains(const ToyModels& models, const ToyModels& low,
                                           const SamplerOptions& options) {
    std::vector<std::int64_t> counts(kToyVocab * kToyVocab);
    Sampler lower_sampler(options, kToyVocab);
    Sampler upper_sampler(options, kToyVocab);
    const std::vector<TokenId> text{kToyRoot};
    for (std::int64_t trial = 0; trial < kTrials; ++trial) {
        TokenTree tree;
        tree.reset(kToyRoot);
        DrawnTree drawn(1);
        drawn.reset(1, 64);
        TableModel lower(low.draft, lower_sampler, text);
        TableModel upper(models.draft, upper_sampler, text);
        TwoModelChain made(kToyVocab, static_cast<std::uint64_t>(trial));
        made.propose(tree, {.text = text, .budget = 64, .max_depth = 2}, 2, lower, upper, drawn);
        EXPECT_EQ(tree.size(), 3);
        ++counts[tree.token(TreeNode(1)) * kToyVocab + tree.token(TreeNode(2))];
    }
    return counts;
}

std::vector<std::int64_t> first_of(const std::vector<std::int64_t>& pairs) {
    std::vector<std::int64_t> counts(kToyVocab);
    for (std::size_t i = 0; i < pairs.size(); ++i) counts[i / kToyVocab] += pairs[i];
    return counts;
}

// A first token as TriForce's released code draws it: where the lower guess is refused, a fresh draw from p.
std::vector<std::int64_t> counts_with_the_fault(const std::vector<double>& q, const std::vector<double>& p) {
    std::vector<std::int64_t> counts(kToyVocab);
    std::mt19937_64 random(99);
    std::uniform_real_distribution<double> uniform;
    std::discrete_distribution<std::size_t> from_q(q.begin(), q.end()), from_p(p.begin(), p.end());
    for (std::int64_t trial = 0; trial < kTrials; ++trial) {
        const std::size_t guess = from_q(random);
        ++counts[uniform(random) * q[guess] < p[guess] ? guess : from_p(random)];
    }
    return counts;
}

TEST(TwoModelChain, EachTokenHasTheUpperModelsDistributionAndAFaultWouldBeSeen) {
    const ToyModels models(31);
    const ToyModels low(32);
    const SamplerOptions options{.temperature = 1.0, .top_k = 0, .top_p = 1.0, .repeat_penalty = 1.0, .seed = 3};
    const std::vector<TokenId> root{kToyRoot};
    const std::vector<double> first = toy_distribution(ToyModels::row(models.draft, root), root, options);
    std::vector<double> joint(kToyVocab * kToyVocab);
    for (TokenId a = 0; a < kToyVocab; ++a) {
        const std::vector<TokenId> path{kToyRoot, a};
        const std::vector<double> second = toy_distribution(ToyModels::row(models.draft, path), path, options);
        for (std::size_t b = 0; b < second.size(); ++b)
            joint[static_cast<std::size_t>(a * kToyVocab) + b] = first[a] * second[b];
    }
    const std::vector<std::int64_t> counts = counts_of_chains(models, low, options);
    EXPECT_GT(chi_square_p_value(counts, joint), 1e-4);
    EXPECT_GT(chi_square_p_value(first_of(counts), first), 1e-4);
    // As many trials tell the fault from the truth.
    const std::vector<double> q = toy_distribution(ToyModels::row(low.draft, root), root, options);
    EXPECT_LT(chi_square_p_value(counts_with_the_fault(q, first), first), 1e-12);
}

TEST(TwoModelChain, KeepsToItsLimits) {
    const ToyModels models(41);
    const SamplerOptions options{.temperature = 1.0, .top_k = 0, .top_p = 1.0, .seed = 3};
    Sampler lower_sampler(options, kToyVocab);
    Sampler upper_sampler(options, kToyVocab);
    const std::vector<TokenId> text{kToyRoot};
    const struct {
        std::int64_t gamma, budget, max_depth, lower_nodes, upper_nodes, fewest, most;
    } cases[] = {{3, 64, 3, 64, 64, 4, 4}, {1, 64, 3, 64, 64, 2, 2}, {3, 3, 3, 64, 64, 3, 3}, {3, 64, 0, 64, 64, 1, 1},
                 {3, 1, 3, 64, 64, 1, 1},  {3, 64, 2, 64, 64, 3, 3}, {3, 64, 3, 1, 64, 4, 4}, {3, 64, 3, 64, 2, 2, 3},
                 {3, 64, 3, 64, 1, 1, 2},  {3, 64, 3, 2, 3, 2, 4}};
    for (const auto& [gamma, budget, max_depth, lower_nodes, upper_nodes, fewest, most] : cases) {
        TokenTree tree;
        tree.reset(kToyRoot);
        DrawnTree drawn(1);
        drawn.reset(1, budget);
        TableModel lower(models.draft, lower_sampler, text, lower_nodes);
        TableModel upper(models.target, upper_sampler, text, upper_nodes);
        TwoModelChain made(kToyVocab, 7);
        made.propose(tree, {.text = text, .budget = budget, .max_depth = max_depth}, gamma, lower, upper, drawn);
        EXPECT_GE(tree.size(), fewest);
        EXPECT_LE(tree.size(), most);
        for (TreeNode node = kTreeRoot; node.index + 1 < tree.size(); ++node.index)
            EXPECT_EQ(drawn.drawn(node).draws.size(), 1U);
    }
}

}  // namespace
}  // namespace slipstream::draft
