// DrawnTree: draws have the distributions that the walk takes for granted, and the record says what was drawn.
#include "draft/drawn_tree.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/chi_square.h"

namespace slipstream::draft {
namespace {

using testing::ElementsAreArray;

const std::vector<Candidate> kQ = {{4, 0.0F, 0.5}, {1, 0.0F, 0.3}, {7, 0.0F, 0.15}, {2, 0.0F, 0.05}};

/// Counts of (first, second) draws below node 0, as indices into kQ.
std::vector<std::int64_t> pair_counts(DrawRule rule) {
    const auto index_of = [](TokenId id) {
        return static_cast<std::size_t>(std::ranges::find(kQ, id, &Candidate::id) - kQ.begin());
    };
    std::vector<std::int64_t> counts(16);
    TokenTree tree;
    for (std::uint64_t seed = 0; seed < 100'000; ++seed) {
        DrawnTree drawn(seed);
        tree.reset(0);
        drawn.reset(1, 8);
        const auto draws = drawn.draw_children(tree, kTreeRoot, kQ, rule, 2);
        EXPECT_EQ(draws.size(), 2U);
        ++counts[4 * index_of(draws[0]) + index_of(draws[1])];
    }
    return counts;
}

TEST(DrawnTree, DrawsWithReplacementAreIndependent) {
    std::vector<double> expected;
    for (const Candidate& first : kQ)
        for (const Candidate& second : kQ) expected.push_back(first.probability * second.probability);
    EXPECT_GT(chi_square_p_value(pair_counts(DrawRule::WithReplacement), expected), 1e-4);
}

TEST(DrawnTree, DrawsWithoutReplacementTakeFromTheRest) {
    std::vector<double> expected;
    for (const Candidate& first : kQ)
        for (const Candidate& second : kQ)
            expected.push_back(&first == &second ? 0.0
                                                 : first.probability * second.probability / (1.0 - first.probability));
    EXPECT_GT(chi_square_p_value(pair_counts(DrawRule::WithoutReplacement), expected), 1e-4);
}

TEST(DrawnTree, WithoutReplacementEndsWithTheLastCandidate) {
    TokenTree tree;
    tree.reset(0);
    DrawnTree drawn(3);
    drawn.reset(1, 64);
    const auto draws = drawn.draw_children(tree, kTreeRoot, kQ, DrawRule::WithoutReplacement, 100);
    EXPECT_THAT(std::vector<TokenId>(draws.begin(), draws.end()), testing::UnorderedElementsAre(4, 1, 7, 2));
    EXPECT_EQ(tree.size(), 5);
}

TEST(DrawnTree, RemembersAllDrawsAlsoThoseWithoutRoom) {
    TokenTree tree;
    tree.reset(0);
    DrawnTree drawn(5);
    drawn.reset(10, 4);
    const auto kept = [](std::span<const TokenId> draws) { return std::vector<TokenId>(draws.begin(), draws.end()); };
    const std::vector<TokenId> first = kept(drawn.draw_children(tree, kTreeRoot, kQ, DrawRule::WithReplacement, 2));
    const std::vector<TokenId> second =
        kept(drawn.draw_children(tree, TreeNode(1), std::span(kQ).first(3), DrawRule::WithoutReplacement, 3));
    EXPECT_EQ(tree.size(), 4) << "the budget";
    const DrawnChildren root = drawn.drawn(kTreeRoot);
    EXPECT_EQ(root.rule, DrawRule::WithReplacement);
    EXPECT_EQ(root.q.size(), kQ.size());
    EXPECT_THAT(root.draws, ElementsAreArray(first));
    const DrawnChildren child = drawn.drawn(TreeNode(1));
    EXPECT_EQ(child.rule, DrawRule::WithoutReplacement);
    ASSERT_EQ(child.q.size(), 3U);
    EXPECT_EQ(child.q[2].id, 7);
    EXPECT_THAT(child.draws, ElementsAreArray(second));
    EXPECT_EQ(second.size(), 3U);
    EXPECT_TRUE(drawn.drawn(TreeNode(2)).draws.empty());
    EXPECT_TRUE(drawn.drawn(TreeNode(60)).draws.empty());
    drawn.reset(12, 4);
    EXPECT_TRUE(drawn.drawn(kTreeRoot).draws.empty());
}

// The draws of one position differ from pass to pass, although the seed is the same.
TEST(DrawnTree, DrawsAnewInEachPass) {
    const std::vector<Candidate> even = [] {
        std::vector<Candidate> q;
        for (TokenId id = 0; id < 1000; ++id) q.push_back({id, 0.0F, 0.001});
        return q;
    }();
    const auto draw_at = [&](std::int64_t n_text, std::int64_t depth) {
        TokenTree tree;
        tree.reset(0);
        TreeNode node = kTreeRoot;
        for (std::int64_t i = 0; i < depth; ++i) node = tree.add(node, 1);
        DrawnTree drawn(1);
        drawn.reset(n_text, 64);
        const auto draws = drawn.draw_children(tree, node, even, DrawRule::WithReplacement, 4);
        return std::vector<TokenId>(draws.begin(), draws.end());
    };
    EXPECT_EQ(draw_at(20, 3), draw_at(20, 3));
    EXPECT_NE(draw_at(20, 3), draw_at(21, 2));
    EXPECT_NE(draw_at(20, 3), draw_at(20, 2));
}

TEST(DrawnTreeDeathTest, ANodeIsDrawnFromOnce) {
    TokenTree tree;
    tree.reset(0);
    DrawnTree drawn(1);
    drawn.reset(1, 64);
    static_cast<void>(drawn.draw_children(tree, kTreeRoot, kQ, DrawRule::WithReplacement, 1));
    EXPECT_DEATH(static_cast<void>(drawn.draw_children(tree, kTreeRoot, kQ, DrawRule::WithReplacement, 1)),
                 "drawn from twice");
}

}  // namespace
}  // namespace slipstream::draft
