// A tree that a builder grows in a test, and a first token that it learns from.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "draft/tree/tree_builder.h"
#include "tests/draft/toy_sources.h"

namespace slipstream::draft {

inline const PathNoise kNoNoise;

struct Grown {
    TokenTree tree;
    double expected = 0.0;
};

/// Passes over n nodes take what `seconds` says of n.
inline PassCurve curve_by(std::int64_t max_nodes, const std::function<double(double)>& seconds) {
    return PassCurve(max_nodes, [seconds](std::int64_t n, std::int64_t) { return seconds(static_cast<double>(n)); });
}

struct TreeLimits {
    std::int64_t budget = 32;
    std::int64_t max_depth = 32;
    const PathNoise* noise = &kNoNoise;
    const PassCurve* curve = nullptr;
    double seconds_per_token = 0.0;  // 0: what a plain pass takes
};

inline Grown grow(TreeBuilder& builder, const ToyText& text, const TreeLimits& limits) {
    const double a_token =
        limits.curve == nullptr || limits.seconds_per_token > 0.0 ? limits.seconds_per_token : limits.curve->at(1);
    Grown grown;
    grown.tree.reset(text.back());
    grown.expected = builder.grow(grown.tree, {.text = text,
                                               .budget = limits.budget,
                                               .max_depth = limits.max_depth,
                                               .noise = limits.noise,
                                               .curve = limits.curve,
                                               .seconds_per_token = a_token});
    return grown;
}

/// Tokens below the root.
inline std::vector<TokenId> children_of_root(const TokenTree& tree) {
    std::vector<TokenId> tokens;
    for (const TreeNode node : tree.draft_nodes())
        if (tree.parent(node) == kTreeRoot) tokens.push_back(tree.token(node));
    std::ranges::sort(tokens);
    return tokens;
}

/// The target says `came` behind the root.
inline void learn_first(TreeBuilder& builder, const TokenTree& tree, TokenId came) {
    std::vector<TreeNode> accepted = {kTreeRoot};
    std::vector<TokenId> tokens = {came};
    if (const auto child = tree.child(kTreeRoot, came)) {
        accepted.push_back(*child);
        tokens.push_back(0);
    }
    builder.learn({.accepted = accepted, .came = tokens});
}

}  // namespace slipstream::draft
