// The tree of Cacheback (Ma, Gim, Zhong 2025, section 3.2), grown breadth-first. Level 1: the followers of the last LL
// tokens of the sequence (leader_tokens), each a branch of FL nodes (follower_tokens), with shared prefixes merged.
// Then the end of each branch is queried with the last LL tokens of its own path, and so on, until no end has followers
// or the tree has TDL nodes (tree_tokens). Inner nodes are not queried. Level 1 leaves CRT nodes (reserved_tokens) for
// the deeper levels. First the whole tree is grown from the dynamic table. Then the frozen table grows the same tree
// further, from its root and from all its leaves.
//
// Followers are taken most recent first (frozen table: most frequent first). With noise (drafter-invariant sampling,
// E2) they are ordered by log p + gumbel of their first token. p is the token's share of the weights 1 / age of the
// leader's followers, where the first follower has age 1. Followers with the same first token are ordered by the noise
// of the tokens where they part.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "draft/paper_tree.h"
#include "draft/sources/lru_table.h"
#include "draft/tables/cacheback_options.h"
#include "draft/tables/frozen_table.h"

namespace slipstream::draft {

/// Grows Cacheback trees; buffers keep their memory from one tree to the next.
class CachebackTree {
public:
    explicit CachebackTree(const CachebackOptions& options) : options_(options) {}

    /// Grows `tree`, which must have node 0 only (CHECKed), within the limits of `request`. Marks the leaders that are
    /// queried as used. `frozen` may be null. The tree has at most tree_tokens nodes, node 0 included (the one node
    /// that is not in the tables); a smaller budget reduces reserved_tokens in proportion.
    void grow(TokenTree& tree, const ShapeRequest& request, LruTable& dynamic, const FrozenTable* frozen);

private:
    /// A follower of a leader, with its age (1: the first in the table's order) and the value of its first token by
    /// PathNoise::rank() (0 without noise).
    struct Ranked {
        std::uint32_t follower;
        std::uint32_t age;
        float rank;
    };

    template <typename Table>
    void grow_from(TreeNode node, std::int32_t max_nodes, Table& table);
    template <typename Table>
    void grow_from_ends(Table& table);
    template <typename Table>
    void list_followers(std::uint32_t leader, TreeNode node, const Table& table);
    template <typename Table>
    void order_by_noise(std::int64_t position, const Table& table);
    void add_branch(TreeNode node, std::span<const TokenId> follower, std::int32_t max_nodes);
    [[nodiscard]] bool find_context(TreeNode node, std::size_t n_tokens);
    void list_leaves();

    CachebackOptions options_;
    // State of the running grow(); the vectors keep their memory.
    TokenTree* tree_ = nullptr;
    const ShapeRequest* request_ = nullptr;
    std::int32_t max_nodes_ = 0;
    std::vector<TreeNode> ends_;          // ends of branches, in the order in which they are to be queried
    std::vector<std::uint8_t> is_inner_;  // [tree size]: 1 for a node with children; scratch of list_leaves()
    std::vector<TokenId> context_;        // the last tokens of a path
    std::vector<Ranked> followers_;       // followers of the queried leader, in the order in which they become branches
};

}  // namespace slipstream::draft
