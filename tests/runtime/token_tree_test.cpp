// TokenTree: no duplicate siblings, parents before children.
#include "runtime/loop/token_tree.h"

#include <set>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/cache/kv_nodes.h"

namespace slipstream {
namespace {

// A node of a token tree is neither an integer nor a node of a KV.
static_assert(!std::is_convertible_v<std::int32_t, TreeNode> && !std::is_convertible_v<TreeNode, std::int32_t>);
static_assert(!std::is_constructible_v<TreeNode, NodeId> && !std::is_constructible_v<NodeId, TreeNode>);

TEST(TokenTree, MergesSiblingsOfTheSameToken) {
    TokenTree tree;
    tree.reset(10);
    const TreeNode a = tree.add(kTreeRoot, 5);
    const TreeNode b = tree.add(kTreeRoot, 6);
    EXPECT_EQ(tree.add(kTreeRoot, 5), a);
    EXPECT_NE(tree.add(b, 5), a) << "another parent, another node";
    EXPECT_EQ(tree.size(), 4);
    EXPECT_EQ(tree.depth(TreeNode(3)), 2);
    EXPECT_EQ(tree.child(b, 5), TreeNode(3));
    EXPECT_FALSE(tree.child(a, 5).has_value());
    tree.reset(1);
    EXPECT_EQ(tree.size(), 1);
    EXPECT_FALSE(tree.child(kTreeRoot, 5).has_value());
}

TEST(TokenTree, RandomTreesKeepTheInvariants) {
    TokenTree tree;
    std::uint32_t state = 1;
    const auto next = [&state] { return state = state * 1664525U + 1013904223U, state >> 16; };
    tree.reset(0);
    for (int i = 0; i < 2000; ++i)
        tree.add(TreeNode(static_cast<std::int32_t>(next() % static_cast<std::uint32_t>(tree.size()))),
                 static_cast<TokenId>(next() % 7));
    std::set<std::pair<TreeNode, TokenId>> seen;
    for (const TreeNode node : tree.draft_nodes()) {
        EXPECT_LT(tree.parent(node), node);
        EXPECT_EQ(tree.depth(node), tree.depth(tree.parent(node)) + 1);
        EXPECT_TRUE(seen.emplace(tree.parent(node), tree.token(node)).second);
        EXPECT_EQ(tree.child(tree.parent(node), tree.token(node)), node);
    }
}

TEST(TokenTree, LoopsOverItsNodes) {
    TokenTree tree;
    tree.reset(10);
    const auto indices = [](const TreeNodes& nodes) {
        std::vector<std::int32_t> all;
        for (const TreeNode node : nodes) all.push_back(node.index);
        return all;
    };
    EXPECT_EQ(indices(tree.nodes()), (std::vector<std::int32_t>{0}));
    EXPECT_TRUE(indices(tree.draft_nodes()).empty());
    for (const TreeNode node : tree.nodes()) tree.add(node, 5);  // nodes that are added meanwhile are left out
    tree.add(kTreeRoot, 6);
    EXPECT_EQ(indices(tree.nodes()), (std::vector<std::int32_t>{0, 1, 2}));
    EXPECT_EQ(indices(tree.draft_nodes()), (std::vector<std::int32_t>{1, 2}));
    EXPECT_TRUE(tree.has(kTreeRoot) && tree.has(TreeNode(2)));
    EXPECT_FALSE(tree.has(kNoTreeNode) || tree.has(TreeNode(3)));
    EXPECT_EQ(tree.parent(kTreeRoot), kNoTreeNode);
}

TEST(TokenTreeDeathTest, AParentMustExist) {
    TokenTree tree;
    tree.reset(0);
    EXPECT_DEATH(tree.add(TreeNode(1), 2), "node 1 of 1");
}

}  // namespace
}  // namespace slipstream
