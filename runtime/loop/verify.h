// Verification: from the target's logits over a tree to the tokens that are committed. Verifier is what the generation
// loop knows of it. ExactVerifier is the walk of E2: from node 0 down, sample the target at each node with its
// position's own noise, and follow the child that carries the sampled token, as long as there is one; what is sampled
// never depends on which children exist. Classical speculative sampling (E3) is another walk, in draft/.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/loop/sampling/sampler.h"
#include "runtime/loop/token_tree.h"
#include "runtime/pass/logit_rows.h"

namespace slipstream {

struct VerifyLimits {
    std::int64_t max_new_tokens = 1;      // >= 1: stop after so many
    std::span<const TokenId> end_tokens;  // any of these ends the walk (and is kept as its last token)
};

class Verifier {
public:
    virtual ~Verifier() = default;
    /// What it looks at in every pass, on devices where that is not free.
    [[nodiscard]] virtual LogitRequest logit_request() const { return {}; }
    /// `logits` [tree.size(), vocab], a row a node. `text`: all committed tokens, the tree's root last; the new tokens
    /// are appended (as many as nodes were accepted, at least one). `accepted` receives the accepted nodes, node 0
    /// first: a path of the tree, the tokens of all but node 0 followed by one of the target's own. Throws Unsupported
    /// where logits are not numbers; `text` may then have grown.
    virtual void verify(const TokenTree& tree, const LogitRows& logits, const VerifyLimits& limits,
                        std::vector<TokenId>& text, std::vector<std::int32_t>& accepted) = 0;
};

/// The walk of E2, with the parameters of Verifier::verify(). Allocates nothing where the vectors have room.
/// (Daliri, Musco, Suresh 2024, arXiv 2408.07978, for the coupling that makes proposals hit.)
void verify_tree(const TokenTree& tree, const LogitRows& logits, Sampler& sampler, const VerifyLimits& limits,
                 std::vector<TokenId>& text, std::vector<std::int32_t>& accepted);

/// Drafter-invariant sampling (E2): the same tokens whatever was guessed.
class ExactVerifier final : public Verifier {
public:
    /// `sampler` outlives the walk.
    explicit ExactVerifier(Sampler& sampler) : sampler_(&sampler) {}
    [[nodiscard]] LogitRequest logit_request() const override { return sampler_->sample_request(); }
    void verify(const TokenTree& tree, const LogitRows& logits, const VerifyLimits& limits, std::vector<TokenId>& text,
                std::vector<std::int32_t>& accepted) override {
        verify_tree(tree, logits, *sampler_, limits, text, accepted);
    }

private:
    Sampler* sampler_;
};

}  // namespace slipstream
