// TokenTree: no duplicate siblings, parents before children.
#include "runtime/loop/token_tree.h"

#include <set>

#include <gtest/gtest.h>

namespace slipstream {
namespace {

TEST(TokenTree, MergesSiblingsOfTheSameToken) {
    TokenTree tree;
    tree.reset(10);
    const std::int32_t a = tree.add(0, 5);
    const std::int32_t b = tree.add(0, 6);
    EXPECT_EQ(tree.add(0, 5), a);
    EXPECT_NE(tree.add(b, 5), a) << "another parent, another node";
    EXPECT_EQ(tree.size(), 4);
    EXPECT_EQ(tree.depth(3), 2);
    EXPECT_EQ(tree.child(b, 5), 3);
    EXPECT_FALSE(tree.child(a, 5).has_value());
    tree.reset(1);
    EXPECT_EQ(tree.size(), 1);
    EXPECT_FALSE(tree.child(0, 5).has_value());
}

TEST(TokenTree, RandomTreesKeepTheInvariants) {
    TokenTree tree;
    std::uint32_t state = 1;
    const auto next = [&state] { return state = state * 1664525U + 1013904223U, state >> 16; };
    tree.reset(0);
    for (int i = 0; i < 2000; ++i)
        tree.add(static_cast<std::int32_t>(next() % static_cast<std::uint32_t>(tree.size())),
                 static_cast<TokenId>(next() % 7));
    std::set<std::pair<std::int32_t, TokenId>> seen;
    for (std::int32_t node = 1; node < tree.size(); ++node) {
        EXPECT_LT(tree.parent(node), node);
        EXPECT_EQ(tree.depth(node), tree.depth(tree.parent(node)) + 1);
        EXPECT_TRUE(seen.emplace(tree.parent(node), tree.token(node)).second);
        EXPECT_EQ(tree.child(tree.parent(node), tree.token(node)), node);
    }
}

TEST(TokenTreeDeathTest, AParentMustExist) {
    TokenTree tree;
    tree.reset(0);
    EXPECT_DEATH(tree.add(1, 2), "node 1 of 1");
}

}  // namespace
}  // namespace slipstream
