#include "runtime/pass/pass_paths.h"

namespace slipstream {

PassPaths::PassPaths(std::int64_t max_tokens) {
    const auto n = static_cast<std::size_t>(max_tokens);
    slots_.reserve(n);
    positions_.reserve(n);
    begin_.reserve(n);
    rows_.reserve(n * (n + 1) / 2);  // enough for a chain of n, in which path i has i + 1 rows
}

void PassPaths::clear() {
    slots_.clear();
    positions_.clear();
    begin_.clear();
    rows_.clear();
}

void PassPaths::trace(const PassKv& kv, std::span<const NodeId> nodes) {
    clear();
    const KvNodes& tree = kv.nodes();
    const std::int64_t offset = kv.text_offset();
    for (const NodeId node : nodes) {
        const std::int64_t slot = tree.slot(node);
        slots_.push_back(static_cast<std::int32_t>(slot));
        positions_.push_back(static_cast<std::int32_t>(slot + offset));
        begin_.push_back(static_cast<std::int32_t>(rows_.size()));
        rows_.resize(rows_.size() + static_cast<std::size_t>(slot - tree.n_committed() + 1));
        std::size_t at = rows_.size();
        for (NodeId step = node; step != kCommittedTip; step = tree.parent(step)) rows_[--at] = step.row;
    }
}

void PassPaths::trace_chain(std::int64_t begin, std::int64_t n) {
    clear();
    begin_.assign(n, 0);
    for (std::int64_t i = 0; i < n; ++i) {
        slots_.push_back(static_cast<std::int32_t>(begin + i));
        positions_.push_back(static_cast<std::int32_t>(begin + i));
        rows_.push_back(static_cast<std::int32_t>(i));
    }
}

}  // namespace slipstream
