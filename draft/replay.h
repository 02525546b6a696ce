// Guessing over recorded answers, without a model: what a target once said stands in for the target. A pass costs
// nothing here, so this measures one thing only, how many tokens a pass would have committed (MAT, papers' "mean
// accepted tokens"), and what the guessing itself takes.
//
// The walk is the greedy one: from node 0 down along the recorded answer, as long as there is a child that carries its
// next token. As in the generation loop the first pass of a turn, the one over the prompt, already carries a tree.
// Spec-Bench counts so (Xia et al. 2024, arXiv 2401.07851): nothing after an end token, which itself counts.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/loop/proposer.h"

namespace slipstream::draft {

/// One exchange of a recorded conversation.
struct RecordedTurn {
    std::vector<TokenId> prompt;  // what is added to the text before the answer
    std::vector<TokenId> answer;  // what the target said; its end token, where it has one, is the last
};

struct ReplayFigures {
    std::int64_t passes = 0;
    std::int64_t tokens = 0;                   // committed
    std::int64_t nodes = 0;                    // of all trees, node 0 included
    double propose_seconds = 0.0;              // in Proposer::propose()
    double observe_seconds = 0.0;              // in Proposer::observe(), prompts included
    std::vector<std::int64_t> accept_lengths;  // [passes]: tokens that each committed

    /// Tokens a pass, 0 without passes.
    [[nodiscard]] double mean_accepted_tokens() const;
    ReplayFigures& operator+=(const ReplayFigures& other);
};

/// Replays one conversation. `budget`: most nodes of a tree, node 0 included (>= 1, CHECKed). The proposer hears first
/// that its text was cut back to nothing, and keeps what it has learnt: resetting it is the caller's business. It sees
/// no logits (Observation::logits is empty), and nothing of the answer before it is committed, its length neither.
[[nodiscard]] ReplayFigures replay(Proposer& proposer, std::span<const RecordedTurn> turns, std::int64_t budget);

}  // namespace slipstream::draft
