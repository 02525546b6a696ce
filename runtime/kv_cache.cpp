#include "runtime/kv_cache.h"

#include <algorithm>

#include "kernels/base/checked_math.h"

namespace slipstream {

namespace {

constexpr std::int64_t kChunksPerExtent = 16;

}  // namespace

KvCache::KvCache(Device& device, const KvShape& shape, std::int64_t n_layers, std::int64_t context_tokens,
                 std::int64_t max_nodes)
    : shape_(shape),
      n_layers_(n_layers),
      context_tokens_(context_tokens),
      n_chunks_(ceil_div(context_tokens, kChunkTokens)),
      max_nodes_(max_nodes) {
    CHECK(n_layers > 0 && context_tokens > 0 && max_nodes > 0);
    chunks_.reserve(static_cast<std::size_t>(n_layers * n_chunks_));
    for (std::int64_t layer = 0; layer < n_layers; ++layer) {
        for (std::int64_t first = 0; first < n_chunks_; first += kChunksPerExtent) {
            const std::int64_t n = std::min(kChunksPerExtent, n_chunks_ - first);
            extents_.push_back(
                device.allocate(static_cast<std::size_t>(n) * shape.chunk_bytes(), MemoryTag::Kv, "the KV cache"));
            for (std::int64_t i = 0; i < n; ++i)
                chunks_.push_back(extents_.back().data() + static_cast<std::size_t>(i) * shape.chunk_bytes());
        }
    }
    scratch_ = device.allocate(static_cast<std::size_t>(2 * n_layers * max_nodes) * shape.scratch_row_bytes(),
                               MemoryTag::Kv, "the KV scratch");
    parents_.reserve(static_cast<std::size_t>(max_nodes));
    positions_.reserve(static_cast<std::size_t>(max_nodes));
}

NodeId KvCache::add_node(NodeId parent) {
    CHECK(parent >= kCommittedTip && parent < n_nodes() && n_nodes() < max_nodes_, "node below {}, {} of {} in use",
          parent, n_nodes(), max_nodes_);
    const std::int64_t at = parent == kCommittedTip ? n_committed_ : position(parent) + 1;
    CHECK(at < context_tokens_, "position {} of a context of {}", at, context_tokens_);
    parents_.push_back(parent);
    positions_.push_back(at);
    return static_cast<NodeId>(n_nodes() - 1);
}

void KvCache::commit(ExecRef exec, std::span<const NodeId> path) {
    NodeId above = kCommittedTip;
    for (const NodeId node : path) {
        CHECK(node >= 0 && node < n_nodes() && parent(node) == above, "node {} does not follow {}", node, above);
        above = node;
    }
    for (std::int64_t layer = 0; layer < n_layers_; ++layer)
        kv_commit(exec, {.shape = shape_,
                         .scratch_k = scratch_k(layer),
                         .scratch_v = scratch_v(layer),
                         .scratch_rows = path.data(),
                         .n_rows = static_cast<std::int64_t>(path.size()),
                         .first_position = n_committed_,
                         .chunks = chunks(layer)});
    n_committed_ += static_cast<std::int64_t>(path.size());
    forget();
}

void KvCache::forget() {
    parents_.clear();
    positions_.clear();
}

void KvCache::truncate(std::int64_t n_tokens) {
    CHECK(n_tokens >= 0 && n_tokens <= n_committed_, "{} of {} positions", n_tokens, n_committed_);
    n_committed_ = n_tokens;
    forget();
}

}  // namespace slipstream
