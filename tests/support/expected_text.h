// A text of a split model, compared with that of another placement.
#pragma once

#include <cstdint>

#include <gtest/gtest.h>

#include "tests/support/scripted_proposer.h"
#include "tests/support/split_engine.h"
#include "tests/support/target_texts.h"

namespace slipstream {

/// Generates `n_tokens` tokens after prompt_of(n_prompt), plainly and over trees that a self-check computes again.
/// Expects the text and the logits of `one`.
inline void expect_text(SplitEngine& engine, const Generated& one, std::int64_t n_prompt, std::int64_t n_tokens) {
    for (const std::int64_t budget : {1, 9}) {
        engine.target->truncate(0);
        NoProposer nothing;
        ScriptedProposer scripted(one.text, 0.7, 3);
        Proposer& proposer = budget > 1 ? static_cast<Proposer&>(scripted) : nothing;
        const Generated found = generate(*engine.target, prompt_of(n_prompt), n_tokens, proposer, budget,
                                         budget > 1 ? engine.plain : nullptr);
        EXPECT_EQ(found.text, one.text) << "a budget of " << budget;
        EXPECT_TRUE(same_bits(found.logits, one.logits)) << "a budget of " << budget;
    }
}

}  // namespace slipstream
