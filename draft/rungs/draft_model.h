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
//
// Two files: draft_model.cpp keeps the cache and runs the passes, draft_model_guess.cpp says what comes behind a node.
// Invariant: nothing proposed here can change the output.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "draft/control/pass_curve.h"
#include "draft/rungs/guess_list.h"
#include "draft/rungs/model_source.h"
#include "draft/rungs/window_kv.h"
#include "runtime/pass/forward.h"

namespace slipstream::draft {

/// What is kept of the logits behind a node.
enum class DraftRows : std::uint8_t {
    Best,   // as many of the best as guesses are chosen from
    Whole,  // all, too: for distribution()
};

struct DraftModelOptions {
    std::int64_t max_nodes =
        64;              // of one tree, node 0 included: memory is taken for them; at most half the model's context
    WindowShape window;  // cut to what the model's context leaves
    GraphUse graphs = GraphUse::Allowed;
    PassPlan pass_plan;  // of the model behind its window; empty: passes tell by and by
    DraftRows rows = DraftRows::Best;
};

class DraftModel final : public ModelSource {
public:
    /// `model` outlives this; `sampling` is the target's, and `target_vocab` the width of its logits: ids beyond the
    /// narrower of the two are neither proposed nor fed. Takes all memory now, but for what the text's own copy grows
    /// by. Throws OutOfBudget, and RequestError where the model's context is too short for a window.
    DraftModel(const Model& model, std::int64_t target_vocab, const SamplerOptions& sampling,
               const DraftModelOptions& options = {});

    [[nodiscard]] std::string_view name() const override { return "model"; }
    /// Six classes of rank (0, 1, 2, 3, 4-7, 8 and more) by ten of certainty: without noise the child's probability,
    /// with noise how far its rank value lies below the best child's, and the best's above the second's.
    [[nodiscard]] std::uint16_t n_cells() const override;
    [[nodiscard]] std::int64_t max_nodes() const override { return max_nodes_; }

    void observe(const Observation& observation) override;
    void expand(const TokenTree& tree, std::span<const TokenId> text, std::span<const std::int32_t> nodes) override;
    /// What the filters leave comes first, all of it ranked; then, where `out` has room, the likeliest others.
    /// Greedily (temperature 0) the order is the logits' and probabilities are those at temperature 1.
    [[nodiscard]] std::size_t propose(std::int32_t node, std::int64_t position, const PathNoise& noise,
                                      std::span<Proposal> out) override;
    /// Whole rows are at hand (CHECKed; DraftRows).
    [[nodiscard]] std::span<const Candidate> distribution(std::int32_t node) override;
    [[nodiscard]] double expand_seconds(std::int64_t n_nodes) const override { return pass_curve_.at(n_nodes); }
    /// What passes take, those of the text that catch up included.
    [[nodiscard]] PassCurve* pass_curve() override { return &pass_curve_; }

    /// Logits behind an expanded node, [n_ids], before filters; n_ids is the narrower vocabulary. Valid until the next
    /// expand() or observe(). Whole rows are at hand (CHECKed; DraftRows).
    [[nodiscard]] std::span<const float> logits(std::int32_t node) const;
    [[nodiscard]] const WindowKv& window() const { return window_; }
    /// What crossed the link as logits.
    [[nodiscard]] LogitFigures logit_figures() const { return forward_.logit_figures(); }

private:
    struct Expanded {
        std::int32_t parent;  // index among the expanded, -1 for node 0
        TokenId token;
        std::size_t n_best = 0;  // in best_
    };

    [[nodiscard]] ExecRef exec() { return forward_.exec(); }
    [[nodiscard]] TokenId known(TokenId token) const { return token < n_ids_ ? token : 0; }
    [[nodiscard]] std::int32_t index_of(std::int32_t node) const;
    [[nodiscard]] NodeId row_of(std::int32_t index) const { return static_cast<NodeId>(n_lead_ - 1 + index); }
    void forget_tree();
    void commit_accepted(std::span<const TokenId> text);
    void remember(std::span<const TokenId> text);
    void take_back(std::span<const TokenId> text);
    void start_tree(std::span<const TokenId> text);
    void catch_up(std::span<const TokenId> text);
    void make_room(std::span<const TokenId> text);
    void feed(std::span<const TokenId> text, std::int64_t end);
    void append_node(TokenId token, NodeId parent);
    [[nodiscard]] std::span<const TokenId> path_of(std::int32_t index);
    void keep_rows(const LogitRows& rows, std::int32_t first);
    [[nodiscard]] std::span<TopToken> best_of(std::int32_t index);

    std::int64_t n_ids_;  // that both models know
    std::int64_t max_nodes_;
    Forward forward_;
    WindowKv window_;
    Sampler sampler_;            // as the target's
    GuessList list_;             // of the node asked for last
    RowTop row_top_;             // of a row
    LogitRequest needs_;         // of a pass
    std::vector<TokenId> text_;  // [window_.n_tokens()]: what the cache stands for

    // The tree since its first expand().
    std::vector<Expanded> expanded_;        // [n], in order of expansion
    std::vector<std::int32_t> index_of_;    // [nodes of the tree so far], -1: not expanded
    std::int64_t n_lead_ = 0;               // tokens in front of the guesses, node 0 the last
    std::vector<TopToken> best_;            // [max_nodes, list_.n_listed()], best first
    std::vector<float> logits_;             // [max_nodes, n_ids], or empty: DraftRows
    std::vector<TokenId> history_;          // what the penalty sees: the text's end, then a node's path
    std::size_t n_history_ = 0;             // of the text's
    std::vector<TokenId> pass_tokens_;      // [n_tokens] of a pass
    std::vector<NodeId> pass_nodes_;        // [n_tokens]
    std::vector<std::int32_t> logit_rows_;  // [n_nodes]
    std::vector<NodeId> path_;

    PassCurve pass_curve_;  // by tokens, those that catch up included
};

}  // namespace slipstream::draft
