// The KV cache of one text: committed positions in chunks, and a scratch of rows for nodes that are not committed.
//
// Invariant of its users: the cache holds all committed tokens but the last; a pass feeds whatever is missing, hangs
// guesses under it, and then commits one path. Scratch nodes survive passes until commit() or forget(), so a draft
// model can grow its tree level by level. Committing moves rows, it computes nothing.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/attention.h"
#include "kernels/device.h"

namespace slipstream {

/// A row of the scratch.
using NodeId = std::int32_t;
/// Parent of a node that hangs directly under the last committed position.
inline constexpr NodeId kCommittedTip = -1;

class KvCache {
public:
    /// Memory for `context_tokens` positions (rounded up to chunks) and `max_nodes` scratch rows of every layer, taken
    /// once, in extents of 16 chunks of one layer. Throws OutOfBudget.
    KvCache(Device& device, const KvShape& shape, std::int64_t n_layers, std::int64_t context_tokens,
            std::int64_t max_nodes);

    [[nodiscard]] const KvShape& shape() const { return shape_; }
    [[nodiscard]] std::int64_t n_layers() const { return n_layers_; }
    [[nodiscard]] std::int64_t context_tokens() const { return context_tokens_; }
    [[nodiscard]] std::int64_t n_committed() const { return n_committed_; }
    [[nodiscard]] std::int64_t n_nodes() const { return static_cast<std::int64_t>(parents_.size()); }
    [[nodiscard]] std::int64_t max_nodes() const { return max_nodes_; }
    [[nodiscard]] NodeId parent(NodeId node) const { return parents_[static_cast<std::size_t>(node)]; }
    /// Absolute position of a node.
    [[nodiscard]] std::int64_t position(NodeId node) const { return positions_[static_cast<std::size_t>(node)]; }

    /// A new scratch row below `parent` (kCommittedTip or an existing node). Its position must lie inside the context
    /// and the scratch must have room: both CHECKed, since the loop plans for them. Rows are numbered from 0 after a
    /// commit.
    NodeId add_node(NodeId parent);
    /// Moves the rows of `path` (its first node hangs under the committed tip, each next one under the one before)
    /// behind the committed ones in every layer, in stream order; all other nodes are forgotten.
    void commit(ExecRef exec, std::span<const NodeId> path);
    /// Drops all nodes.
    void forget();
    /// Keeps the first `n_tokens` committed positions and drops all nodes.
    void truncate(std::int64_t n_tokens);

    [[nodiscard]] std::byte* const* chunks(std::int64_t layer) const { return chunks_.data() + layer * n_chunks_; }
    [[nodiscard]] std::byte* scratch_k(std::int64_t layer) const { return scratch_row_base(2 * layer); }
    [[nodiscard]] std::byte* scratch_v(std::int64_t layer) const { return scratch_row_base(2 * layer + 1); }

private:
    [[nodiscard]] std::byte* scratch_row_base(std::int64_t index) const {
        return scratch_.data() + static_cast<std::size_t>(index * max_nodes_) * shape_.scratch_row_bytes();
    }

    KvShape shape_;
    std::int64_t n_layers_;
    std::int64_t context_tokens_;
    std::int64_t n_chunks_;  // of a layer
    std::int64_t max_nodes_;
    std::int64_t n_committed_ = 0;
    std::vector<Buffer> extents_;
    std::vector<std::byte*> chunks_;       // [n_layers * n_chunks]
    Buffer scratch_;                       // [n_layers][K|V][max_nodes][n_kv_heads][head_dim]
    std::vector<NodeId> parents_;          // [n_nodes]
    std::vector<std::int64_t> positions_;  // [n_nodes]
};

}  // namespace slipstream
