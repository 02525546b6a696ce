// The token tree of one pass: node 0 is the last committed token, all others are draft nodes below it. Flat arrays; a
// parent comes before its children. Siblings carry different tokens.
#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include "runtime/model/model_config.h"

namespace slipstream {

/// A node of a token tree, identified by its index: nodes are numbered from 0 in the order in which they were added. It
/// is a type of its own, since tokens of a pass, nodes of a KV (NodeId) and nodes of the search for a tree are numbered
/// differently.
struct TreeNode {
    std::int32_t index = -1;  // -1: not a node

    TreeNode() = default;
    constexpr explicit TreeNode(std::int32_t node_index) : index(node_index) {}
    friend constexpr auto operator<=>(TreeNode, TreeNode) = default;
};

inline constexpr TreeNode kTreeRoot{0};
/// Parent of the root; elsewhere: not a node of the tree.
inline constexpr TreeNode kNoTreeNode{-1};

static_assert(sizeof(TreeNode) == sizeof(std::int32_t) && std::is_trivially_copyable_v<TreeNode>);

/// Returns the logits row of `node` in a pass over its tree: there is one row per node, in the order of the nodes.
[[nodiscard]] constexpr std::int64_t logits_row_of(TreeNode node) {
    return node.index;
}

/// Consecutive nodes of a tree, for a loop over them.
class TreeNodes {
public:
    class Iterator {
    public:
        explicit Iterator(TreeNode node) : node_(node) {}
        TreeNode operator*() const { return node_; }
        Iterator& operator++() {
            ++node_.index;
            return *this;
        }
        friend bool operator==(Iterator, Iterator) = default;

    private:
        TreeNode node_;
    };

    /// The nodes [first, end); `end` must not come before `first`.
    TreeNodes(TreeNode first, TreeNode end) : first_(first), end_(end) {}
    [[nodiscard]] Iterator begin() const { return Iterator(first_); }
    [[nodiscard]] Iterator end() const { return Iterator(end_); }

private:
    TreeNode first_, end_;
};

class TokenTree {
public:
    /// Allocates memory for `n_nodes` nodes; smaller trees then allocate nothing.
    void reserve(std::size_t n_nodes);
    /// Empties the tree and makes `root` node 0. Keeps the allocated memory.
    void reset(TokenId root);
    /// Returns the child of `parent` (an existing node, CHECKed) that carries `token`; adds it if there is none.
    TreeNode add(TreeNode parent, TokenId token);
    /// Adds a child of `parent` and returns it. `parent` must not have a child of that token yet: unlike add(), this
    /// does not search for one.
    TreeNode append(TreeNode parent, TokenId token);
    /// Returns the child of `parent` (an existing node, CHECKed) that carries `token`.
    [[nodiscard]] std::optional<TreeNode> child(TreeNode parent, TokenId token) const;

    /// Returns the number of nodes, node 0 included.
    [[nodiscard]] std::int32_t size() const { return static_cast<std::int32_t>(tokens_.size()); }
    /// Returns all nodes that are in the tree now, parents before their children.
    [[nodiscard]] TreeNodes nodes() const { return {kTreeRoot, TreeNode(size())}; }
    /// Returns all nodes except node 0.
    [[nodiscard]] TreeNodes draft_nodes() const { return {TreeNode(1), TreeNode(std::max(size(), 1))}; }
    [[nodiscard]] bool has(TreeNode node) const { return node.index >= 0 && node.index < size(); }
    [[nodiscard]] TokenId token(TreeNode node) const { return tokens_[node.index]; }
    [[nodiscard]] TreeNode parent(TreeNode node) const { return parents_[node.index]; }
    [[nodiscard]] std::int32_t depth(TreeNode node) const { return depths_[node.index]; }
    [[nodiscard]] std::span<const TokenId> tokens() const { return tokens_; }
    [[nodiscard]] std::span<const TreeNode> parents() const { return parents_; }

private:
    std::vector<TokenId> tokens_;                       // [size]
    std::vector<TreeNode> parents_;                     // [size], kNoTreeNode for node 0
    std::vector<std::int32_t> depths_;                  // [size], 0 for node 0
    std::vector<TreeNode> first_child_, next_sibling_;  // [size], linked lists; kNoTreeNode: none
};

}  // namespace slipstream
