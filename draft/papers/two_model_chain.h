// A chain that two models draw together, for classical speculative sampling (E3): a small one draws ahead, the one
// above it checks what was drawn by the same rule as the target will check its own, residual included. So each token of
// the chain has the upper one's distribution, whatever the lower one says, and that is what the target is told.
// (TriForce, Sun et al. 2024, arXiv 2404.11912, section 4.3. Its released code draws the middle model's correction from
// p and not from the residual, which bends the distribution.)
#pragma once

#include <cstdint>
#include <vector>

#include "draft/drawn_tree.h"
#include "draft/models/model_source.h"
#include "draft/rejection.h"
#include "draft/sources/table_source.h"

namespace slipstream::draft {

class TwoModelChain {
public:
    /// Guesses of the lower model that the upper one checks in one pass, as TriForce's.
    static constexpr std::int64_t kAhead = 1;

    /// Token ids in [0, vocab); `seed` is the target's.
    TwoModelChain(std::int64_t vocab, std::uint64_t seed) : rule_(vocab), seed_(seed) {}

    /// Guesses of the lower model that the upper one saw, and took, and how long the lower one drew.
    struct Counts {
        std::int64_t offered = 0;
        std::int64_t accepted = 0;
        double seconds = 0.0;
    };

    /// Grows a chain of at most `gamma` guesses under node 0 of `tree` (node 0 only), inside the request's limits, and
    /// records what it was drawn from in `drawn` (reset for this tree). Both models are ready.
    Counts propose(TokenTree& tree, const ShapeRequest& request, std::int64_t gamma, ModelSource& lower,
                   ModelSource& upper, DrawnTree& drawn);

private:
    struct Ahead {  // what the lower model drew
        std::int32_t node;
        std::vector<Candidate> q;
    };

    void draw_ahead(const ShapeRequest& request, std::int64_t n, ModelSource& lower);
    [[nodiscard]] double uniform();

    RejectionRule rule_;
    std::uint64_t seed_;
    std::int64_t n_text_ = 0;
    std::uint32_t n_uniform_ = 0;  // of this tree
    TokenTree arena_;              // all that was drawn, also what was refused
    std::int32_t tip_ = 0;         // of the arena: the chain's end
    std::vector<Ahead> ahead_;
    std::vector<Candidate> p_;
    std::vector<std::int32_t> unseen_by_lower_, unseen_by_upper_;  // nodes of the arena on the way to the tip
    std::int64_t n_seen_by_lower_ = 0, n_seen_by_upper_ = 0;
};

}  // namespace slipstream::draft
