// The target itself as a source, over a view of its KV that is small and resident: the middle level of TriForce's
// hierarchy (Sun et al. 2024, arXiv 2404.11912, section 4.3). Weights are the target's own, so a pass costs what a
// resident pass of few tokens costs; the KV that would have to cross the link is left out but for what matters.
//
// The view follows the target's passes by itself (runtime/view/view_builder.h), on as many devices as the target has
// (runtime/view/view_passes.h). While it stands for nothing, at a
// text's beginning or behind a cut, this source is not ready, and others guess.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "draft/models/logit_source.h"
#include "runtime/view/view_passes.h"

namespace slipstream::draft {

struct SelfDraftOptions {
    std::int64_t max_nodes = 64;  // of one tree, node 0 included
    DraftRows rows = DraftRows::Best;
};

class SelfDraftModel final : public LogitSource {
public:
    /// Not ready before attach(). `vocab` and `sampling` are the target's.
    SelfDraftModel(std::int64_t vocab, const SamplerOptions& sampling, const SelfDraftOptions& options);
    /// Guesses by `passes` over a view with room for max_nodes() nodes (CHECKed), which outlive this.
    /// `planned_seconds`: of a pass behind so many slots; empty: passes tell by and by.
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
    [[nodiscard]] std::int64_t n_cached() const override { return passes_->n_slots(); }

    ViewPasses* passes_ = nullptr;  // null: not attached
};

}  // namespace slipstream::draft
