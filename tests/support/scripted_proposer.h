// A proposer that knows the text of plain decoding: it proposes random trees whose tokens are taken from that text with
// probability `hit`. With hit = 1 a pass commits many tokens, with hit = 0 almost always one.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "runtime/loop/proposer.h"

namespace slipstream {

class ScriptedProposer final : public Proposer {
public:
    /// `future`: the prompt and the tokens that follow it. Wrong draft tokens are random tokens in [0, vocab).
    ScriptedProposer(std::vector<TokenId> future, double hit, std::uint32_t seed, std::uint32_t vocab = 97)
        : future_(std::move(future)), hit_(hit), random_(seed), vocab_(vocab) {}

    void propose(TokenTree& tree, const ProposalLimits& limits) override {
        std::uniform_real_distribution<double> uniform;
        for (int attempt = 0; attempt < 500 && tree.size() < limits.budget && limits.max_depth > 0; ++attempt) {
            const TreeNode parent(static_cast<std::int32_t>(random_() % static_cast<std::uint32_t>(tree.size())));
            if (tree.depth(parent) >= limits.max_depth) continue;
            const std::size_t at = n_text_ + static_cast<std::size_t>(tree.depth(parent));
            const bool right = at < future_.size() && uniform(random_) < hit_;
            tree.add(parent, right ? future_[at] : static_cast<TokenId>(random_() % vocab_));
        }
        ++n_proposed;
        nodes_proposed += tree.size();
    }

    /// Also checks the observation: one logits row per node, and the accepted path at the end of the text.
    void observe(const Observation& observation) override {
        n_text_ = observation.text.size();
        n_observed += observation.n_new;
        if (observation.n_new == 0) n_observed = static_cast<std::int64_t>(n_text_);  // the text was truncated
        if (observation.tree == nullptr) return;
        EXPECT_EQ(observation.logits.rows(), observation.tree->size());
        for (std::size_t i = 0; i < observation.accepted.size(); ++i)
            EXPECT_EQ(observation.text[n_text_ - static_cast<std::size_t>(observation.n_new) - 1 + i],
                      observation.tree->token(observation.accepted[i]));
    }

    std::int64_t n_observed = 0;      // tokens of the text, summed from the observations
    std::int64_t n_proposed = 0;      // proposed trees
    std::int64_t nodes_proposed = 0;  // nodes of all proposed trees, node 0 included

private:
    std::vector<TokenId> future_;
    double hit_;
    std::mt19937 random_;
    std::uint32_t vocab_;
    std::size_t n_text_ = 0;
};

}  // namespace slipstream
