// A tree that a builder grows in a test, and a first token that it learns from.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "draft/tree/tree_builder.h"
#include "tests/draft/toy_sources.h"

namespace slipstream::draft {

inline const PathNoise kNoNoise;

struct Grown {
    TokenTree tree;
    double expected = 0.0;
};

struct TreeLimits {
    std::int64_t budget = 32;
    std::int64_t max_depth = 32;
    const PathNoise* noise = &kNoNoise;
    const PassTimes* times = nullptr;
    double seconds_a_token = 0.0;
    Crew crew = Crew::Everyone;
};

inline Grown grow(TreeBuilder& builder, const ToyText& text, const TreeLimits& limits) {
    Grown grown;
    grown.tree.reset(text.back());
    grown.expected = builder.grow(grown.tree, {.text = text,
                                               .budget = limits.budget,
                                               .max_depth = limits.max_depth,
                                               .noise = limits.noise,
                                               .times = limits.times,
                                               .seconds_a_token = limits.seconds_a_token,
                                               .crew = limits.crew});
    return grown;
}

/// Tokens below the root.
inline std::vector<TokenId> children_of_root(const TokenTree& tree) {
    std::vector<TokenId> tokens;
    for (std::int32_t node = 1; node < tree.size(); ++node)
        if (tree.parent(node) == 0) tokens.push_back(tree.token(node));
    std::ranges::sort(tokens);
    return tokens;
}

/// The target says `came` behind the root.
inline WalkShares learn_first(TreeBuilder& builder, const TokenTree& tree, TokenId came) {
    std::vector<std::int32_t> accepted = {0};
    std::vector<TokenId> tokens = {came};
    if (const auto child = tree.child(0, came)) {
        accepted.push_back(*child);
        tokens.push_back(0);
    }
    return builder.learn({.accepted = accepted, .came = tokens});
}

}  // namespace slipstream::draft
