// What sources share that draft from a model's logits: a draft model over a window of the sequence (draft_model.h), and
// the target over a KV view (self_draft_model.h). They grow a tree level by level and rank children by their
// probabilities and by the noise with which the target will draw (drafter-invariant sampling, E2).
//
// Two source files: logit_source.cpp expands nodes, logit_source_guess.cpp proposes the children of an expanded node.
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

/// What is kept of the logits after a node.
enum class DraftRows : std::uint8_t {
    Best,   // only the best logits of a row, as many as proposals are chosen from
    Whole,  // the whole row as well, for distribution() and logits()
};

/// Sizes of a LogitSource, fixed when it is made.
struct LogitSourceShape {
    std::int64_t n_ids = 0;      // ids that are proposed and fed; logits of others are ignored
    std::int64_t max_nodes = 1;  // most nodes of one tree, node 0 included: memory is allocated for them
    std::int64_t max_lead = 0;   // most tokens of the sequence that a pass feeds before node 0
    std::int64_t max_rows = 0;   // most logits rows of one pass; more nodes take several passes. 0: max_nodes
    DraftRows rows = DraftRows::Best;
    float rank_error = kModelRankError;  // see ModelSource
    bool by_level = false;  // whether a node's parent must be computed in an earlier pass; more levels take several
};

/// Base of sources that make passes of a model. Used by one thread.
class LogitSource : public ModelSource {
public:
    /// Returns the number of calibration bins: six classes of a child's position among the proposals (0, 1, 2, 3, 4-7,
    /// 8 and more) by ten of certainty. Without noise, certainty is the child's probability. With noise, it is the
    /// difference of log p + gumbel between the child and the best child, for the best child between it and the second.
    [[nodiscard]] std::uint16_t n_bins() const override;
    [[nodiscard]] float rank_error() const override { return rank_error_; }
    [[nodiscard]] std::int64_t max_nodes() const override { return max_nodes_; }
    /// Sets the sampling options of the target, and forgets the tree.
    void set_sampling(const SamplerOptions& sampling) override;
    void expand(const TokenTree& tree, std::span<const TokenId> text, std::span<const TreeNode> nodes) override;
    /// Writes the children that survive the target's filters first, ordered by probability and noise; then, if `out`
    /// has room, the most probable other tokens. Greedily (temperature 0) the order is that of the logits, and
    /// probabilities are those of temperature rank_error().
    [[nodiscard]] std::size_t propose(TreeNode node, std::int64_t position, const PathNoise& noise,
                                      std::span<Proposal> out) override;
    /// Returns the distribution after an expanded node, with the target's filters, valid until the next call. Needs
    /// whole rows (DraftRows::Whole, CHECKed).
    [[nodiscard]] std::span<const Candidate> distribution(TreeNode node) override;
    [[nodiscard]] double expand_seconds(std::int64_t n_nodes) const override;
    [[nodiscard]] std::int64_t passes() const override { return n_passes_; }
    /// Returns the logits after an expanded node, [n_ids], before filters. Valid until the next expand() or observe().
    /// Needs whole rows (DraftRows::Whole, CHECKed).
    [[nodiscard]] std::span<const float> logits(TreeNode node) const;

protected:
    struct Expanded {
        std::int32_t parent;  // index in expanded_, -1 for node 0
        TokenId token;
        std::size_t n_best = 0;  // number of entries in the node's row of best_: the best tokens after it
    };

    /// `sampling` is the target's. `planned_seconds` may be empty: pass times are then learnt from the passes.
    LogitSource(const LogitSourceShape& shape, const SamplerOptions& sampling, PlannedSeconds planned_seconds);

    // What a source must implement.

