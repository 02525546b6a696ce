// Grows the merged tree: one best-first search over the proposals of all sources, under one budget.
//
// A node's score is the product of the estimated acceptance probabilities along its path, that is, the probability that
// a pass commits it. Nodes are taken by falling score. When a node is taken, every table is asked for its children;
// proposals of the same token are merged (votes.h), and the children become candidates for the next node. With noise, a
// child's estimate is the probability that log p + gumbel makes it the target's choice. Every prefix of the list of
// taken nodes is a tree, so the best tree is the prefix with the greatest expected tokens less the worth of its time.
// The search goes on at least until no longer prefix can be better, or the budget is full.
//
// Models are asked in batches, the cheapest first, about those nodes of the tree at which their votes gain most, as
// long as the gain is worth the time. After each batch the search starts again with all votes known by then, so a cheap
// model selects the batches of an expensive one. (Best-first trees of a draft model under one budget: SpecExec,
// Svirschevski et al. 2024, arXiv 2406.02532; Sequoia, Chen et al. 2024, arXiv 2402.12374. One model drafting for the
// next: TriForce, Sun et al. 2024, arXiv 2404.11912, section 4.3.)
//
// tree_builder.cpp searches, model_asking.cpp decides when a model is asked, tree_builder_learn.cpp learns from a
// verified tree.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "draft/control/pass_curve.h"
#include "draft/models/model_source.h"
#include "draft/sources/table_source.h"
#include "draft/tree/votes.h"

namespace slipstream::draft {

/// Input of TreeBuilder::grow(): the sequence that a tree continues, the limits of the tree, and what time is worth.
struct BuildRequest {
    std::span<const TokenId> text;     // all committed tokens, the tree's root last
    std::int64_t budget = 1;           // most nodes, node 0 included
    std::int64_t max_depth = 0;        // greatest depth of a node; node 0 has depth 0
    const PathNoise* noise = nullptr;  // not null; may be an absent noise
    const PassCurve* curve = nullptr;  // pass times of the target; null: fill the budget at any cost
    /// Seconds that a token is worth (control/draft_control.h); > 0 if there is a curve.
    double seconds_per_token = 0.0;
    double realised_fraction = 1.0;  // accepted / expected draft tokens of recent passes
};

/// Result of the verification of a tree.
struct BuildOutcome {
    std::span<const TreeNode> accepted{};  // nodes of the tree, node 0 first
    std::span<const TokenId> came{};       // [accepted]: the target's token after each accepted node
    LogitRows logits{};                    // [tree size, vocab]; may be empty
    double temperature = 0.0;              // the target's sampling temperature
};

/// Counts of one source's proposals in all trees so far, and the seconds spent in the source.
struct GuessCounts {
    std::int64_t offered = 0;   // nodes that the source proposed and whose parent was accepted
    std::int64_t accepted = 0;  // number of the offered nodes that were accepted
    std::int64_t parents = 0;   // accepted nodes below which the source offered one or more
    double seconds = 0.0;
};

/// Grows one tree after another and learns from each. Not thread-safe.
class TreeBuilder {
public:
    /// Sources are numbered by position: `tables`, then `models`, cheap to expensive. They must outlive the builder.
    /// Token ids must be in [0, vocab).
    TreeBuilder(std::vector<TableSource*> tables, std::span<ModelSource* const> models, std::int64_t vocab);

    /// Grows `tree` (node 0 only, CHECKed), within the limits of `request`. Returns the tokens that its pass is
    /// expected to commit, not scaled by request.realised_fraction.
    double grow(TokenTree& tree, const BuildRequest& request);
    /// Learns from the verification of the tree that was grown last. Nodes that were added to it afterwards are
    /// ignored.
    void learn(const BuildOutcome& outcome);
    /// Returns the sources that proposed `node` of the tree grown last, bit i for source i; 0 for node 0, and for nodes
    /// that were added to the tree afterwards.
    [[nodiscard]] std::uint32_t named_by(TreeNode node);

    /// Returns the number of nodes of the tree grown last, node 0 included.
    [[nodiscard]] std::int64_t grown_nodes() const { return std::ssize(taken_); }

