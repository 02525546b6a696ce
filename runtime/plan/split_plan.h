// A model over several devices (runtime/ranks), planned: what of its share stays on each, and what passes take while
// all their links copy: where layers are shared out the devices compute in turns, where matrices are, at the same time.
// One device with all of the model is the simplest case.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "runtime/model/model_shard.h"
#include "runtime/plan/model_plan.h"

namespace slipstream {

/// What a rank asks for, given what it has of the model. Tokens of a pass are for the plan to set.
using RankRequest =
    std::function<ModelPlanRequest(std::size_t rank, const ModelConfig& config, const ModelWeights& weights)>;

struct SplitPlanRequest {
    const ModelConfig* config = nullptr;    // of the whole model
    const ModelWeights* weights = nullptr;  // views with or without memory
    SplitKind kind = SplitKind::Layers;
    std::vector<ModelShard> shards{};  // of each rank, of that kind; empty: one device has all of the model
    RankRequest rank_request;
    std::optional<std::int64_t> pass_tokens{};  // as ModelPlanRequest has it
};

class SplitPlan {
public:
    /// Throws OutOfBudget as plan_residency() does.
    explicit SplitPlan(const SplitPlanRequest& request);

    [[nodiscard]] const std::vector<ModelPlan>& ranks() const { return ranks_; }
    /// As ModelPlan has them, of all devices together.
    [[nodiscard]] std::int64_t pass_tokens() const { return pass_tokens_; }
    [[nodiscard]] SimulatedPass pass(std::int64_t n_tokens, std::int64_t text_tokens) const;
    [[nodiscard]] SimulatedPass pass(std::int64_t n_tokens) const { return pass(n_tokens, context_tokens_); }
    /// Sums over all devices, but for what is an item's; seconds and regime of the whole.
    [[nodiscard]] const ResidencyPlan& sums() const { return sums_; }
    [[nodiscard]] bool streams() const { return sums_.ring_bytes > 0; }
    [[nodiscard]] bool prompts_read_weights_once() const;

private:
    void place(const SplitPlanRequest& request);
    void order_blocks(const SplitPlanRequest& request);
    [[nodiscard]] SimulatedPass slowest_rank(std::int64_t n_tokens, std::int64_t text_tokens) const;
    void sum_up();

    SplitKind kind_ = SplitKind::Layers;
    std::vector<ModelPlan> ranks_;
    std::vector<std::int32_t> order_;  // of layers: the rank of each item of a pass, in order
    std::int64_t context_tokens_ = 0;
    std::int64_t pass_tokens_ = 1;
    ResidencyPlan sums_;
};

/// How many layers, or kv heads where request.kind is Tensor, each of `n_ranks` devices is to have so that a pass takes
/// least: from an even split on, they move while that gains. Of equals the first found; the same request gives the same
/// answer. `request.shares` is not looked at. Throws Unsupported where there are fewer than devices, OutOfBudget where
/// no split found fits.
[[nodiscard]] std::vector<std::int64_t> choose_parts(const SplitPlanRequest& request, std::size_t n_ranks);

}  // namespace slipstream
