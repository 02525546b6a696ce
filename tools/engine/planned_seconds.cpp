#include "tools/engine/planned_seconds.h"

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/device.h"
#include "runtime/plan/split_plan.h"
#include "tools/engine/kept_expert_counts.h"
#include "tools/engine/kept_rates.h"
#include "tools/engine/planner.h"

namespace slipstream::tools {

namespace {

constexpr std::size_t kEverything = std::size_t{1} << 56;

draft::PlannedSeconds seconds_by(std::shared_ptr<const SplitPlan> plan) {
    return [plan = std::move(plan)](std::int64_t n_nodes, std::int64_t text_tokens) {
        return plan->pass(n_nodes, text_tokens).seconds;
    };
}

// Returns the planned seconds of passes of the model of `source` if all of it is resident on a device with these rates.
// `counted` is [layers], or empty. `source` must outlive the result.
draft::PlannedSeconds seconds_by_rates(const WeightSource& source, const ModelWeights& weights, DType kv_dtype,
                                       WeightRounding rounding, const PassRates& rates, std::int64_t context_tokens,
                                       const std::vector<CountedExperts>& counted) {
    const ModelConfig& config = source.config();
    return seconds_by(std::make_shared<const SplitPlan>(
        SplitPlan({.config = &config,
                   .weights = &weights,
                   .rank_request =
                       [&](std::size_t /*rank*/, const ModelConfig& of_rank, const ModelWeights& weights_of_rank) {
                           return ModelPlanRequest{.config = &of_rank,
                                                   .weights = &weights_of_rank,
                                                   .rounding = rounding,
                                                   .kv_dtype = kv_dtype,
                                                   .context_tokens = context_tokens,
                                                   .budget_bytes = kEverything,
                                                   .speed = {.rates = rates, .link_bytes_per_second = 1.0}};
                       },
                   .pass_tokens = 1})
            .with_counted(counted)));
}

// As resident_planned_seconds(), with what is counted of the model's experts.
draft::PlannedSeconds seconds_if_resident(const WeightSource& source, DType kv_dtype, WeightRounding rounding,
                                          const PlacedModel& model, const std::vector<CountedExperts>& counted) {
    const ModelWeights weights = source.weights();
    const MachineRates machine =
        machine_rates({.config = &source.config(),
                       .weights = &weights,
                       .rounding = rounding,
                       .kv_dtype = kv_dtype,
                       .n_threads = model.device_threads(),
                       .card = model.device().kind() == DeviceKind::Cuda ? &model.device() : nullptr,
                       .effort = RateEffort::Compute},
                      model.rates_options(), model.callbacks());
    return seconds_by_rates(source, weights, kv_dtype, rounding, machine.rates, model.context_tokens(), counted);
}

// Returns the planned seconds of passes of the model on its only device, as if everything were resident there, whether
// it is or not. The rates of a GPU were measured before the weights filled its memory budget (LoadedModel::make_plan).
// `model` must outlive the result.
draft::PlannedSeconds seconds_alone(const LoadedModel& model) {
    const std::vector<CountedExperts> counted = counted_experts(model.expert_counts());
    if (model.device().kind() != DeviceKind::Cuda)
        return seconds_if_resident(model.files(), model.kv_dtype(), WeightRounding::None, model, counted);
    return seconds_by_rates(model.files(), model.weights(), model.kv_dtype(), WeightRounding::None,
                            model.rates(0).rates, model.context_tokens(), counted);
}

}  // namespace

draft::PlannedSeconds target_planned_seconds(const LoadedModel& model) {
    if (model.streams() || model.devices().size() > 1)
        return seconds_by(std::make_shared<const SplitPlan>(*model.plan()));
    return seconds_alone(model);
}

SplitPlan resident_plan(const PlacedModel& model, std::int64_t context_tokens) {
    PlacementRequest request = placement_request(model, {.timed = true, .has_workspace = true});
    request.context_tokens = context_tokens;
    for (PlannedDevice& device : request.devices) {
        device.budget_bytes = kEverything;
        device.taken = {};
    }
    return SplitPlan(split_plan_request(std::move(request)));
}

// Returns the planned seconds of passes over a KV view (the part of the KV cache over which the target itself drafts),
// as if everything were resident. With several devices nothing is measured here: their rates were measured when the
// model was planned.
draft::PlannedSeconds view_planned_seconds(const LoadedModel& model) {
    if (model.devices().size() == 1) return seconds_alone(model);
    return seconds_by(std::make_shared<const SplitPlan>(
        resident_plan(model, model.context_tokens()).with_counted(counted_experts(model.expert_counts()))));
}

draft::PlannedSeconds resident_planned_seconds(const WeightSource& source, DType kv_dtype, WeightRounding rounding,
                                               const PlacedModel& model) {
    return seconds_if_resident(source, kv_dtype, rounding, model, {});
}

}  // namespace slipstream::tools
