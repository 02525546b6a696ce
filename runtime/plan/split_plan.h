// Plans a model on several devices (runtime/ranks): what of its shard stays on each device, and how long passes take
// while all links copy. In a split of layers the devices compute in turns, in a split of matrices (tensor split) at the
// same time. One device with the whole model is the simplest case.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "runtime/model/model_shard.h"
#include "runtime/plan/model_plan.h"

namespace slipstream {

/// Returns the request of a rank, given the configuration and the weights of its shard. The plan sets pass_tokens
/// itself.
using RankRequest =
    std::function<ModelPlanRequest(std::size_t rank, const ModelConfig& config, const ModelWeights& weights)>;

/// A split to plan.
struct SplitPlanRequest {
    const ModelConfig* config = nullptr;    // configuration of the whole model
    const ModelWeights* weights = nullptr;  // views with or without memory
    SplitKind kind = SplitKind::Layers;
    std::vector<ModelShard> shards{};  // shard of each rank, of this kind; empty: one device has the whole model
    RankRequest rank_request;
    std::optional<std::int64_t> pass_tokens{};  // as ModelPlanRequest::pass_tokens
};

/// The plan of all devices of a split. Immutable.
class SplitPlan {
public:
    /// Makes the plan. Throws OutOfBudget as plan_residency() does, with the number of the device.
    explicit SplitPlan(const SplitPlanRequest& request);

    /// Returns the plan of each device.
    [[nodiscard]] const std::vector<ModelPlan>& ranks() const { return ranks_; }
    /// Returns the tokens of the pass that residency is planned for, on all devices: see ModelPlan::pass_tokens().
    [[nodiscard]] std::int64_t pass_tokens() const { return pass_tokens_; }
    /// Predicts a pass of `n_tokens` tokens on all devices, after `text_tokens` committed ones or at full context.
    [[nodiscard]] SimulatedPass pass(std::int64_t n_tokens, std::int64_t text_tokens) const;
    [[nodiscard]] SimulatedPass pass(std::int64_t n_tokens) const { return pass(n_tokens, context_tokens_); }
    /// Returns ModelPlan::with_miss_factor() for all devices.
    [[nodiscard]] SplitPlan with_miss_factor(double miss_factor) const;
    /// Returns ModelPlan::with_counted() for all devices; `counted` is [layers of the whole model]. Ignores counted
    /// hits if those of a layer that has slots are missing, and counted distinct experts if those of a layer that has
    /// experts are missing: a sum of counted ones and a prior would be neither.
    [[nodiscard]] SplitPlan with_counted(const std::vector<CountedExperts>& counted) const;
    /// Returns a plan with the sums, over all devices, of the bytes of their plans; per-item members are empty. Its
    /// seconds and link fraction are those of a pass of pass_tokens() tokens over all devices, its regime that of the
    /// whole model.
    [[nodiscard]] const ResidencyPlan& sums() const { return sums_; }
    /// Returns true if anything streams on any device, or experts are computed in host memory.
    [[nodiscard]] bool streams() const { return sums_.regime != Regime::AllFits; }
    /// Returns true if a prompt reads the streamed weights of all devices once; never in a tensor split that streams
    /// weights.
    [[nodiscard]] bool prompts_read_weights_once() const;

private:
    void place(const SplitPlanRequest& request);
    // Sets order_, the ranks in computing order.
    void order_items(const SplitPlanRequest& request);
    [[nodiscard]] SimulatedPass slowest_rank(std::int64_t n_tokens, std::int64_t text_tokens) const;
    void sum_up();

    SplitKind kind_ = SplitKind::Layers;
    std::vector<ModelPlan> ranks_;
    std::vector<std::vector<std::int64_t>> layers_;  // [ranks], as ModelShard::layers
    std::vector<std::int32_t> order_;                // layer split: rank of each item of a pass, in computing order
    std::int64_t context_tokens_ = 0;
    std::int64_t pass_tokens_ = 1;
    ResidencyPlan sums_;
};

/// Returns how many parts, layers or (SplitKind::Tensor) kv heads, each of `n_ranks` devices should have for the
/// shortest pass. Starts with an even split and moves parts while that gains. Ties go to the first split found; the
/// same request gives the same answer. Ignores `request.shards`. Throws Unsupported if there are fewer parts than
/// devices, OutOfBudget if no split that was found fits.
[[nodiscard]] std::vector<std::int64_t> choose_parts(const SplitPlanRequest& request, std::size_t n_ranks);

}  // namespace slipstream
