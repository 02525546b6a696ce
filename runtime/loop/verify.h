// Verification: decides from the target's logits over a tree which tokens are committed. Verifier is its interface for
// the generation loop. ExactVerifier implements drafter-invariant sampling (E2): starting at node 0, sample the
// target's token with the noise of its position, and go on at the child that carries the sampled token while there is
// one. Which token is sampled never depends on which children exist. Classical speculative sampling
// (distribution-exact, E3) is another verifier, in draft/.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/loop/sampling/sampler.h"
#include "runtime/loop/token_tree.h"
#include "runtime/pass/logit_rows.h"

namespace slipstream {

struct VerifyLimits {
    std::int64_t max_new_tokens = 1;      // >= 1: most tokens that are added
    std::span<const TokenId> end_tokens;  // each of these ends the walk and is kept as its last token
};

class Verifier {
public:
    virtual ~Verifier() = default;
    /// Returns the parts of each logits row that verify() reads. On devices where rows are not in host memory, each
    /// part costs time.
    [[nodiscard]] virtual LogitRequest logit_request() const { return {}; }
    /// Decides which tokens are committed. `logits` is [tree.size(), vocab], row logits_row_of(node) for each node.
    /// `text`: all committed tokens, the last one at the tree's root. Appends the new tokens to `text`, one per
    /// accepted node, at least one. Replaces `accepted` by the accepted nodes, a path of the tree from node 0. The new
    /// tokens are those of the accepted nodes after node 0, and then one token sampled by the target's distribution
    /// (after a rejection, by what remains of it). Throws Unsupported if logits are not numbers; `text` may then have
    /// grown.
    virtual void verify(const TokenTree& tree, const LogitRows& logits, const VerifyLimits& limits,
                        std::vector<TokenId>& text, std::vector<TreeNode>& accepted) = 0;
};

/// Drafter-invariant verification (E2) with the parameters of Verifier::verify(). Allocates nothing if the capacity of
/// the vectors suffices. The coupling that makes proposals likely to match: Daliri, Musco, Suresh 2024, arXiv
/// 2408.07978.
void verify_tree(const TokenTree& tree, const LogitRows& logits, Sampler& sampler, const VerifyLimits& limits,
                 std::vector<TokenId>& text, std::vector<TreeNode>& accepted);

/// Drafter-invariant sampling (E2): the tokens are the same whatever was proposed.
class ExactVerifier final : public Verifier {
public:
    /// `sampler` must outlive this object.
    explicit ExactVerifier(Sampler& sampler) : sampler_(&sampler) {}
    [[nodiscard]] LogitRequest logit_request() const override { return sampler_->sample_request(); }
    void verify(const TokenTree& tree, const LogitRows& logits, const VerifyLimits& limits, std::vector<TokenId>& text,
                std::vector<TreeNode>& accepted) override {
        verify_tree(tree, logits, *sampler_, limits, text, accepted);
    }

private:
    Sampler* sampler_;
};

}  // namespace slipstream
