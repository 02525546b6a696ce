// Merges the proposals of all sources for the children of one node. A candidate token has the votes of the sources that
// proposed it. They are merged into one probability and, with noise, into the probability that the token is the
// target's choice.
//
// Sources are tables first, then models, cheap to expensive. If a model was asked and did not propose a token that
// earlier sources proposed, that is a vote against the token. With noise, only the votes of the most expensive model
// that was asked count: it predicts this very position, while tables average over many, and noise amplifies small
// differences.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "draft/sources/table_source.h"
#include "draft/tree/calibration.h"
#include "draft/tree/target_softmax.h"

namespace slipstream::draft {

/// A node of TreeBuilder's search, which includes every node that was ever taken. Not a node of the grown tree.
enum class SearchNode : std::int32_t { None = -1, Root = 0 };
/// Index of a voted token among those of all nodes of the search.
enum class VotedIndex : std::int32_t {};

/// A token that sources voted for as a child of a node of the search; a child only once it is taken (`node`).
struct VotedToken {
    TokenId token = 0;
    SearchNode node = SearchNode::None;  // node of the search; None until the token is taken
    float merged = 0.0F;                 // probability of the token by the votes on it, without the noise
    float chance = 0.0F;                 // probability computed from `merged` and the noise, not corrected
    float estimate = 0.0F;               // probability that the token is accepted if its parent node is
    std::uint32_t first_vote = 0;        // index of the first vote on the token, see votes_for()
    std::uint32_t n_votes = 0;
    bool by_model = false;  // the most expensive model that was asked proposed it
};

class Votes {
public:
    /// `n_bins`: bins of each source, tables first. `rank_errors`: ModelSource::rank_error() of the last sources, which
    /// are models, cheap to expensive. Token ids must be in [0, vocab).
    Votes(std::span<const std::uint16_t> n_bins, std::span<const float> rank_errors, std::int64_t vocab);

    [[nodiscard]] Calibration& calibration() { return calibration_; }
    [[nodiscard]] const Calibration& calibration() const { return calibration_; }

    /// Begins another tree: forgets all votes, and keeps what was learnt. `noisy`: the target draws with noise that is
    /// known.
    void begin(bool noisy);
    [[nodiscard]] bool noisy() const { return noisy_; }
    /// Begins the votes on the children of one node; count() ends them.
    void open();
    /// Adds the proposals of source number `source`. Call in the order of the sources. A model also votes against the
    /// tokens that sources before it proposed and it did not.
    void add(std::uint16_t source, std::span<const Proposal> proposals);
    /// The candidate children of one node, as a range of the voted tokens of all nodes.
    struct Range {
        std::int32_t first = -1;  // number of the first candidate; -1: no source was asked
        std::int32_t n = 0;
        std::int32_t model = -1;  // index of the most expensive model that was asked; -1: none

        [[nodiscard]] bool is_asked() const { return first >= 0; }
        [[nodiscard]] VotedIndex child(std::int32_t i) const { return VotedIndex{first + i}; }  // i in [0, n)
    };
    /// Merges the votes since open(). `known`: the node's candidates when it was asked about before; the same tokens
    /// keep their search nodes. `model`: index of the most expensive model that was asked, or -1. `position`: absolute
    /// position of the children.
    [[nodiscard]] Range count(const Range& known, std::int32_t model, std::int64_t position, const PathNoise& noise);

    /// Returns the candidates of a range. Valid until the next add().
    [[nodiscard]] std::span<VotedToken> of(const Range& range) {
        return {tokens_.data() + (range.n > 0 ? range.first : 0), static_cast<std::size_t>(range.n)};
    }
    [[nodiscard]] VotedToken& at(VotedIndex index) { return tokens_[static_cast<std::size_t>(index)]; }
    [[nodiscard]] const VotedToken& at(VotedIndex index) const { return tokens_[static_cast<std::size_t>(index)]; }
    /// Returns the votes on a token, in the order of the sources, votes against it included.
    [[nodiscard]] std::span<const Calibration::Input> votes_for(const VotedToken& token) const {
        return {inputs_.data() + token.first_vote, token.n_votes};
    }
    /// Returns true if `vote` is one against the token.
    [[nodiscard]] bool is_against(const Calibration::Input& vote) const {
        return vote.source >= first_model_ && vote.bin == kAgainst;
    }
    /// Learns from the children of one node. `came`: the target's token. `target`: the target's probabilities after the
    /// node, used with noise, when one drawn token says little about what was probable; null if they are not known.
    void learn(const Range& range, TokenId came, const TargetProbabilities* target);

private:
    // A vote before the votes of each candidate are put together.
    struct Vote {
        std::uint32_t slot;
        Calibration::Input input;
    };
    // Adds a vote on the candidate with index `slot` of the current node.
    void add_vote(std::size_t slot, std::uint16_t source, std::uint16_t bin, float probability);
    // Returns the votes on `token` from which its `merged` is computed.
    [[nodiscard]] std::span<const Calibration::Input> that_count(const VotedToken& token) const;
    static void chance_by_tables(VotedToken& token, std::int64_t position, const PathNoise& noise);
    static void chances_by_model(std::span<VotedToken> tokens, float rank_error, std::int64_t position,
                                 const PathNoise& noise);
    void estimate(std::span<VotedToken> tokens, std::int32_t model, std::int64_t position,
                  const PathNoise& noise) const;

    static constexpr std::uint16_t kAgainst = 0;  // a model's bin of votes against a token; its own bins follow

    std::size_t first_model_;         // index of the first model among the sources
    std::vector<float> rank_errors_;  // [models]: ModelSource::rank_error()
    Calibration calibration_;
    bool noisy_ = false;
    std::vector<VotedToken> tokens_;
    std::vector<Calibration::Input> inputs_;
    std::size_t first_ = 0;             // first candidate of the current node: slot 0
    std::vector<Vote> votes_;           // votes on the candidates of the current node
    std::vector<std::uint32_t> slots_;  // [vocab]: 1 + slot; 0: no candidate
};

}  // namespace slipstream::draft
