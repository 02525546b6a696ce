// Plans of a placed model: what of it stays on each device, what streams, and what passes then take.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/plan/split_plan.h"
#include "tools/engine/memory_plan.h"
#include "tools/engine/placed_model.h"

namespace slipstream::tools {

/// What a plan over the devices of a placed model is asked.
struct EnginePlanRequest {
    RunNeeds needs{};
    std::vector<std::size_t> beside_bytes{};      // [devices] taken beside what lies there; empty: nothing
    std::optional<std::size_t> ring_bytes{};      // of each
    std::optional<std::int64_t> pass_tokens = 1;  // nothing: as many as ride along
    bool timed = false;                           // with the speeds of this machine; else of none
    bool has_workspace = false;                   // it is reserved already
};
/// `placed` must outlive the result.
[[nodiscard]] SplitPlanRequest split_plan_request(const PlacedModel& placed, const EnginePlanRequest& plan_request);
/// The plan that is asked for; where it does not fit, with the largest passes of the self-check with which it does, as
/// plan_request.needs says then. Nothing where there is none.
[[nodiscard]] std::optional<SplitPlan> fitting_plan(const PlacedModel& placed, EnginePlanRequest& plan_request);

/// Puts into `request` what a device of this machine and the options say of speeds.
void set_rates(ModelPlanRequest& request, const EngineDevice& device, const MachineRates& machine);

}  // namespace slipstream::tools
