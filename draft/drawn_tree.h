// The drawing side of classical speculative sampling: children drawn from a source's distribution q, kept as the walk
// must know them (rejection.h).
//
// Whether and how often a node is drawn from may depend on everything but its own draws; once drawn, none may be taken
// out of the record. So a shape may grow best-first, and a budget may cut it: a draw without room is still a round.
// Draws are a function of (seed, position, depth, number of the draw). Nodes of one depth share their uniform numbers,
// since at most one of them is reached; a position that is drafted again in a later pass stands at another depth.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "draft/rejection.h"
#include "runtime/loop/token_tree.h"

namespace slipstream::draft {

class DrawnTree final : public DraftDistributions {
public:
    explicit DrawnTree(std::uint64_t seed) : seed_(seed) {}
    /// Seed of the trees after the next reset().
    void set_seed(std::uint64_t seed) { seed_ = seed; }

    /// Forgets the tree before. The next one hangs under `n_text` committed tokens (node 0 is their last) and has at
    /// most `budget` nodes.
    void reset(std::int64_t n_text, std::int64_t budget);

    /// Draws `n` children of `node` from `q` (distinct tokens, sum 1) and adds those that are new to `tree` while it
    /// has room. Without replacement they are no more than q has tokens. At most once a node. Copies q: 16 bytes a
    /// candidate, kept until reset(). Returns the draws in order, valid until the next call.
    std::span<const TokenId> draw_children(TokenTree& tree, std::int32_t node, std::span<const Candidate> q,
                                           DrawRule rule, std::int64_t n);

    /// A child of `node`, which has none, that somebody drew from `q`, into the record and into `tree`, which has room.
    /// At most once a node. Returns the child.
    std::int32_t add_drawn(TokenTree& tree, std::int32_t node, std::span<const Candidate> q, TokenId token);

    [[nodiscard]] DrawnChildren drawn(std::int32_t node) const override;

private:
    struct Entry {
        DrawRule rule = DrawRule::WithReplacement;
        std::size_t q_begin = 0, n_q = 0;
        std::size_t draws_begin = 0, n_draws = 0;
    };

    Entry& begin_entry(std::int32_t node, std::span<const Candidate> q, DrawRule rule);
    [[nodiscard]] std::size_t draw_one(std::span<const Candidate> q, double uniform) const;

    std::uint64_t seed_;
    std::int64_t n_text_ = 0;
    std::int64_t budget_ = 0;
    std::vector<Entry> entries_;   // by node, as far as any was drawn from
    std::vector<Candidate> q_;     // of all entries
    std::vector<TokenId> draws_;   // of all entries
    std::vector<double> weights_;  // [q.size()] of the running call: 0 for what was taken out
};

}  // namespace slipstream::draft
