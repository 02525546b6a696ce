// Generates a text and records the logits of every committed token, so that two ways to the same text can be compared
// bit for bit.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "runtime/loop/generation_loop.h"
#include "runtime/loop/proposer.h"
#include "runtime/loop/sampling/sampler.h"
#include "runtime/loop/self_check.h"
#include "runtime/loop/verify.h"

namespace slipstream {

/// Records the logits of all committed tokens, in order, and passes every call on to another proposer.
class LogitLog final : public Proposer {
public:
    explicit LogitLog(Proposer& proposer) : proposer_(proposer) {}
    void propose(TokenTree& tree, const ProposalLimits& limits) override { proposer_.propose(tree, limits); }
    void observe(const Observation& observation) override {
        for (const TreeNode node : observation.accepted) {
            const auto row = observation.logits.row(logits_row_of(node));
            rows.insert(rows.end(), row.begin(), row.end());
        }
        proposer_.observe(observation);
    }
    std::vector<float> rows;

private:
    Proposer& proposer_;
};

struct Generated {
    std::vector<TokenId> text;
    std::vector<float> logits;

    friend bool operator==(const Generated& a, const Generated& b) {
        return a.text == b.text && a.logits.size() == b.logits.size() &&
               std::memcmp(a.logits.data(), b.logits.data(), a.logits.size() * sizeof(float)) == 0;
    }
};

/// Returns the prompt and `n_tokens` generated tokens (fewer if the loop ends), with their logits.
[[nodiscard]] inline Generated logged_generation(Target& target, const std::vector<TokenId>& prompt,
                                                 std::int64_t n_tokens, Proposer& proposer, std::int64_t budget,
                                                 const SamplerOptions& sampling, std::int64_t vocab,
                                                 SelfCheck* check = nullptr) {
    Sampler sampler(sampling, vocab);
    ExactVerifier verifier(sampler);
    LogitLog log(proposer);
    Sequence sequence(target);
    GenerationLoop loop(sequence, verifier, log, {.budget = budget, .end_tokens = {}});
    if (check != nullptr) loop.check_with(*check);
    loop.begin(prompt);
    for (std::int64_t left = n_tokens; left > 0;) {
        const auto fresh = loop.step(left);
        if (fresh.empty()) break;
        left -= std::ssize(fresh);
    }
    return {loop.text(), log.rows};
}

}  // namespace slipstream
