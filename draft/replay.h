// Drafting over recorded answers, without a model: a recorded answer of a target is used instead of the target. A pass
// costs nothing here. So this measures only how many tokens a pass would have committed (MAT, "mean accepted tokens" in
// papers), and the time of drafting itself.
//
// Verification is greedy: from node 0 down along the recorded answer, as long as a child carries its next token. As in
// the generation loop, the first pass of a turn, the one over the prompt, already carries a tree. Tokens are counted as
// Spec-Bench does (Xia et al. 2024, arXiv 2401.07851): nothing after an end token, which itself counts.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/loop/proposer.h"

namespace slipstream::draft {

/// One exchange of a recorded conversation.
struct RecordedTurn {
    std::vector<TokenId> prompt;  // tokens added to the sequence before the answer
    std::vector<TokenId> answer;  // the target's tokens; the end token, if there is one, is the last
};

/// Sums over the passes of a replay.
struct ReplayFigures {
    std::int64_t passes = 0;
    std::int64_t tokens = 0;                   // committed
    std::int64_t nodes = 0;                    // sum of the nodes of all trees, each with its node 0
    double propose_seconds = 0.0;              // time spent in Proposer::propose()
    double observe_seconds = 0.0;              // time spent in Proposer::observe(), prompts included
    std::vector<std::int64_t> accept_lengths;  // [passes]: tokens that each committed

    /// Returns the committed tokens per pass; 0 if there was no pass.
    [[nodiscard]] double mean_accepted_tokens() const;
    /// Adds the counts and times of `other` to these, and appends its accept_lengths.
    ReplayFigures& operator+=(const ReplayFigures& other);
};

/// Replays one conversation. `budget`: most nodes of a tree, node 0 included (>= 1, CHECKed). The first turn must have
/// a prompt (CHECKed). The proposer is first told that its sequence was cut to nothing. It keeps what it has learnt;
/// the caller resets it if that is not wanted. It sees no logits (Observation::logits is empty), and neither tokens nor
/// length of the answer before they are committed.
[[nodiscard]] ReplayFigures replay(Proposer& proposer, std::span<const RecordedTurn> turns, std::int64_t budget);

}  // namespace slipstream::draft
