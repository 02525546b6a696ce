// What sources have in common that guess by a model's logits: a draft model over a window of the text (draft_model.h),
// the target over a view of its KV (self_draft_model.h). They grow a tree level by level and rank children by what they
// believe and by the noise that the target will draw with (E2).
//
// Two files: logit_source.cpp expands nodes, logit_source_guess.cpp says what comes behind one.
// Invariant: nothing proposed here can change the output.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "draft/control/pass_curve.h"
#include "draft/models/guess_list.h"
#include "draft/models/model_source.h"
#include "runtime/cache/kv_nodes.h"
#include "runtime/pass/logit_rows.h"

namespace slipstream::draft {

/// What is kept of the logits behind a node.
enum class DraftRows : std::uint8_t {
    Best,   // as many of the best as guesses are chosen from
    Whole,  // all, too: for distribution()
};

struct LogitSourceShape {
    std::int64_t n_ids = 0;      // ids that are proposed and fed; logits of others are not looked at
    std::int64_t max_nodes = 1;  // of one tree, node 0 included: memory is taken for them
    std::int64_t max_lead = 0;   // tokens of text that go along in front of node 0
    std::int64_t max_rows = 0;   // of logits of one pass; more nodes take several passes. 0: max_nodes
    DraftRows rows = DraftRows::Best;
};

class LogitSource : public ModelSource {
public:
    /// Six classes of rank (0, 1, 2, 3, 4-7, 8 and more) by ten of certainty: without noise the child's probability,
    /// with noise how far its rank value lies below the best child's, and the best's above the second's.
    [[nodiscard]] std::uint16_t n_bins() const override;
    [[nodiscard]] std::int64_t max_nodes() const override { return max_nodes_; }
    void expand(const TokenTree& tree, std::span<const TokenId> text, std::span<const std::int32_t> nodes) override;
    /// What the filters leave comes first, all of it ranked; then, where `out` has room, the likeliest others.
    /// Greedily (temperature 0) the order is the logits' and probabilities are those at temperature 1.
    [[nodiscard]] std::size_t propose(std::int32_t node, std::int64_t position, const PathNoise& noise,
                                      std::span<Proposal> out) override;
    /// Whole rows are at hand (CHECKed; DraftRows).
    [[nodiscard]] std::span<const Candidate> distribution(std::int32_t node) override;
    [[nodiscard]] double expand_seconds(std::int64_t n_nodes) const override;
    [[nodiscard]] std::int64_t passes() const override { return n_passes_; }
    /// What passes take, those of the text that catch up included.
    [[nodiscard]] PassCurve* pass_curve() override { return &pass_curve_; }

    /// Logits behind an expanded node, [n_ids], before filters. Valid until the next expand() or observe(). Whole rows
    /// are at hand (CHECKed; DraftRows).
    [[nodiscard]] std::span<const float> logits(std::int32_t node) const;

protected:
    struct Expanded {
        std::int32_t parent;  // index among the expanded, -1 for node 0
        TokenId token;
        std::size_t n_best = 0;  // in best_
    };

    /// `sampling` is the target's.
    LogitSource(const LogitSourceShape& shape, const SamplerOptions& sampling, PlannedSeconds planned_seconds);

    // What a source must do itself.

    /// A tree is to hang behind `text`: whatever the KV lacks of it is fed, and the rest of it, one token at least,
    /// goes into the tree's first pass by lead().
    virtual void start_tree(std::span<const TokenId> text) = 0;
    /// A new row of the KV below another.
    virtual NodeId add_node(NodeId parent) = 0;
    /// One pass over `tokens` at `nodes`: logits of those with the indices `logit_tokens`.
    virtual LogitRows run(std::span<const TokenId> tokens, std::span<const NodeId> nodes,
                          std::span<const std::int32_t> logit_tokens, const LogitRequest& needs) = 0;
    /// Positions that the KV holds, for the curve of passes.
    [[nodiscard]] virtual std::int64_t n_cached() const = 0;

    // What it may use.

    [[nodiscard]] std::int64_t n_ids() const { return n_ids_; }
    [[nodiscard]] TokenId known(TokenId token) const { return token < n_ids_ ? token : 0; }
    /// Tokens of the text go in front of the guesses, each below the one before; node 0 is the last. Also for a pass
    /// without a tree, whose tokens and rows the caller clears.
    void lead(std::span<const TokenId> tokens);
    void forget_tree();
    /// Of the tree since its first expand(), in order of expansion.
    [[nodiscard]] std::span<const Expanded> expanded() const { return expanded_; }
    [[nodiscard]] std::int64_t n_lead() const { return n_lead_; }
    [[nodiscard]] NodeId row_of(std::int32_t index) const {
        return NodeId(static_cast<std::int32_t>(n_lead_ - 1 + index));
    }

    std::vector<TokenId> pass_tokens_;  // [n_tokens] of a pass
    std::vector<NodeId> pass_nodes_;    // [n_tokens]

private:
    void append(TokenId token, NodeId parent);
    void expand_at_once(const TokenTree& tree, std::span<const std::int32_t> nodes);
    [[nodiscard]] std::int32_t index_of(std::int32_t node) const;
    void remember_history(std::span<const TokenId> text);
    [[nodiscard]] std::span<const TokenId> path_of(std::int32_t index);
    void keep_rows(const LogitRows& rows, std::int32_t first);
    [[nodiscard]] std::span<TopToken> best_of(std::int32_t index);

    std::int64_t n_ids_;
    std::int64_t max_nodes_;
    std::int64_t max_rows_;
    Sampler sampler_;     // as the target's
    GuessList list_;      // of the node asked for last
    RowTop row_top_;      // of a row
    LogitRequest needs_;  // of a pass

    std::vector<Expanded> expanded_;        // [n]
    std::vector<std::int32_t> index_of_;    // [nodes of the tree so far], -1: not expanded
    std::int64_t n_lead_ = 0;               // tokens in front of the guesses, node 0 the last
    std::vector<TopToken> best_;            // [max_nodes, list_.n_listed()], best first
    std::vector<float> logits_;             // [max_nodes, n_ids], or empty: DraftRows
    std::vector<TokenId> history_;          // what the penalty sees: the text's end, then a node's path
    std::size_t n_history_ = 0;             // of the text's
    std::vector<std::int32_t> logit_rows_;  // [n_nodes]
    std::int64_t n_passes_ = 0;             // over nodes of trees

    PassCurve pass_curve_;  // by tokens, those that catch up included
};

}  // namespace slipstream::draft