    /// Returns the counts of each source, by its number.
    [[nodiscard]] std::span<const GuessCounts> counts() const { return counts_; }
    [[nodiscard]] Calibration& calibration() { return votes_.calibration(); }
    [[nodiscard]] const Calibration& calibration() const { return votes_.calibration(); }
    /// Forgets everything learnt; the counts stay.
    void reset();

private:
    static constexpr std::size_t kMaxProposals = 128;  // most proposals of one source at one node
    // First pause between two attempts to ask a model that does not seem to pay, in trees.
    static constexpr std::int64_t kTryAgainAfter = 24;
    static constexpr float kModelGain = 0.7F;  // assumed Model::gain before any data, so that the model is tried

    // A node of the search.
    struct Node {
        Votes::Range children;
        std::uint32_t asked = 0;  // models that were asked about the node, a bit each
        float score = 0.0F;
        float covered = 0.0F;          // sum of the estimates of its children that were taken
        TreeNode place = kNoTreeNode;  // node of the grown tree, or kNoTreeNode
    };
    // A child that may be taken; the best one is taken next.
    struct Offer {
        float score;
        VotedIndex token;
        SearchNode parent;
    };
    struct Model {
        ModelSource* source;
        // Recent mean over the accepted nodes that it was asked about: 1 if it proposed the token that came, else 0.
        float gain = kModelGain;
        std::int64_t pause = kTryAgainAfter;  // trees until it is tried although it does not seem to pay
        std::int64_t next_pause = kTryAgainAfter;
    };

    void begin(const BuildRequest& request);
    [[nodiscard]] SearchNode make_node(SearchNode parent, TokenId token);
    void advance_cursors(SearchNode node);
    void ask(SearchNode node, const BuildRequest& request);
    void search(const BuildRequest& request);
    void offer_children(SearchNode node, const BuildRequest& request);
    [[nodiscard]] double gain_of(const BuildRequest& request, std::size_t n) const;
    [[nodiscard]] bool can_exceed(const BuildRequest& request, double gain, double most) const;
    [[nodiscard]] std::size_t best_length(const BuildRequest& request) const;
    [[nodiscard]] float place_cost(const BuildRequest& request) const;
    [[nodiscard]] double choose_batch(std::size_t model, const BuildRequest& request);
    [[nodiscard]] bool ask_model(std::size_t model, const BuildRequest& request);
    void learn_node(SearchNode node, TokenId came, const TargetProbabilities* target);
    [[nodiscard]] bool is_asked(SearchNode node, std::size_t model) const {
        return (at(node).asked >> model & 1U) != 0;
    }
    [[nodiscard]] Node& at(SearchNode node) { return nodes_[static_cast<std::size_t>(node)]; }
    [[nodiscard]] const Node& at(SearchNode node) const { return nodes_[static_cast<std::size_t>(node)]; }
    // Returns the node of arena_ of a node of the search: both have the same index.
    [[nodiscard]] static TreeNode in_arena(SearchNode node) { return TreeNode(static_cast<std::int32_t>(node)); }
    // Returns the node of the search of a node of arena_, or None for kNoTreeNode.
    [[nodiscard]] static SearchNode in_search(TreeNode arena_node) { return SearchNode{arena_node.index}; }
    [[nodiscard]] SearchNode parent_of(SearchNode node) const { return in_search(arena_.parent(in_arena(node))); }
    [[nodiscard]] std::int32_t depth_of(SearchNode node) const { return arena_.depth(in_arena(node)); }
    [[nodiscard]] TokenId token_of(SearchNode node) const { return arena_.token(in_arena(node)); }
    /// Returns the node's cursors, one for each of tables_.
    [[nodiscard]] Cursor* cursors_of(SearchNode node) {
        return cursors_.data() + static_cast<std::int32_t>(node) * tables_.size();
    }

    std::vector<TableSource*> tables_;
    std::vector<Model> models_;
    Votes votes_;
    std::vector<GuessCounts> counts_;
    float cutoff_;  // recent mean score of a tree's last node

    TokenTree arena_;              // every node that was ever taken for this tree
    std::vector<Node> nodes_;      // [arena]
    std::vector<Cursor> cursors_;  // [arena, tables_]; set for nodes that were asked about
    std::vector<Offer> offers_;    // heap, best first
    // Nodes taken so far by falling score, the root first; after grow() the nodes of the tree.
    std::vector<SearchNode> taken_;
    std::vector<double> expected_;  // [taken_]: tokens that the tree up to each node is expected to commit
    std::vector<TreeNode> batch_;   // nodes of arena_ that a model is asked about at once
};

}  // namespace slipstream::draft
