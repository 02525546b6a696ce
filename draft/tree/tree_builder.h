// The merged tree: one best-first search over what all sources propose, under one budget.
//
// A node's score is the product of the acceptances estimated along its path, that is the probability that a pass
// commits it. Nodes are taken by falling score; the children of a node that was taken are asked for from every table,
// merged where they carry the same token (votes.h), and compete for the next place. Where there is noise, a child's
// estimate is the probability that log p + gumbel makes it the target's choice. Taken in this order, every beginning of
// the list is a tree, so its best length is simply where expected tokens less what their time is worth is greatest.
//
// Models are asked in batches, the cheapest first: for those nodes of the tree where their vote is worth most, as long
// as that is worth its time; then the search begins again with what is known by now. So a cheap model fills the batches
// of a dear one. (Best-first trees of a draft model under one budget: SpecExec, Svirschevski et al. 2024, arXiv
// 2406.02532; Sequoia, Chen et al. 2024, arXiv 2402.12374; one model guessing for the next: TriForce, Sun et al. 2024,
// arXiv 2404.11912, section 4.3.)
//
// tree_builder.cpp searches, model_asking.cpp decides when a model is asked, tree_builder_learn.cpp learns from the
// walk.
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

struct BuildRequest {
    std::span<const TokenId> text;  // all committed tokens, the tree's root last
    std::int64_t budget = 1;        // most nodes, node 0 included
    std::int64_t max_depth = 0;
    const PathNoise* noise = nullptr;
    const PassCurve* curve = nullptr;  // of the target; null: fill the budget, whatever it costs
    double seconds_per_token = 0.0;    // what time is worth, > 0 where there is a curve (control/draft_control.h)
    double realised_fraction = 1.0;    // of guessed tokens that were expected, the part that came
};

/// What became of a tree.
struct BuildOutcome {
    std::span<const std::int32_t> accepted{};  // nodes of the tree, node 0 first
    std::span<const TokenId> came{};           // the target's token behind each of them
    LogitRows logits{};                        // [tree size, vocab], may be empty
    double temperature = 0.0;                  // of the target
};

/// What was offered and accepted of one source's guesses, of all trees so far, and the seconds it took to make them.
struct GuessCounts {
    std::int64_t offered = 0;  // nodes whose parent was accepted
    std::int64_t accepted = 0;
    double seconds = 0.0;
};

class TreeBuilder {
public:
    /// Sources are numbered by their place: `tables`, then `models`, cheap to dear. They outlive the builder. Token ids
    /// in [0, vocab).
    TreeBuilder(std::vector<TableSource*> tables, std::span<ModelSource* const> models, std::int64_t vocab);

    /// Grows `tree` (node 0 only). Returns the tokens that its pass is expected to commit.
    double grow(TokenTree& tree, const BuildRequest& request);
    /// Learns from the walk over the tree that was grown last.
    void learn(const BuildOutcome& outcome);
    /// Who named `node` of the tree grown last, a bit a source; nobody node 0.
    [[nodiscard]] std::uint32_t named_by(std::int32_t node);

    /// Of each source.
    [[nodiscard]] std::span<const GuessCounts> counts() const { return counts_; }
    [[nodiscard]] Calibration& calibration() { return votes_.calibration(); }
    [[nodiscard]] const Calibration& calibration() const { return votes_.calibration(); }
    void reset();

private:
    static constexpr std::size_t kMaxProposals = 128;  // of one source at one node
    static constexpr std::int64_t kTryAgainAfter = 24;
    static constexpr float kModelGain = 0.7F;  // a hope, so that it is tried

    struct Node {
        Votes::Range children;
        std::uint32_t asked = 0;  // models, a bit each
        float score = 0.0F;
        float covered = 0.0F;     // sum of estimates of its children in the tree
        std::int32_t place = -1;  // in the grown tree; -1: none
    };
    struct Offer {  // a child that waits for its turn
        float score;
        VotedIndex token;
        SearchNode parent;
    };
    struct Model {
        ModelSource* source;
        float gain = kModelGain;  // expected tokens gained by asking the model after an accepted node, recently
        std::int64_t pause = kTryAgainAfter;  // trees without asking it before it is tried though it seems not to pay
        std::int64_t next_pause = kTryAgainAfter;
    };

    void begin(const BuildRequest& request);
    [[nodiscard]] SearchNode make_node(SearchNode parent, TokenId token);
    void advance_cursors(SearchNode node);
    void ask(SearchNode node, const BuildRequest& request);
    void search(const BuildRequest& request);
    void offer_children(SearchNode node, const BuildRequest& request);
    [[nodiscard]] double gain_of(const BuildRequest& request, std::size_t n) const;
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
    // Nodes of the search are those of arena_.
    [[nodiscard]] static std::int32_t in_arena(SearchNode node) { return static_cast<std::int32_t>(node); }
    [[nodiscard]] SearchNode parent_of(SearchNode node) const { return SearchNode{arena_.parent(in_arena(node))}; }
    [[nodiscard]] std::int32_t depth_of(SearchNode node) const { return arena_.depth(in_arena(node)); }
    [[nodiscard]] TokenId token_of(SearchNode node) const { return arena_.token(in_arena(node)); }
    /// Its cursors, one for each of tables_.
    [[nodiscard]] Cursor* cursors_of(SearchNode node) { return cursors_.data() + in_arena(node) * tables_.size(); }

    std::vector<TableSource*> tables_;
    std::vector<Model> models_;
    Votes votes_;
    std::vector<GuessCounts> counts_;
    float cutoff_;  // the score of the last node taken, of late

    TokenTree arena_;                  // every node that was ever taken for this tree
    std::vector<Node> nodes_;          // of the arena
    std::vector<Cursor> cursors_;      // [arena][tables_], of nodes that were asked about
    std::vector<Offer> offers_;        // a heap
    std::vector<SearchNode> taken_;    // by falling score, the root first; in the end [nodes of the grown tree]
    std::vector<double> expected_;     // [taken]: tokens that the tree so far is expected to commit
    std::vector<std::int32_t> batch_;  // [nodes that a model is asked about at once], indices into arena_
};

}  // namespace slipstream::draft
