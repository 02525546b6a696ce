// A chain that two models draw together, for classical speculative sampling (E3). The lower (small) model draws ahead.
// The upper model verifies what was drawn by the rule with which the target will verify the chain, residual included.
// So each token of the chain has the distribution of the upper model, whatever the lower one proposes, and that
// distribution is recorded for the target. (TriForce, Sun et al. 2024, arXiv 2404.11912, section 4.3. Its released code
// draws the middle model's correction from p and not from the residual, which distorts the distribution.)
#pragma once

#include <cstdint>
#include <vector>

#include "draft/drawn_tree.h"
#include "draft/models/model_source.h"
#include "draft/paper_tree.h"
#include "draft/rejection.h"

namespace slipstream::draft {

/// Draws chains that two models make together. Keeps only buffers from one tree to the next.
class TwoModelChain {
public:
    /// Draft tokens of the lower model that the upper model verifies in one pass: 1, as in TriForce.
    static constexpr std::int64_t kAhead = 1;

    /// Token ids are in [0, vocab). `seed` is that of the target's sampler.
    TwoModelChain(std::int64_t vocab, std::uint64_t seed) : rule_(vocab), seed_(seed) {}
    /// Sets the seed of the chains that are grown from now on.
    void set_seed(std::uint64_t seed) { seed_ = seed; }

    /// Draft tokens of the lower model that the upper model verified, those of them that it accepted, and the seconds
    /// that the lower model drew.
    struct Counts {
        std::int64_t offered = 0;
        std::int64_t accepted = 0;
        double seconds = 0.0;
    };

    /// Grows a chain of at most `gamma` draft tokens under node 0 of `tree` (which has node 0 only), within the limits
    /// of `request`, and records in `drawn` (reset for this tree) the distributions that it was drawn from. Both models
    /// must be ready.
    Counts propose(TokenTree& tree, const ShapeRequest& request, std::int64_t gamma, ModelSource& lower,
                   ModelSource& upper, DrawnTree& drawn);

private:
    // A token that the lower model drew: a node of arena_, and the distribution that it was drawn from.
    struct Ahead {
        TreeNode node;
        std::vector<Candidate> q;
    };

    void draw_ahead(const ShapeRequest& request, std::int64_t n, ModelSource& lower);
    [[nodiscard]] double uniform();

    RejectionRule rule_;
    std::uint64_t seed_;
    std::int64_t n_text_ = 0;
    std::uint32_t n_uniform_ = 0;  // uniform numbers used for this tree
    TokenTree arena_;              // all tokens that were drawn, rejected ones included
    TreeNode tip_ = kTreeRoot;     // end of the chain, a node of the arena
    std::vector<Ahead> ahead_;
    std::vector<Candidate> p_;
    // Nodes of arena_ on the path to tip_ that the lower and the upper model have not expanded yet.
    std::vector<TreeNode> unseen_by_lower_, unseen_by_upper_;
    std::int64_t n_seen_by_lower_ = 0, n_seen_by_upper_ = 0;
};

}  // namespace slipstream::draft
