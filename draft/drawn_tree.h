// The drawing side of classical speculative sampling: draws children from a source's distribution q, and records the
// draws for the verifier (rejection.h).
//
// Whether and how often a node is drawn from may depend on anything but its own draws, and no draw may be removed from
// the record. So a shape may grow best-first, and a budget may cut it: a draw that has no room in the tree is still a
// round of the verification. A draw is a function of (seed, position, depth, number of the draw). Nodes of one depth
// share their uniform numbers, since at most one of them is reached. A position that is drafted again in a later pass
// has another depth.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "draft/rejection.h"
#include "runtime/loop/token_tree.h"

namespace slipstream::draft {

/// The record of the draws of one tree at a time.
class DrawnTree final : public DraftDistributions {
public:
    explicit DrawnTree(std::uint64_t seed) : seed_(seed) {}
    /// Sets the seed of all later draws. Call before reset(), so that all draws of one tree have one seed.
    void set_seed(std::uint64_t seed) { seed_ = seed; }

    /// Forgets the previous tree. The next one follows `n_text` committed tokens (node 0 is their last) and has at most
    /// `budget` nodes; both must be at least 1 (CHECKed).
    void reset(std::int64_t n_text, std::int64_t budget);

    /// Draws `n` children of `node` from `q` (distinct tokens, probabilities that sum to 1). Adds each drawn token to
    /// `tree` as a child, unless it is one already or the tree is full. Without replacement it draws at most as many as
    /// `q` has tokens. Call at most once per node (CHECKed if the earlier call drew a token). Copies `q`: 16 bytes per
    /// candidate, kept until reset(). Returns the draws in order, duplicates included, valid until the next call.
    std::span<const TokenId> draw_children(TokenTree& tree, TreeNode node, std::span<const Candidate> q, DrawRule rule,
                                           std::int64_t n);

    /// Records `token` as a draw from `q` made elsewhere, and adds it as a child of `node`, which must have no
    /// children. The tree must have room (CHECKed). Call at most once per node (CHECKed as above). Returns the child.
    TreeNode add_drawn(TokenTree& tree, TreeNode node, std::span<const Candidate> q, TokenId token);

    [[nodiscard]] DrawnChildren drawn(TreeNode node) const override;

private:
    // The record of one node: its q and its draws, as ranges of q_ and draws_.
    struct Entry {
        DrawRule rule = DrawRule::WithReplacement;
        std::size_t q_begin = 0, n_q = 0;
        std::size_t draws_begin = 0, n_draws = 0;
    };

    // Starts the record of `node`, which was not drawn from yet (CHECKed), and copies `q`.
    Entry& begin_entry(TreeNode node, std::span<const Candidate> q, DrawRule rule);
    [[nodiscard]] std::size_t draw_one(std::span<const Candidate> q, double uniform) const;

    std::uint64_t seed_;
    std::int64_t n_text_ = 0;
    std::int64_t budget_ = 0;
    std::vector<Entry> entries_;   // [nodes up to the last that was drawn from]: the record of each node
    std::vector<Candidate> q_;     // the distributions of all entries, one after another
    std::vector<TokenId> draws_;   // the drawn tokens of all entries, one after another
    std::vector<double> weights_;  // [q.size()] of a running draw_children(): probability, 0 for a removed candidate
};

}  // namespace slipstream::draft
