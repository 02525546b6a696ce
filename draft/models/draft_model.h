// The draft model as a source: a small model with a window KV of its own, which grows a tree level by level and ranks
// children by what it believes and by the noise that the target will draw with (E2).
//
// Its cache holds all committed tokens but the last, as the target's does: a tree's first pass feeds whatever suffix is
// missing in front of node 0, which covers all four cases of such caches (Leviathan et al. 2023, Chen et al.
// 2023), a rejected or never consumed guess among them. Rows of guesses that were accepted are committed as they are;
// accepted tokens that it never saw are fed with the next tree. Nothing is computed twice.
//
// A text longer than the window is not fed whole: the sinks and the last recent tokens enter, as if the text between
// had never been; and so it goes on when the window is full (window_kv.h).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "draft/models/logit_source.h"
#include "draft/models/window_kv.h"
#include "runtime/pass/forward.h"

namespace slipstream::draft {

/// Tokens of a text that a pass of it is fed.
inline constexpr std::int64_t kFedTokens = 128;

struct DraftModelOptions {
    std::int64_t max_nodes =
        64;              // of one tree, node 0 included: memory is taken for them; at most half the model's context
    WindowShape window;  // cut to what the model's context leaves
    GraphUse graphs = GraphUse::Allowed;
    PlannedSeconds planned_seconds;  // of the model behind its window; empty: passes tell by and by
    DraftRows rows = DraftRows::Best;
};

class DraftModel final : public LogitSource {
public:
    /// `model` outlives this; `sampling` is the target's, and `target_vocab` the width of its logits: ids beyond the
    /// narrower of the two are neither proposed nor fed. Takes all memory now, but for what the text's own copy grows
    /// by. Throws OutOfBudget, and RequestError where the model's context is too short for a window.
    DraftModel(const Model& model, std::int64_t target_vocab, const SamplerOptions& sampling,
               const DraftModelOptions& options = {});

    [[nodiscard]] std::string_view name() const override { return "model"; }
    void observe(const Observation& observation) override;

    [[nodiscard]] const WindowKv& window() const { return window_; }
    /// What crossed the link as logits.
    [[nodiscard]] LogitFigures logit_figures() const { return forward_.logit_figures(); }

private:
    void start_tree(std::span<const TokenId> text) override;
    NodeId add_node(NodeId parent) override { return window_.cache().add_node(parent); }
    LogitRows run(std::span<const TokenId> tokens, std::span<const NodeId> nodes,
                  std::span<const std::int32_t> logit_tokens, const LogitRequest& needs) override;
    [[nodiscard]] std::int64_t n_cached() const override { return window_.cache().n_committed(); }

    [[nodiscard]] ExecRef exec() { return forward_.exec(); }
    void commit_accepted(std::span<const TokenId> text);
    void remember(std::span<const TokenId> text);
    void take_back(std::span<const TokenId> text);
    void catch_up(std::span<const TokenId> text);
    void make_room(std::span<const TokenId> text);
    void feed(std::span<const TokenId> text, std::int64_t end);

    Forward forward_;
    WindowKv window_;
    std::vector<TokenId> text_;  // [window_.n_tokens()]: what the cache stands for
    std::vector<NodeId> path_;
};

}  // namespace slipstream::draft
