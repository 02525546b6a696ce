// The token tree of one pass: node 0 is the last committed token, all others are draft nodes below it. Flat arrays; a
// parent comes before its children. Siblings carry different tokens.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/model/model_config.h"

namespace slipstream {

class TokenTree {
public:
    /// Allocates memory for `n_nodes` nodes; smaller trees then allocate nothing.
    void reserve(std::size_t n_nodes);
    /// Empties the tree and makes `root` node 0. Keeps the allocated memory.
    void reset(TokenId root);
    /// Returns the child of `parent` (an existing node, CHECKed) that carries `token`; adds it if there is none.
    std::int32_t add(std::int32_t parent, TokenId token);
    /// Adds a child of `parent` and returns it. `parent` must not have a child of that token yet: unlike add(), this
    /// does not search for one.
    std::int32_t append(std::int32_t parent, TokenId token);
    /// Returns the child of `parent` (an existing node, CHECKed) that carries `token`.
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
    std::vector<std::int32_t> first_child_, next_sibling_;  // [size], linked lists; -1: none
};

}  // namespace slipstream
