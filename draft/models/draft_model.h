// The draft model as a source: a small model with a window KV of its own. It grows a tree level by level and ranks
// children by its probabilities and by the noise with which the target will draw (drafter-invariant sampling, E2).
//
// Its KV cache holds all committed tokens but the last, as the target's does. The first pass of a tree feeds the
// missing suffix before node 0, which covers all four cases of such caches (Leviathan et al. 2023, Chen et al. 2023),
// for example a draft token that was rejected or never used. Rows of accepted draft tokens are committed as they are.
// Accepted tokens that the model has not seen are fed with the next tree. Nothing is computed twice.
//
// A sequence longer than the window is not fed as a whole: only the sinks and the last recent tokens are, as if the
// tokens between them did not exist. The same happens when the window is full (window_kv.h).
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

/// Most tokens of the sequence that one pass feeds, before node 0. It bounds the memory of a pass, which has room for
/// this many tokens and max_nodes() more.
inline constexpr std::int64_t kFedTokens = 128;

struct DraftModelOptions {
    /// Most nodes of one tree, node 0 included: memory is allocated for them. Reduced to half of the model's context.
    std::int64_t max_nodes = 64;
    WindowShape window;  // window of the KV cache, reduced to what the model's context allows
    GraphUse graphs = GraphUse::Allowed;
    /// Time of the draft model's pass after n cached tokens; empty: learnt from passes.
    PlannedSeconds planned_seconds;
    DraftRows rows = DraftRows::Best;
};

/// A draft model as a source, `--draft model`. Not thread-safe.
class DraftModel final : public LogitSource {
public:
    /// `model` must outlive this object. `sampling` is the target's, and `target_vocab` the width of its logits: ids
    /// beyond the narrower of the two models are neither proposed nor fed. Allocates all memory now, except for the
    /// growth of its copy of the sequence. Throws OutOfBudget, and RequestError if the model's context is too short for
    /// a window.
    DraftModel(const Model& model, std::int64_t target_vocab, const SamplerOptions& sampling,
               const DraftModelOptions& options = {});

    [[nodiscard]] std::string_view name() const override { return "model"; }
    void observe(const Observation& observation) override;

    [[nodiscard]] const WindowKv& window() const { return window_; }
    /// Returns how many logits rows the model's passes computed, and how much of them was copied from its device.
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
    // Most tokens of the sequence that start_tree() may feed. observe() sets it when a text begins.
    std::int64_t most_fed_;
    bool draws_;  // DraftRows::Whole: draft tokens are drawn from its distributions (E3)
    // [window_.n_tokens()]: first tokens of the sequence, up to the last one in the window; those that the window has
    // dropped are here, too.
    std::vector<TokenId> text_;
    std::vector<NodeId> path_;
};

}  // namespace slipstream::draft