    /// Prepares a tree after `text`: feeds what the KV lacks of `text`, except for the last part, at least one token,
    /// which it must pass to lead() for the tree's first pass.
    virtual void start_tree(std::span<const TokenId> text) = 0;
    /// Adds a scratch row of the KV that continues the path of `parent`, and returns it.
    virtual NodeId add_node(NodeId parent) = 0;
    /// Makes one pass over `tokens` at the KV rows `nodes`, [n] each. Returns the logits of the tokens with the indices
    /// `logit_tokens`, valid until the next pass.
    virtual LogitRows run(std::span<const TokenId> tokens, std::span<const NodeId> nodes,
                          std::span<const std::int32_t> logit_tokens, const LogitRequest& needs) = 0;
    /// Returns the number of positions in the KV, for the curve of pass times.
    [[nodiscard]] virtual std::int64_t n_cached() const = 0;

    // What a source may use.

    /// Returns the curve of the times of passes over trees, by the number of tokens in a pass, those of lead()
    /// included.
    [[nodiscard]] PassCurve& pass_curve() { return pass_curve_; }
    [[nodiscard]] std::int64_t n_ids() const { return n_ids_; }
    /// Returns `token`, or 0 if the model does not have that id.
    [[nodiscard]] TokenId known(TokenId token) const { return token < n_ids_ ? token : 0; }
    /// Adds tokens of the sequence, the lead, before the draft nodes of the next pass, each below the one before; the
    /// last one is node 0. Also for a pass without a tree, after which the caller must clear pass_tokens_ and
    /// pass_nodes_.
    void lead(std::span<const TokenId> tokens);
    void forget_tree();
    /// Returns the nodes expanded since the tree's first expand(), in order of expansion.
    [[nodiscard]] std::span<const Expanded> expanded() const { return expanded_; }
    [[nodiscard]] std::int64_t n_lead() const { return n_lead_; }
    [[nodiscard]] NodeId row_of(std::int32_t index) const {
        return NodeId(static_cast<std::int32_t>(n_lead_ - 1 + index));
    }

    std::vector<TokenId> pass_tokens_;  // [n_tokens] of the next pass
    std::vector<NodeId> pass_nodes_;    // [n_tokens]: KV row of each

private:
    void size_for(const SamplerOptions& sampling);
    void append(TokenId token, NodeId parent);
    [[nodiscard]] std::size_t n_at_once(const TokenTree& tree, std::span<const TreeNode> nodes) const;
    void expand_all(const TokenTree& tree, std::span<const TokenId> text, std::span<const TreeNode> nodes);
    void expand_at_once(const TokenTree& tree, std::span<const TreeNode> nodes);
    [[nodiscard]] std::int32_t index_of(TreeNode node) const;
    void remember_history(std::span<const TokenId> text);
    [[nodiscard]] std::span<const TokenId> path_of(std::int32_t index);
    void keep_rows(const LogitRows& rows, std::int32_t first);
    [[nodiscard]] std::span<TopToken> best_of(std::int32_t index);

    std::int64_t n_ids_;
    std::int64_t max_nodes_;
    std::int64_t max_rows_;
    bool by_level_;
    Sampler sampler_;  // samples with the target's options
    float rank_error_;
    GuessList list_;      // candidates for the children of the node that propose() was last asked for
    RowTop row_top_;      // of a row
    LogitRequest needs_;  // of a pass

    std::vector<Expanded> expanded_;      // [n] nodes of the tree, in order of expansion
    std::vector<std::int32_t> index_of_;  // [nodes of the tree]: index in expanded_; -1: not expanded
    std::int64_t n_lead_ = 0;             // tokens of the sequence before the draft nodes; the last is node 0
    std::vector<TopToken> best_;    // [max_nodes, list_.n_listed()]: best tokens after each expanded node, best first
    std::vector<float> logits_;     // [max_nodes, n_ids]: logits after each expanded node; empty under DraftRows::Best
    std::vector<TokenId> history_;  // tokens that penalties count: the sequence's end, a node's path
    std::size_t n_history_ = 0;     // tokens of the sequence in history_
    std::vector<std::int32_t> logit_rows_;  // [n_nodes]: indices of the tokens of a pass whose logits are computed
    std::int64_t n_passes_ = 0;             // passes over nodes of trees

    PassCurve pass_curve_;  // times of passes over trees, by number of tokens, those of lead() included
};

}  // namespace slipstream::draft
