// Classical speculative sampling (E3): tokens with the target's distribution, though not the tokens
// of plain decoding. At each node of the accepted path the walk knows p, the target's distribution after temperature
// and filters given the node's own path (E4), and what was drawn below the node from which q. One round a draw x:
//
//   accept x with probability min(1, p(x) / q(x)); refused: p <- norm(max(p - q, 0))
//
// With replacement q stays (SpecInfer, Miao et al. 2023, arXiv 2305.09781, algorithm 2); without, x leaves q, which is
// renormalised (Sequoia, Chen et al. 2024, arXiv 2402.12374, algorithm 2). A chain has one draw a node (Leviathan et
// al. 2023, arXiv 2211.17192, algorithm 1; Chen et al. 2023, arXiv 2302.01318, algorithm 2). When all draws were
// refused the token comes from what is left of p, and where a child carries it the walk goes on there.
//
// That last rule is the whole of point masses, the children of merged and pruned trees: to accept each child x with
// p(x), or else remove it and renormalise, and draw from the rest after the last, is a draw from p by the chain rule,
// in any order of children. So every level of a draft hierarchy, and every tree, is served by this one walk.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "kernels/base/noise.h"
#include "runtime/loop/sampling/sampler.h"
#include "runtime/loop/verify.h"

namespace slipstream::draft {

enum class DrawRule : std::uint8_t { WithReplacement, WithoutReplacement };

/// How the children of a node came to be.
struct DrawnChildren {
    DrawRule rule = DrawRule::WithReplacement;
    /// What they were drawn from, as it was then: distinct tokens of [0, vocab), probabilities that sum to 1.
    std::span<const Candidate> q;
    /// All draws in the order they were made, duplicates included, and those that found no room in the tree as well:
    /// leaving any out by its value would bend the distribution. None: the children are point masses.
    std::span<const TokenId> draws;
};

/// What a drafter that draws its guesses must tell the walk.
class DraftDistributions {
public:
    virtual ~DraftDistributions() = default;
    /// Of `node` of the tree that was proposed last. Valid until the next proposal.
    [[nodiscard]] virtual DrawnChildren drawn(std::int32_t node) const = 0;
};

/// A uniform number in (0, 1) of 52 bits: (2 n + 1) / 2^53, n the upper bits of words 2 (index mod 2) and the next of
/// block index / 2 at `position` of a stream of noise.
[[nodiscard]] double noise_uniform(std::uint64_t seed, std::int64_t position, std::uint32_t index, NoiseStream stream);
/// The same of NoiseStream::Rejection. The walk uses indices below 2^31 at the position
/// of the token that it decides on; drawing uses those above (drawn_tree.h).
[[nodiscard]] double rejection_uniform(std::uint64_t seed, std::int64_t position, std::uint32_t index);

/// The decision at one node: a token with the target's distribution, out of what was drawn below it.
class RejectionRule {
public:
    /// Token ids in [0, vocab).
    explicit RejectionRule(std::int64_t vocab);
    /// One of the draws, or one of the rest. `target`: distinct tokens, probabilities that sum to 1; `uniform(i)`: the
    /// i-th number in (0, 1) of this decision. Allocates nothing.
    [[nodiscard]] TokenId decide(std::span<const Candidate> target, const DrawnChildren& children,
                                 const std::function<double(std::uint32_t)>& uniform);

private:
    [[nodiscard]] bool accept(TokenId token, double q, double uniform) const;
    [[nodiscard]] bool subtract(double q_scale);
    [[nodiscard]] TokenId draw_from_rest(double uniform) const;

    // Of the node at hand. p is p_[id] / p_mass_, q is q_[id] over what is left of its mass.
    std::vector<double> p_;         // [vocab], 0 outside of support_
    std::vector<double> q_;         // [vocab], 0 but for the children's q
    std::vector<TokenId> support_;  // where p was above 0 at first, most likely first
    double p_mass_ = 1.0;
};

class RejectionVerifier final : public Verifier {
public:
    /// `sampler` says p, and its seed is that of the draws. `drafts`: null where all children are point masses. Both
    /// outlive the walk.
    RejectionVerifier(Sampler& sampler, std::int64_t vocab, const DraftDistributions* drafts);

    /// Allocates nothing where the vectors have room.
    [[nodiscard]] LogitRequest logit_request() const override { return sampler_->distribution_request(); }
    void verify(const TokenTree& tree, const LogitRows& logits, const VerifyLimits& limits, std::vector<TokenId>& text,
                std::vector<std::int32_t>& accepted) override;

private:
    Sampler* sampler_;
    const DraftDistributions* drafts_;
    RejectionRule rule_;
};

}  // namespace slipstream::draft
