// The one planner: what of a model stays on each device, what streams, and what passes then take. Loading and drafting
// plan over the devices of a placed model, `plan` also over those of a profile; both build their requests here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "kernels/device.h"
#include "runtime/plan/pass_cost.h"
#include "runtime/plan/split_plan.h"
#include "tools/engine/memory_plan.h"
#include "tools/engine/placed_model.h"

namespace slipstream::tools {

/// A device as a plan sees it, of this machine or of a profile.
struct PlannedDevice {
    DeviceKind kind = DeviceKind::Cpu;
    std::size_t budget_bytes = std::numeric_limits<std::size_t>::max();
    std::size_t taken_bytes = 0;  // of the budget, by what is no part of the model: a draft model, workspace
    Device* device = nullptr;     // if not null, the workspace of its ops is added to taken_bytes
    PassRates rates{};
    double link_bytes_per_second = 1.0;    // any positive number if seconds are not asked for
    double memory_bytes_per_second = 0.0;  // of the host, for all devices that share matrices together; 0: no limit
    double host_bytes_per_copied_byte = 1.0;
};

/// A model over devices. `config` and `weights` must outlive what is made of the request.
struct PlacementRequest {
    const ModelConfig* config = nullptr;
    const ModelWeights* weights = nullptr;  // views with or without memory
    DType kv_dtype = DType::F16;
    std::int64_t context_tokens = 0;  // > 0
    RunNeeds needs{};                 // needs.text_tokens > 0: of the longest text, instead of context_tokens
    std::vector<PlannedDevice> devices;
    SplitKind split = SplitKind::Layers;
    std::vector<ModelShard> shards{};             // of the devices; empty: one has all of the model
    std::size_t ring_bytes = 0;                   // of each device; 0: planned
    std::optional<std::int64_t> pass_tokens = 1;  // nothing: as many as ride along
};
[[nodiscard]] SplitPlanRequest split_plan_request(PlacementRequest request);

/// What a plan over the devices of a placed model is asked.
struct EnginePlanRequest {
    RunNeeds needs{};
    std::vector<std::size_t> beside_bytes{};      // [devices] taken beside what is there already; empty: nothing
    std::optional<std::size_t> ring_bytes{};      // of each device; not given: planned
    std::optional<std::int64_t> pass_tokens = 1;  // nothing: as many as ride along
    bool timed = false;                           // with the rates of this machine, which may be measured for it
    bool has_workspace = false;                   // the workspace of the needs is reserved already
};
/// `placed` must outlive the result.
[[nodiscard]] PlacementRequest placement_request(const PlacedModel& placed, const EnginePlanRequest& plan_request);
/// The plan that is asked for; where it does not fit, with the largest passes of the self-check with which it does, as
/// plan_request.needs says then. Nothing where there is none.
[[nodiscard]] std::optional<SplitPlan> fitting_plan(const PlacedModel& placed, EnginePlanRequest& plan_request);

}  // namespace slipstream::tools
