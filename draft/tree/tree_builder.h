// The merged tree: one best-first search over what all sources propose, under one budget (design section 6).
//
// A node's score is the product of the acceptances estimated along its path, that is the probability that a pass
// commits it. Nodes are taken by falling score; the children of a node that was taken are asked for from every source,
// merged where they carry the same token (calibration.h), and compete for the next place. Where there is noise, a
// child's estimate is the probability that log p + gumbel makes it the target's choice. Taken in this order, every
// beginning of the list is a tree, so its best length is simply where expected tokens over time is greatest.
//
// A draft model is asked in batches: for those nodes of the tree where its word is worth most, as long as that is worth
// its time; then the search begins again with what is known by now. (Best-first trees of a draft model under one
// budget: SpecExec, Svirschevski et al. 2024, arXiv 2406.02532; Sequoia, Chen et al. 2024, arXiv 2402.12374.)
//
// Four files: tree_builder.cpp searches, tree_builder_ask.cpp puts together what sources say of one node,
// tree_builder_model.cpp decides when a draft model is asked, tree_builder_learn.cpp learns from the walk.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "draft/control/crew_choice.h"
#include "draft/control/pass_times.h"
#include "draft/rungs/batch_source.h"
#include "draft/sources/source.h"
#include "draft/tree/calibration.h"
#include "draft/tree/soft_target.h"

namespace slipstream::draft {

struct BuildRequest {
    std::span<const TokenId> text;  // all committed tokens, the tree's root last
    std::int64_t budget = 1;        // most nodes, node 0 included
    std::int64_t max_depth = 0;
    const PathNoise* noise = nullptr;
    const PassTimes* times = nullptr;  // null: fill the budget, whatever it costs
    double seconds_a_token = 0.0;      // that committing took of late, guessing included; 0: nobody knows
    Crew crew = Crew::Everyone;        // who is asked
};

/// What became of a tree.
struct BuildOutcome {
    std::span<const std::int32_t> accepted{};  // nodes of the tree, node 0 first
    std::span<const TokenId> came{};           // the target's token behind each of them
    LogitRows logits{};                        // [tree size, vocab], may be empty
    double temperature = 0.0;                  // of the target
};

/// What was offered and accepted of one source's guesses, of all trees so far.
struct GuessCounts {
    std::int64_t offered = 0;  // nodes whose parent was accepted
    std::int64_t accepted = 0;
};

class TreeBuilder {
public:
    /// Sources are named by their place, `model` (may be null) last. They outlive the builder. Token ids in [0, vocab).
    TreeBuilder(std::vector<Source*> sources, BatchSource* model, std::int64_t vocab);

    /// Seconds of each table source's proposals, of the draft model's at last, in all trees so far; tables are timed in
    /// one tree of eight, for the clock would cost as much as they do.
    [[nodiscard]] std::span<const double> seconds() const { return seconds_; }

    /// Grows `tree` (node 0 only). Returns the tokens that its pass is expected to commit.
    double grow(TokenTree& tree, const BuildRequest& request);
    /// Learns from the walk over the tree that was grown last, and tells whose guesses it went along.
    WalkShares learn(const BuildOutcome& outcome);
    /// The nodes of expanded_tree() that the accepted nodes of the tree grown last stand for, as far as it has them.
    [[nodiscard]] std::span<const std::int32_t> expanded_path(std::span<const std::int32_t> accepted);
    /// Who named `node` of the tree grown last, and how: one word a source; none for node 0.
    [[nodiscard]] std::vector<Calibration::Input> words_for(std::int32_t node) const;
    /// What the draft model was asked about: holds every node of the grown tree.
    [[nodiscard]] const TokenTree& expanded_tree() const { return arena_; }

    [[nodiscard]] std::span<const GuessCounts> counts() const { return counts_; }
    [[nodiscard]] Calibration& calibration() { return calibration_; }
    [[nodiscard]] const Calibration& calibration() const { return calibration_; }
    void reset();

private:
    static constexpr std::size_t kMaxProposals = 128;  // of one source at one node
    static constexpr std::int64_t kTryAgainAfter = 24;
    static constexpr float kModelGain = 0.7F;  // a hope, so that it is tried

    struct Node {
        std::int32_t first_candidate = -1;  // -1: not asked for yet
        std::int32_t n_candidates = 0;
        bool asked_model = false;
        float score = 0.0F;
        float covered = 0.0F;     // sum of estimates of its children in the tree
        std::int32_t above = -1;  // the candidate that it is
    };
    struct Candidate {
        TokenId token = 0;
        std::int32_t node = -1;  // in the arena, once taken
        float merged = 0.0F;     // probability, the noise unknown
        float reckoned = 0.0F;   // from that and the noise
        float estimate = 0.0F;   // of being accepted, given its parent is
        float by_tables = 0.0F;  // the same before a model was asked
        std::uint32_t first_input = 0;
        std::uint32_t n_inputs = 0;
        bool by_model = false;  // a model named it
    };
    struct Offer {  // a candidate that waits for its turn
        float score;
        std::int32_t candidate;
        std::int32_t parent;
    };
    struct Worth {   // of the draft model's word
        float gain;  // tokens
        std::int32_t node;
    };
    struct Word {  // of one source, before candidates are put together
        std::uint32_t slot;
        Calibration::Input input;
    };

