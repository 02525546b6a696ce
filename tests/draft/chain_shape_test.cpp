#include "draft/papers/chain_shape.h"

#include <gtest/gtest.h>

namespace slipstream::draft {
namespace {

// Says that token + 1 follows, up to `last`; as a cursor, the token.
class Counting final : public TableSource {
public:
    explicit Counting(TokenId last) : last_(last) {}
    std::string_view name() const override { return "counting"; }
    void observe(const Observation&) override {}
    void reset() override {}
    Cursor root(std::span<const TokenId> text) override { return static_cast<Cursor>(text.back()); }
    Cursor advance(Cursor, TokenId token) override { return token == last_ ? kNowhere : static_cast<Cursor>(token); }
    std::size_t propose(Cursor cursor, std::int64_t position, const PathNoise&, std::span<Proposal> out) override {
        positions.push_back(position);
        out[0] = {.token = static_cast<TokenId>(cursor) + 1, .probability = 0.5F};
        return 1;
    }
    std::size_t memory_bytes() const override { return 0; }
    std::vector<std::int64_t> positions;

private:
    TokenId last_;
};

class CountingBatch final : public ModelSource {
public:
    std::string_view name() const override { return "counting"; }
    std::uint16_t n_bins() const override { return 1; }
    std::int64_t max_nodes() const override { return 4; }
    void observe(const Observation&) override {}
    void expand(const TokenTree& tree, std::span<const TokenId>, std::span<const TreeNode> nodes) override {
        ASSERT_EQ(nodes.size(), 1U);
        expanded.push_back(nodes[0]);
        token_ = tree.token(nodes[0]);
    }
    std::size_t propose(TreeNode, std::int64_t position, const PathNoise&, std::span<Proposal> out) override {
        positions.push_back(position);
        out[0] = {.token = token_ + 1, .probability = 0.5F};
        return 1;
    }
    std::span<const Candidate> distribution(TreeNode) override { return {}; }
    double expand_seconds(std::int64_t) const override { return 0.0; }
    std::vector<TreeNode> expanded;
    std::vector<std::int64_t> positions;

private:
    TokenId token_ = 0;
};

const std::vector<TokenId> kText = {7, 8, 10};

template <typename AnySource>
std::vector<TokenId> chain(AnySource& source, std::int64_t gamma, std::int64_t budget, std::int64_t max_depth) {
    TokenTree tree;
    tree.reset(kText.back());
    propose_chain(tree, {.text = kText, .budget = budget, .max_depth = max_depth}, gamma, source);
    for (const TreeNode node : tree.draft_nodes()) EXPECT_EQ(tree.parent(node), TreeNode(node.index - 1));
    return {tree.tokens().begin(), tree.tokens().end()};
}

TEST(ChainShape, IsGammaLongWithinTheLimits) {
    Counting source(100);
    EXPECT_EQ(chain(source, 3, 64, 64), (std::vector<TokenId>{10, 11, 12, 13}));
    EXPECT_EQ(source.positions, (std::vector<std::int64_t>{3, 4, 5}));
    EXPECT_EQ(chain(source, 3, 2, 64).size(), 2U);
    EXPECT_EQ(chain(source, 3, 64, 1).size(), 2U);
    EXPECT_EQ(chain(source, 3, 64, 0).size(), 1U);
    EXPECT_EQ(chain(source, 0, 64, 64).size(), 1U);
}

TEST(ChainShape, EndsWhereTheSourceDoes) {
    Counting source(12);
    EXPECT_EQ(chain(source, 9, 64, 64), (std::vector<TokenId>{10, 11, 12}));
}

TEST(ChainShape, ABatchSourceIsAskedNodeByNodeUpToItsOwnLimit) {
    CountingBatch source;
    EXPECT_EQ(chain(source, 2, 64, 64), (std::vector<TokenId>{10, 11, 12}));
    EXPECT_EQ(source.expanded, (std::vector<TreeNode>{kTreeRoot, TreeNode(1)}));
    EXPECT_EQ(source.positions, (std::vector<std::int64_t>{3, 4}));
    EXPECT_EQ(chain(source, 9, 64, 64).size(), 5U);
}

}  // namespace
}  // namespace slipstream::draft
