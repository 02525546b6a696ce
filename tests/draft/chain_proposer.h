// Chains by a draft model, and a target that makes texts with them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "draft/models/draft_model.h"
#include "draft/papers/chain_shape.h"
#include "runtime/loop/generation_loop.h"
#include "runtime/loop/loop_needs.h"
#include "runtime/ranks/rank_target.h"

namespace slipstream::draft {

class ChainProposer final : public Proposer {
public:
    ChainProposer(DraftModel& model, const SamplerOptions& sampling, std::int64_t gamma)
        : model_(model), noise_(sampling.temperature > 0.0 ? PathNoise(sampling.seed) : PathNoise()), gamma_(gamma) {}

    void propose(TokenTree& tree, const ProposalLimits& limits) override {
        propose_chain(tree,
                      {.text = limits.text, .budget = limits.budget, .max_depth = limits.max_depth, .noise = &noise_},
                      gamma_, model_);
    }
    void observe(const Observation& observation) override {
        if (observation.tree != nullptr) {
            const auto n_guesses = observation.tree->size() - 1;
            const auto n_accepted = std::ssize(observation.accepted) - 1;
            drafted += n_guesses;
            accepted += n_accepted;
            offered += std::min<std::int64_t>(n_accepted + 1, n_guesses);
            ++passes;
        }
        model_.observe(observation);
    }
    [[nodiscard]] double acceptance() const { return static_cast<double>(accepted) / static_cast<double>(offered); }

    std::int64_t drafted = 0;
    std::int64_t offered = 0;  // with an accepted parent
    std::int64_t accepted = 0;
    std::int64_t passes = 0;

private:
    DraftModel& model_;
    PathNoise noise_;
    std::int64_t gamma_;
};

// A target with all that a text needs.
class Target {
public:
    Target(const Model& model, std::int64_t context)
        : model_(model),
          cache_(model.device(), model.kv_layouts(), context, scratch_nodes_for(kBudget)),
          forward_(model, forward_limits_for(kBudget)) {}

    std::vector<TokenId> generate(const std::vector<TokenId>& prompt, std::int64_t n_tokens,
                                  const SamplerOptions& sampling, Proposer& proposer) {
        cache_.truncate(0);
        Sampler sampler(sampling, model_.config().vocab);
        ExactVerifier walk(sampler);
        RankTarget target(forward_, cache_);
        Sequence sequence(target);
        GenerationLoop loop(sequence, walk, proposer, {.budget = kBudget, .end_tokens = {}});
        loop.begin(prompt);
        for (std::int64_t left = n_tokens; left > 0;) {
            const auto fresh = loop.step(left);
            if (fresh.empty()) break;
            left -= std::ssize(fresh);
        }
        return loop.text();
    }

private:
    static constexpr std::int64_t kBudget = 16;
    const Model& model_;
    KvCache cache_;
    Forward forward_;
};

}  // namespace slipstream::draft
