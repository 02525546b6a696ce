#include "tools/engine/planned_seconds.h"

#include <cstddef>
#include <memory>

#include "kernels/device.h"
#include "runtime/plan/model_plan.h"
#include "tools/engine/measured_rates.h"

namespace slipstream::tools {

namespace {

constexpr std::size_t kEverything = std::size_t{1} << 56;

template <typename Plan>
draft::PlannedSeconds seconds_by(std::shared_ptr<const Plan> plan) {
    return [plan = std::move(plan)](std::int64_t n_nodes, std::int64_t text_tokens) {
        return plan->pass(n_nodes, text_tokens).seconds;
    };
}

}  // namespace

draft::PlannedSeconds target_planned_seconds(const EngineModel& engine) {
    if (engine.streams() || engine.devices.size() > 1)
        return seconds_by(std::make_shared<const SplitPlan>(*engine.plan));
    return resident_planned_seconds(*engine.files, engine.kv_dtype, WeightRounding::None, engine);
}

SplitPlan resident_plan(const EngineModel& engine, const ModelWeights& weights, std::int64_t context_tokens) {
    const auto rank_request = [&](std::size_t rank, const ModelConfig& config, const ModelWeights& of_rank) {
        ModelPlanRequest request{.config = &config,
                                 .weights = &of_rank,
                                 .kv_dtype = engine.kv_dtype,
                                 .context_tokens = context_tokens,
                                 .budget_bytes = kEverything};
        set_rates(request, engine.devices[rank]);
        return request;
    };
    return SplitPlan({.config = &engine.files->config(),
                      .weights = &weights,
                      .kind = engine.split,
                      .shards = engine.shards,
                      .rank_request = rank_request,
                      .pass_tokens = 1});
}

// What several devices take was measured when they were planned.
draft::PlannedSeconds view_planned_seconds(const EngineModel& engine) {
    if (engine.devices.size() == 1)
        return resident_planned_seconds(*engine.files, engine.kv_dtype, WeightRounding::None, engine);
    return seconds_by(
        std::make_shared<const SplitPlan>(resident_plan(engine, engine.files->weights(), engine.context_tokens)));
}

draft::PlannedSeconds resident_planned_seconds(const ModelFiles& files, DType kv_dtype, WeightRounding rounding,
                                               const EngineModel& engine) {
    const ModelWeights weights = files.weights();
    const MachineRates machine =
        measure_rates({.config = &files.config(),
                       .weights = &weights,
                       .rounding = rounding,
                       .kv_dtype = kv_dtype,
                       .n_threads = engine.device_threads,
                       .card = engine.device().kind() == DeviceKind::Cuda ? &engine.device() : nullptr,
                       .effort = RateEffort::Compute});
    return seconds_by(std::make_shared<const ModelPlan>(ModelPlanRequest{.config = &files.config(),
                                                                         .weights = &weights,
                                                                         .rounding = rounding,
                                                                         .kv_dtype = kv_dtype,
                                                                         .context_tokens = engine.context_tokens,
                                                                         .budget_bytes = kEverything,
                                                                         .rates = machine.rates,
                                                                         .link_bytes_per_second = 1.0,
                                                                         .pass_tokens = 1}));
}

}  // namespace slipstream::tools
