#include "tools/engine/planned_seconds.h"

#include <cstddef>
#include <memory>

#include "kernels/device.h"
#include "runtime/plan/model_plan.h"
#include "tools/engine/measured_rates.h"

namespace slipstream::tools {

namespace {

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
    constexpr std::size_t everything = std::size_t{1} << 56;
    return seconds_by(std::make_shared<const ModelPlan>(ModelPlanRequest{.config = &files.config(),
                                                                         .weights = &weights,
                                                                         .rounding = rounding,
                                                                         .kv_dtype = kv_dtype,
                                                                         .context_tokens = engine.context_tokens,
                                                                         .budget_bytes = everything,
                                                                         .rates = machine.rates,
                                                                         .link_bytes_per_second = 1.0,
                                                                         .pass_tokens = 1}));
}

}  // namespace slipstream::tools
