// The target itself as a source (self-speculation), over a small, resident KV view: the middle level of TriForce's
// draft hierarchy (Sun et al. 2024, arXiv 2404.11912, section 4.3). The weights are the target's, so a pass takes as
// long as a resident pass of few tokens; of the KV that would have to cross the link, only what matters most is read.
//
// The KV view follows the target's passes by itself (runtime/view/view_builder.h), on as many devices as the target has
// (runtime/ranks/view_passes.h). While it is invalid, at the start of a sequence or after a cut, this source is not
// ready, and the other sources draft.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "draft/models/logit_source.h"
#include "runtime/ranks/view_passes.h"

namespace slipstream::draft {

/// ModelSource::rank_error() of a target over a view of its KV, in nats. 0.1, 0.25, 0.4 and 0.8 give 0.24, 0.20, 0.21
/// and 0.29 nats of surprise per node on a book, and 0.094, 0.081, 0.074 and 0.091 on code (draft/NOTES.md).
inline constexpr float kViewRankError = 0.25F;

struct SelfDraftOptions {
    std::int64_t max_nodes = 64;  // most nodes of one tree, node 0 included
    DraftRows rows = DraftRows::Best;
};

/// The target over a KV view as a source, `--draft retrieval`. Not thread-safe.
class SelfDraftModel final : public LogitSource {
public:
    /// Not ready before attach(). `vocab` and `sampling` are the target's.
    SelfDraftModel(std::int64_t vocab, const SamplerOptions& sampling, const SelfDraftOptions& options);
    /// Drafts by `passes` from now on, over a KV view with room for max_nodes() nodes (CHECKed). `passes` must outlive
    /// this object. `planned_seconds(n, slots)`: seconds of a pass over n tokens with `slots` KV slots in the view;
    /// empty: learnt from the passes.
    void attach(ViewPasses& passes, PlannedSeconds planned_seconds);

    [[nodiscard]] std::string_view name() const override { return "retrieval"; }
    [[nodiscard]] bool ready(std::span<const TokenId> text) const override {
        return passes_ != nullptr && passes_->n_text() > 0 && passes_->n_text() == std::ssize(text) - 1;
    }
    void observe(const Observation& observation) override;

private:
    void start_tree(std::span<const TokenId> text) override;
    NodeId add_node(NodeId parent) override { return passes_->add_node(parent); }
    LogitRows run(std::span<const TokenId> tokens, std::span<const NodeId> nodes,
                  std::span<const std::int32_t> logit_tokens, const LogitRequest& needs) override;
    [[nodiscard]] std::int64_t n_cached() const override { return passes_->n_read(); }

    ViewPasses* passes_ = nullptr;  // null: not attached
};

}  // namespace slipstream::draft
