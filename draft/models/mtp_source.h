// The target's own MTP head (runtime/model/proposing_head.h) as a source: one layer that proposes tokens from the
// target's hidden states. It grows a tree level by level; the hidden state of a child is what the head computed for its
// parent, which stays on the head's device.
//
// The head attends to a KV cache of its own: the row of position i needs the token at i + 1 and the target's hidden
// state at i. Hidden states are kept of the last positions of a text alone (the hidden tail,
// runtime/pass/hidden_tail.h), so of a long prompt the cache begins at the first of these: keeping all of them would
// take more memory than the KV, and computing them again, a pass of the target. Slot s holds position first + s; angles
// of keys and queries are those of slots, which is the same, since a rotary embedding tells distances. When the slots
// are full, the cache begins anew: at most half of them are filled again, and no more than the hidden tail has. All
// this decides what is proposed, never the text.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "draft/models/logit_source.h"
#include "runtime/cache/kv_cache.h"
#include "runtime/model/proposing_head.h"
#include "runtime/pass/head_pass.h"
#include "runtime/pass/hidden_tail.h"

namespace slipstream::draft {

/// Last positions of a text whose hidden states are kept for the head, besides those of a tree.
inline constexpr std::int64_t kHiddenRows = 512;
/// Returns how many of the last positions keep their hidden states beside trees of up to `budget` nodes.
[[nodiscard]] constexpr std::int64_t hidden_rows(std::int64_t budget) {
    return kHiddenRows + budget;
}
/// Most tokens of the sequence that one pass of the head takes before node 0.
inline constexpr std::int64_t kHeadFedTokens = 128;

struct MtpOptions {
    std::int64_t max_nodes = 64;     // most nodes of one tree, node 0 included
    std::int64_t n_slots = 1024;     // most positions in the KV cache
    PlannedSeconds planned_seconds;  // time of a pass of the head; empty: learnt from passes
};

/// The head as a source, `--draft mtp`. Not thread-safe.
class MtpSource final : public LogitSource {
public:
    /// Not ready before attach(). `head` must outlive this object; `sampling` is the target's. Allocates all memory
    /// now, except for the growth of its copy of the sequence. Throws OutOfBudget.
    MtpSource(const ProposingHead& head, const SamplerOptions& sampling, const MtpOptions& options);
    /// Returns what the constructor takes from the device's memory budget, without the workspace of workspace_shapes().
    /// `config`: that of the head's model.
    [[nodiscard]] static std::size_t device_bytes(const ModelConfig& config, DType kv_dtype, std::int64_t max_nodes,
                                                  std::int64_t n_slots);
    /// Returns what the constructor takes of page-locked host memory if the host does not share the device's memory.
    [[nodiscard]] static std::size_t pinned_bytes(const ModelConfig& config, std::int64_t max_nodes);
    [[nodiscard]] static WorkspaceShapes workspace_shapes(const ModelConfig& config, DType kv_dtype,
                                                          std::int64_t max_nodes);
    /// Drafts from the hidden states in `tail` from now on, which must follow the target and outlive this object.
    void attach(const HiddenTail& tail) { tail_ = &tail; }

    [[nodiscard]] std::string_view name() const override { return "mtp"; }
    [[nodiscard]] bool ready(std::span<const TokenId> text) const override {
        return tail_ != nullptr && tail_->end() == std::ssize(text) - 1 && tail_->begin() < tail_->end();
    }
    void observe(const Observation& observation) override;
    /// Returns the position of the KV cache's first slot, and the position after its last one.
    [[nodiscard]] std::int64_t first_cached() const { return first_; }
    [[nodiscard]] std::int64_t end_cached() const { return first_ + cache_.n_committed(); }

private:
    void start_tree(std::span<const TokenId> text) override;
    NodeId add_node(NodeId parent) override { return cache_.add_node(parent); }
    LogitRows run(std::span<const TokenId> tokens, std::span<const NodeId> nodes,
                  std::span<const std::int32_t> logit_tokens, const LogitRequest& needs) override;
    [[nodiscard]] std::int64_t n_cached() const override { return cache_.n_committed(); }

    void take_back(std::span<const TokenId> text);
    void commit_lead();  // the lead: the sequence's tokens in a tree's first pass, the last of them node 0

    HeadPass pass_;
    KvCache cache_;
    std::int64_t n_slots_;
    const HiddenTail* tail_ = nullptr;  // null: not attached
    std::int64_t first_ = 0;            // position of slot 0
    std::vector<TokenId> text_;  // the sequence up to the token of the last cached position, end_cached() + 1 tokens
    std::vector<NodeId> path_;
};

}  // namespace slipstream::draft
