// What the generation loop knows of guessing. draft/ implements it; plain decoding is the same loop with NoProposer.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/loop/token_tree.h"
#include "runtime/pass/logit_rows.h"

namespace slipstream {

/// What a pass taught, handed to the proposer after each commit.
struct Observation {
    std::span<const TokenId> text{};  // all tokens so far, prompt included, those of this pass last
    std::int64_t n_new = 0;           // how many of them this pass added (prefill: the whole prompt); 0: the text was
                                      // cut back to `text`
    const TokenTree* tree = nullptr;  // the tree that was verified; null after prefill and cuts
    LogitRows logits{};               // [tree->size(), vocab], F32: of every node, accepted or not; empty after prefill
    std::span<const std::int32_t> accepted{};  // accepted nodes of the tree, node 0 first
    double pass_seconds = 0.0;                 // what the target's pass over the tree took; 0: not measured
};

/// What one proposal may not exceed.
struct ProposalLimits {
    std::int64_t budget = 1;          // nodes in all, node 0 included
    std::int64_t max_depth = 0;       // of a node below node 0: what the context and the length asked for still hold
    std::span<const TokenId> text{};  // all committed tokens, the tree's root last; valid during the call
};

class Proposer {
public:
    virtual ~Proposer() = default;
    /// What observe() looks at of every row of logits, on devices where that is not free.
    [[nodiscard]] virtual LogitRequest logit_request() const { return {}; }
    /// Hangs guesses under the tree's nodes, within `limits`. The output never depends on what is proposed.
    virtual void propose(TokenTree& tree, const ProposalLimits& limits) = 0;
    /// Views in `observation` are valid during the call only.
    virtual void observe(const Observation& observation) = 0;
};

/// Guesses nothing: plain decoding.
class NoProposer final : public Proposer {
public:
    void propose(TokenTree&, const ProposalLimits&) override {}
    void observe(const Observation&) override {}
};

}  // namespace slipstream
