// What all sources say behind one node, put together: candidates, each with the votes of those who named it, merged
// into one probability and, where noise decides, into the chance of being the target's choice.
//
// Sources are tables first, then models, cheap to dear. A model that was asked and did not name what others named has
// voted, too: such a token is hardly to come. Under noise the votes of the dearest model that was asked stand alone: it
// speaks of this very place, tables of a mean over many, and the noise makes much of small differences.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "draft/sources/table_source.h"
#include "draft/tree/calibration.h"
#include "draft/tree/target_softmax.h"

namespace slipstream::draft {

/// A node of the search (TreeBuilder), which has every node that was ever taken; not a node of the tree that is grown.
enum class SearchNode : std::int32_t { None = -1, Root = 0 };
/// Index of a voted token among those of all nodes of a tree.
enum class VotedIndex : std::int32_t {};

struct VotedToken {
    TokenId token = 0;
    SearchNode node = SearchNode::None;  // None until it is taken
    float merged = 0.0F;                 // probability, the noise unknown
    float chance = 0.0F;                 // from that and the noise, before it is corrected
    float estimate = 0.0F;               // of being accepted, given its parent is
    std::uint32_t first_vote = 0;
    std::uint32_t n_votes = 0;
    bool by_model = false;  // the dearest model that was asked named it
};

class Votes {
public:
    /// Bins of each source, tables first; the last `n_models` are models, cheap to dear. Token ids in [0, vocab).
    Votes(std::span<const std::uint16_t> n_bins, std::size_t n_models, std::int64_t vocab);

    [[nodiscard]] Calibration& calibration() { return calibration_; }
    [[nodiscard]] const Calibration& calibration() const { return calibration_; }

    /// Another tree: everything said so far is forgotten, what it taught is not.
    void begin(bool noisy);
    [[nodiscard]] bool noisy() const { return noisy_; }
    /// From here to count() the votes are of one node's children.
    void open();
    /// What source number `source` says, sources in their order. A model votes against what others named before it.
    void add(std::uint16_t source, std::span<const Proposal> proposals);
    /// Where a node's children lie among all of the tree.
    struct Range {
        std::int32_t first = -1;  // -1: no source was asked
        std::int32_t n = 0;
        std::int32_t model = -1;  // the dearest that was asked, by its place among models; -1: none

        [[nodiscard]] bool is_asked() const { return first >= 0; }
        [[nodiscard]] VotedIndex child(std::int32_t i) const { return VotedIndex{first + i}; }  // i in [0, n)
    };
    /// Merges what was said. `known`: what was said of the same node before, whose tokens keep their search nodes;
    /// `position`: absolute, of the children.
    [[nodiscard]] Range count(const Range& known, std::int32_t model, std::int64_t position, const PathNoise& noise);

    [[nodiscard]] std::span<VotedToken> of(const Range& range) {
        return {tokens_.data() + (range.n > 0 ? range.first : 0), static_cast<std::size_t>(range.n)};
    }
    [[nodiscard]] VotedToken& at(VotedIndex index) { return tokens_[static_cast<std::size_t>(index)]; }
    [[nodiscard]] const VotedToken& at(VotedIndex index) const { return tokens_[static_cast<std::size_t>(index)]; }
    /// Who named a token, in the order of sources; votes against it are left out.
    [[nodiscard]] std::span<const Calibration::Input> votes_for(const VotedToken& token) const {
        return {inputs_.data() + token.first_vote, token.n_votes};
    }
    [[nodiscard]] bool is_against(const Calibration::Input& vote) const {
        return vote.source >= first_model_ && vote.bin == kAgainst;
    }
    /// Learns from the children of one node: `came` is the target's token, `target` tells the target's own probability
    /// of each (under noise, where what came says little of what was likely); null where that is not known.
    void learn(const Range& range, TokenId came, const TargetProbabilities* target);

private:
    struct Vote {  // before candidates are put together
        std::uint32_t slot;
        Calibration::Input input;
    };
    void add_vote(std::size_t slot, std::uint16_t source, std::uint16_t bin, float probability);
    [[nodiscard]] std::span<const Calibration::Input> that_count(const VotedToken& token) const;
    static void chance_by_tables(VotedToken& token, std::int64_t position, const PathNoise& noise);
    static void chances_by_model(std::span<VotedToken> tokens, std::int64_t position, const PathNoise& noise);
    void estimate(std::span<VotedToken> tokens, std::int32_t model, std::int64_t position,
                  const PathNoise& noise) const;

    static constexpr std::uint16_t kAgainst = 0;  // a model's bin of votes against; its own are one higher

    std::size_t first_model_;  // among the sources
    Calibration calibration_;
    bool noisy_ = false;
    std::vector<VotedToken> tokens_;
    std::vector<Calibration::Input> inputs_;
    std::size_t first_ = 0;             // of the tokens that are being put together: slot 0
    std::vector<Vote> votes_;           // on them
    std::vector<std::uint32_t> slots_;  // [vocab]: 1 + slot; 0: none
};

}  // namespace slipstream::draft
