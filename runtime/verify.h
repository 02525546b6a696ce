// The walk of E2: from node 0 down, sample the target at each node with its position's own noise, and follow the child
// that carries the sampled token, as long as there is one. What is sampled never depends on which children exist.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/base/tensor_view.h"
#include "runtime/sampling/sampler.h"
#include "runtime/token_tree.h"

namespace slipstream {

struct WalkLimits {
    std::int64_t max_new_tokens = 1;      // >= 1: stop after so many
    std::span<const TokenId> end_tokens;  // any of these ends the walk (and is kept as its last token)
};

/// `logits` [tree.size(), vocab], a row a node. `text`: all committed tokens, the tree's root last; the new tokens are
/// appended (as many as nodes were accepted, at least one). `accepted` receives the accepted nodes, node 0 first.
/// (Daliri, Musco, Suresh 2024, arXiv 2408.07978, for the coupling that makes proposals hit.)
void walk_tree(const TokenTree& tree, const ConstTensorView& logits, Sampler& sampler, const WalkLimits& limits,
               std::vector<TokenId>& text, std::vector<std::int32_t>& accepted);

}  // namespace slipstream