    [[nodiscard]] bool is_asked(const Source& source, const BuildRequest& request) const;
    void begin(const BuildRequest& request);
    [[nodiscard]] std::int32_t make_node(std::int32_t parent, TokenId token);
    void ask(std::int32_t node, const BuildRequest& request);
    void put_together(std::int32_t node);
    void advance_cursors(std::int32_t node);
    void hear(std::uint16_t source, std::span<const Proposal> proposals);
    void hear_silence(std::size_t n_named_by_tables, std::span<const Word> by_model);
    static void reckon_by_tables(Candidate& candidate, std::int64_t position, const PathNoise& noise);
    static void reckon_by_model(std::span<Candidate> candidates, std::int64_t position, const PathNoise& noise);
    void estimate(std::span<Candidate> candidates, std::int64_t position, const PathNoise& noise, bool by_model) const;
    void search(const BuildRequest& request);
    void offer_children(std::int32_t node, const BuildRequest& request);
    [[nodiscard]] std::optional<Offer> best_offer();
    void prefetch(std::int32_t node, TokenId token) const;
    [[nodiscard]] double gain_of(const BuildRequest& request, std::size_t n) const;
    [[nodiscard]] std::size_t best_length(const BuildRequest& request) const;
    void weigh_asking(const BuildRequest& request, std::size_t length);
    [[nodiscard]] double choose_batch(const BuildRequest& request, double seconds_a_token);
    [[nodiscard]] bool ask_model(const BuildRequest& request);
    [[nodiscard]] std::span<Candidate> candidates_of(std::int32_t node);
    void learn_node(std::int32_t node, TokenId came, const RowTarget* target);
    [[nodiscard]] WalkShares shares_of(std::span<const std::int32_t> accepted) const;
    [[nodiscard]] float light_part(const Candidate& candidate) const;
    // What sources said of it, in their order.
    [[nodiscard]] std::span<const Calibration::Input> words_of(const Candidate& candidate) const {
        return {inputs_.data() + candidate.first_input, candidate.n_inputs};
    }
    // Those that its probability is merged from: under noise a model's word stands alone, for it is of this very place,
    // and the noise makes much of small differences.
    [[nodiscard]] std::span<const Calibration::Input> words_that_count(const Candidate& candidate) const {
        return noisy_ && candidate.by_model ? words_of(candidate).last(1) : words_of(candidate);
    }
    [[nodiscard]] bool is_silence(const Calibration::Input& input) const {
        return input.source == sources_.size() && input.cell == silent_cell_;
    }
    [[nodiscard]] std::size_t n_sources() const { return sources_.size() + (model_ != nullptr ? 1 : 0); }

    std::vector<Source*> sources_;
    BatchSource* model_;
    Calibration calibration_;
    std::vector<GuessCounts> counts_;
    std::vector<double> seconds_;
    std::int64_t n_trees_ = 0;

    TokenTree arena_;              // every node that was ever taken for this tree
    std::vector<Node> nodes_;      // of the arena
    std::vector<Cursor> cursors_;  // [arena][sources_], of nodes that were asked about
    std::vector<Candidate> candidates_;
    std::vector<Calibration::Input> inputs_;
    std::vector<std::int32_t> taken_;  // arena nodes by falling score, node 0 first
    std::vector<double> expected_;     // [taken]: tokens that the tree so far is expected to commit
    std::vector<Offer> offers_;        // a heap
    std::vector<Offer> late_offers_;   // of lower scores than late_score_, in no order
    float late_score_ = 0.0F;
    std::vector<std::int32_t> in_tree_;  // [grown tree]: the arena node of each
    std::vector<Word> words_;
    std::vector<Proposal> proposals_;   // [kMaxProposals]: room for what one source says
    std::size_t first_made_ = 0;        // of the candidates that are being put together: slot 0
    std::vector<std::uint8_t> named_;   // [slots]: by the model
    std::vector<std::uint32_t> slots_;  // [vocab]: 1 + slot; 0: none
    std::uint16_t silent_cell_;         // of the model: what it did not name
    std::vector<Worth> worth_;
    std::vector<std::int32_t> batch_;
    std::vector<std::int32_t> tree_place_;  // [arena]: the node's place in the grown tree; -1: none
    std::vector<std::int32_t> path_;
    std::int64_t n_asked_ = 0;       // nodes of this tree that the model was asked about
    bool noisy_ = false;             // this tree's request
    bool is_hurried_ = false;        // the same: its pass is short
    double tokens_a_second_ = 0.0;   // the same: what a second is worth
    std::int64_t n_learnt_ = 0;      // trees since reset()
    bool has_light_ = false;         // of the tables
    float usual_cutoff_ = 1e-3F;     // the score of the last node taken, of late
    float least_score_ = 0.0F;       // that pays for a place in the grown tree
    float too_near_ = 0.0F;          // nodes of a lower score are not asked about
    float model_gain_ = kModelGain;  // tokens that asking a draft model behind an accepted node brings, of late
    std::int64_t last_asked_ = 0;    // tree in which it was asked
    std::int64_t try_again_after_ = kTryAgainAfter;  // trees without asking it
};

}  // namespace slipstream::draft
