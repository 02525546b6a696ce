// KvNodes: counts the committed slots of a KV, and keeps the tree of nodes below them. It owns no KV memory. Slots are
// numbered from 0; in a cache of a whole text they are the positions in the text.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace slipstream {

/// A node, identified by its scratch row. It is a type of its own, since nodes of token trees, tokens of a pass and
/// rows of logits are numbered differently: their indices must not be used as nodes.
struct NodeId {
    std::int32_t row = 0;

    NodeId() = default;
    constexpr explicit NodeId(std::int32_t scratch_row) : row(scratch_row) {}
    friend constexpr bool operator==(NodeId, NodeId) = default;
};
/// Whether a node will be committed whatever the logits of its pass are: a token of the text is certain, a draft token
/// is not. Recurrent layers take certain nodes into their state (RecurrentStates); elsewhere it makes no difference.
enum class NodeKind : std::uint8_t { Draft, Certain };

/// Parent of nodes that follow the last committed slot directly.
inline constexpr NodeId kCommittedTip{-1};

static_assert(sizeof(NodeId) == sizeof(std::int32_t));
/// Returns [nodes.size()] scratch rows, as kernels read them; null if `nodes` is empty. Valid as long as the memory of
/// `nodes`.
[[nodiscard]] inline const std::int32_t* scratch_rows(std::span<const NodeId> nodes) {
    return nodes.empty() ? nullptr : &nodes.front().row;
}

class KvNodes {
public:
    /// Allows `context_tokens` slots, nodes included, and `max_nodes` nodes at the same time. Allocates all memory
    /// here.
    KvNodes(std::int64_t context_tokens, std::int64_t max_nodes);

    [[nodiscard]] std::int64_t context_tokens() const { return context_tokens_; }
    [[nodiscard]] std::int64_t max_nodes() const { return max_nodes_; }
    [[nodiscard]] std::int64_t n_committed() const { return n_committed_; }
    [[nodiscard]] std::int64_t n_nodes() const { return static_cast<std::int64_t>(parents_.size()); }
    [[nodiscard]] NodeId parent(NodeId node) const { return parents_[node.row]; }
    [[nodiscard]] std::int64_t slot(NodeId node) const { return slots_[node.row]; }
    [[nodiscard]] bool is_certain(NodeId node) const { return draft_indices_[node.row] < 0; }
    /// Returns the number of draft nodes that were added before this one, a draft node.
    [[nodiscard]] std::int32_t draft_index(NodeId node) const { return draft_indices_[node.row]; }
    [[nodiscard]] std::int32_t n_drafts() const { return n_drafts_; }

    /// Adds a node below `parent` (kCommittedTip or an existing node) and returns it. Its slot must be within the
    /// context, and fewer than max_nodes() nodes may exist; a certain node must be below the committed tip or a certain
    /// node (all CHECKed). Nodes are numbered from 0 after forget().
    NodeId add(NodeId parent, NodeKind kind = NodeKind::Draft);
    /// CHECKs that the first node of `path` is a child of the committed tip and each further one a child of the node
    /// before it.
    void check_path(std::span<const NodeId> path) const;
    /// Drops all nodes.
    void forget();
    /// Sets the number of committed slots. Does not change the slots of nodes: the caller must have none, or call
    /// forget().
    void set_committed(std::int64_t n_slots);

private:
    std::int64_t context_tokens_;
    std::int64_t max_nodes_;
    std::int64_t n_committed_ = 0;
    std::vector<NodeId> parents_;              // [n_nodes]
    std::vector<std::int64_t> slots_;          // [n_nodes]
    std::vector<std::int32_t> draft_indices_;  // [n_nodes]; -1: the node is certain
    std::int32_t n_drafts_ = 0;
};

}  // namespace slipstream
