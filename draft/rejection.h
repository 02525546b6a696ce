// Classical speculative sampling (distribution-exact sampling, E3): the output has the target's distribution, but not
// the tokens of plain decoding. At each node of the accepted path the verification knows p, the target's distribution
// after temperature and filters given the node's own path (path-dependent samplers, E4), and the tokens that were drawn
// below the node from a distribution q. Each draw x is one round:
//
//   accept x with probability min(1, p(x) / q(x)); if rejected: p <- norm(max(p - q, 0))
//
// With replacement q stays (SpecInfer, Miao et al. 2023, arXiv 2305.09781, algorithm 2). Without replacement x is
// removed from q, which is renormalised (Sequoia, Chen et al. 2024, arXiv 2402.12374, algorithm 2). A chain has one
// draw per node (Leviathan et al. 2023, arXiv 2211.17192, algorithm 1; Chen et al. 2023, arXiv 2302.01318, algorithm
// 2). If all draws are rejected, the token is drawn from the remaining p; if a child carries it, the verification
// continues there.
//
// This last rule alone verifies point masses, the children of merged and pruned trees. For them the rounds would be:
// accept child x with probability p(x), or remove it from p, renormalise, and draw from the rest after the last child.
// By the chain rule that is one draw from p, in any order of the children. So this one procedure serves every tree and
// every level of a draft hierarchy.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "kernels/base/noise.h"
#include "runtime/loop/sampling/sampler.h"
#include "runtime/loop/verify.h"

namespace slipstream::draft {

/// Whether a token that was drawn stays in the distribution for the next draw below the same node.
enum class DrawRule : std::uint8_t { WithReplacement, WithoutReplacement };

/// The draws below one node.
struct DrawnChildren {
    DrawRule rule = DrawRule::WithReplacement;
    /// The distribution that was drawn from, as it was at the first draw: distinct tokens of [0, vocab), probabilities
    /// that sum to 1.
    std::span<const Candidate> q;
    /// All draws in order, including duplicates and those that had no room in the tree: omitting a draw because of its
    /// value would distort the distribution. Empty: the children are point masses.
    std::span<const TokenId> draws;
};

/// Interface of a drafter that draws its children: what the verifier must know.
class DraftDistributions {
public:
    virtual ~DraftDistributions() = default;
    /// Returns the draws below `node` of the tree that was proposed last. Valid until the next proposal.
    [[nodiscard]] virtual DrawnChildren drawn(TreeNode node) const = 0;
};

/// Returns number `index` of the uniform numbers at `position` of `stream`: (2 n + 1) / 2^53, in (0, 1), where n has 52
/// bits. Block index / 2 of the noise (noise_block()) gives two numbers: n is the upper 52 bits of its words 0 and 1 if
/// `index` is even, of its words 2 and 3 if it is odd.
[[nodiscard]] double noise_uniform(std::uint64_t seed, std::int64_t position, std::uint32_t index, NoiseStream stream);
/// Returns noise_uniform() of NoiseStream::Rejection. Verification uses indices below 2^31 at the position of the token
/// that it decides on; drawing uses the indices above (drawn_tree.h).
[[nodiscard]] double rejection_uniform(std::uint64_t seed, std::int64_t position, std::uint32_t index);

/// The decision at one node: a token with the target's distribution, chosen with the help of the draws below the node.
/// Not thread-safe.
class RejectionRule {
public:
    /// Token ids must be in [0, vocab); `vocab` > 0 (CHECKed).
    explicit RejectionRule(std::int64_t vocab);
    /// Returns one of the draws, or a token drawn from the remaining p. `target`: p, distinct tokens, probabilities
    /// that sum to 1. `uniform(i)` must return the i-th uniform number in (0, 1) of this decision. Allocates nothing.
    [[nodiscard]] TokenId decide(std::span<const Candidate> target, const DrawnChildren& children,
                                 const std::function<double(std::uint32_t)>& uniform);

private:
    // Returns true if the round accepts `token`. `q`: the probability of `token` in the remaining q. `uniform`: in (0,
    // 1).
    [[nodiscard]] bool accept(TokenId token, double q, double uniform) const;
    [[nodiscard]] bool subtract(double q_scale);
    [[nodiscard]] TokenId draw_from_rest(double uniform) const;

    // State of the running decision: p is p_[id] / p_mass_, q is q_[id] divided by the remaining mass of q.
    std::vector<double> p_;         // [vocab]: weights of the remaining p, 0 outside of support_
    std::vector<double> q_;         // [vocab]: weights of the remaining q, 0 for all other tokens
    std::vector<TokenId> support_;  // tokens with p > 0 before the first round, in the target's order
    double p_mass_ = 1.0;
};

/// The verifier of --verify rejection.
class RejectionVerifier final : public Verifier {
public:
    /// `sampler` computes p, and its seed is that of the draws. `drafts`: null if all children are point masses. Both
    /// must outlive this object.
    RejectionVerifier(Sampler& sampler, std::int64_t vocab, const DraftDistributions* drafts);

    [[nodiscard]] LogitRequest logit_request() const override { return sampler_->distribution_request(); }
    /// Appends the tokens that the pass commits to `text` (not empty) and writes the accepted nodes to `accepted`, node
    /// 0 first. Allocates nothing if the vectors have room.
    void verify(const TokenTree& tree, const LogitRows& logits, const VerifyLimits& limits, std::vector<TokenId>& text,
                std::vector<TreeNode>& accepted) override;

private:
    Sampler* sampler_;
    const DraftDistributions* drafts_;
    RejectionRule rule_;
};

}  // namespace slipstream::draft
