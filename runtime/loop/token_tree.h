// The tokens of one pass beyond the prompt: node 0 is the last committed token, the others are guesses below it. Flat
// arrays, parents before children. No two siblings carry the same token.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/model/model_config.h"

namespace slipstream {

class TokenTree {
public:
    /// Room for `n_nodes` without further allocation.
    void reserve(std::size_t n_nodes);
    /// Empties the tree and makes `root` node 0. Keeps its memory.
    void reset(TokenId root);
    /// Node of `token` below `parent` (an existing index, CHECKed): the one that is there already, or a new one.
    std::int32_t add(std::int32_t parent, TokenId token);
    /// A new node below `parent`, which has no child of that token yet: add() without the search.
    std::int32_t append(std::int32_t parent, TokenId token);
    /// The child of `parent` that carries `token`.
    [[nodiscard]] std::optional<std::int32_t> child(std::int32_t parent, TokenId token) const;

    [[nodiscard]] std::int32_t size() const { return static_cast<std::int32_t>(tokens_.size()); }
    [[nodiscard]] TokenId token(std::int32_t node) const { return tokens_[node]; }
    [[nodiscard]] std::int32_t parent(std::int32_t node) const { return parents_[node]; }
    [[nodiscard]] std::int32_t depth(std::int32_t node) const { return depths_[node]; }
    [[nodiscard]] std::span<const TokenId> tokens() const { return tokens_; }
    [[nodiscard]] std::span<const std::int32_t> parents() const { return parents_; }

private:
    std::vector<TokenId> tokens_;                           // [size]
    std::vector<std::int32_t> parents_;                     // [size], -1 for node 0
    std::vector<std::int32_t> depths_;                      // [size], 0 for node 0
    std::vector<std::int32_t> first_child_, next_sibling_;  // [size], -1 = none: siblings as a list
};

}  // namespace slipstream
