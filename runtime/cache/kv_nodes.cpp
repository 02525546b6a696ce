#include "runtime/cache/kv_nodes.h"

#include "kernels/base/check.h"

namespace slipstream {

KvNodes::KvNodes(std::int64_t context_tokens, std::int64_t max_nodes)
    : context_tokens_(context_tokens), max_nodes_(max_nodes) {
    CHECK(context_tokens > 0 && max_nodes > 0, "{} nodes in a context of {}", max_nodes, context_tokens);
    parents_.reserve(max_nodes);
    slots_.reserve(max_nodes);
    draft_indices_.reserve(max_nodes);
}

NodeId KvNodes::add(NodeId parent, NodeKind kind) {
    CHECK(parent.row >= kCommittedTip.row && parent.row < n_nodes() && n_nodes() < max_nodes_,
          "node below {}, {} of {} in use", parent.row, n_nodes(), max_nodes_);
    const std::int64_t at = parent == kCommittedTip ? n_committed_ : slot(parent) + 1;
    CHECK(at < context_tokens_, "position {} of a context of {}", at, context_tokens_);
    parents_.push_back(parent);
    slots_.push_back(at);
    CHECK(kind == NodeKind::Draft || parent == kCommittedTip || is_certain(parent), "a certain node below draft {}",
          parent.row);
    draft_indices_.push_back(kind == NodeKind::Certain ? -1 : n_drafts_++);
    return NodeId(static_cast<std::int32_t>(n_nodes() - 1));
}

void KvNodes::check_path(std::span<const NodeId> path) const {
    NodeId above = kCommittedTip;
    for (const NodeId node : path) {
        CHECK(node.row >= 0 && node.row < n_nodes() && parent(node) == above, "node {} does not follow {}", node.row,
              above.row);
        above = node;
    }
}

void KvNodes::forget() {
    parents_.clear();
    slots_.clear();
    draft_indices_.clear();
    n_drafts_ = 0;
}

void KvNodes::set_committed(std::int64_t n_slots) {
    CHECK(n_slots >= 0 && n_slots <= context_tokens_, "{} slots of {}", n_slots, context_tokens_);
    n_committed_ = n_slots;
}

}  // namespace slipstream
