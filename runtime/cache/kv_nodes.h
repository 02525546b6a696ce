// The bookkeeping of a KV: how many slots are committed, and the tree of nodes that hang behind them. Pure: it knows of
// no memory. Slots are counted from 0; in a cache that holds all of a text they are the text's positions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace slipstream {

/// A node: its row in the scratch. A type of its own, since nodes of token trees, tokens of a pass and rows of logits
/// are counted otherwise: an index of one of them is no node.
struct NodeId {
    std::int32_t row = 0;

    NodeId() = default;
    constexpr explicit NodeId(std::int32_t scratch_row) : row(scratch_row) {}
    friend constexpr bool operator==(NodeId, NodeId) = default;
};
/// Parent of a node that hangs directly under the last committed slot.
inline constexpr NodeId kCommittedTip{-1};

static_assert(sizeof(NodeId) == sizeof(std::int32_t));
/// [nodes]: their rows, as kernels read them. Valid as long as the nodes are.
[[nodiscard]] inline const std::int32_t* scratch_rows(std::span<const NodeId> nodes) {
    return nodes.empty() ? nullptr : &nodes.front().row;
}

class KvNodes {
public:
    /// Room for `context_tokens` slots, nodes included, and `max_nodes` nodes at once; all memory is taken here.
    KvNodes(std::int64_t context_tokens, std::int64_t max_nodes);

    [[nodiscard]] std::int64_t context_tokens() const { return context_tokens_; }
    [[nodiscard]] std::int64_t max_nodes() const { return max_nodes_; }
    [[nodiscard]] std::int64_t n_committed() const { return n_committed_; }
    [[nodiscard]] std::int64_t n_nodes() const { return static_cast<std::int64_t>(parents_.size()); }
    [[nodiscard]] NodeId parent(NodeId node) const { return parents_[node.row]; }
    [[nodiscard]] std::int64_t slot(NodeId node) const { return slots_[node.row]; }

    /// A new node below `parent` (kCommittedTip or an existing node). Its slot must lie inside the context and there
    /// must be room for it: both CHECKed. Nodes are numbered from 0 after forget().
    NodeId add(NodeId parent);
    /// CHECKs that each node of `path` hangs under the one before, the first under the committed tip.
    void check_path(std::span<const NodeId> path) const;
    /// Drops all nodes.
    void forget();
    /// As many slots are committed from now on. Nodes stay where they are: who calls it forgets them or has none.
    void set_committed(std::int64_t n_slots);

private:
    std::int64_t context_tokens_;
    std::int64_t max_nodes_;
    std::int64_t n_committed_ = 0;
    std::vector<NodeId> parents_;      // [n_nodes]
    std::vector<std::int64_t> slots_;  // [n_nodes]
};

}  // namespace slipstream
