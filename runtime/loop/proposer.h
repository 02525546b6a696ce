// Proposer: what the generation loop asks for draft tokens. draft/ implements it; plain decoding is the loop with
// NoProposer.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/loop/token_tree.h"
#include "runtime/pass/logit_rows.h"

namespace slipstream {

/// What happened to the sequence; passed to the proposer when it begins, after each commit, and when it is truncated.
struct Observation {
    std::span<const TokenId> text{};  // all committed tokens, prompt included
    std::int64_t n_new = 0;  // how many of the last tokens are new (at the beginning of a sequence: all); 0: the
                             // sequence was truncated to `text`
    std::int64_t n_computed =
        0;  // at the beginning of a sequence: positions of `text` that the target need not compute
    const TokenTree* tree = nullptr;  // the tree that was verified; null if no pass over a tree has run
    LogitRows logits{};  // [tree->size(), vocab], F32: of all nodes, accepted or not; empty if `tree` is null
    std::span<const TreeNode> accepted{};  // accepted nodes of the tree, node 0 first
    double pass_seconds = 0.0;             // time of the target's pass over the tree; 0: not measured
};

/// Limits of one proposal.
struct ProposalLimits {
    std::int64_t budget = 1;          // most nodes of the tree, node 0 included
    std::int64_t max_depth = 0;       // greatest depth of a node; node 0 has depth 0
    std::span<const TokenId> text{};  // all committed tokens, the tree's root last; valid during the call
};

class Proposer {
public:
    virtual ~Proposer() = default;
    /// Returns the parts of each logits row that observe() reads. On devices where rows are not in host memory, each
    /// part costs time.
    [[nodiscard]] virtual LogitRequest logit_request() const { return {}; }
    /// Adds draft nodes to `tree`, within `limits`. Proposals never change the text of an exact verifier
    /// (drafter-invariant sampling, E2).
    virtual void propose(TokenTree& tree, const ProposalLimits& limits) = 0;
    /// Informs the proposer about the sequence. The views in `observation` are valid only during the call.
    virtual void observe(const Observation& observation) = 0;
};

/// Proposes no draft tokens: plain decoding.
class NoProposer final : public Proposer {
public:
    void propose(TokenTree&, const ProposalLimits&) override {}
    void observe(const Observation&) override {}
};

}  // namespace slipstream
