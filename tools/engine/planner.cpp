#include "tools/engine/planner.h"

#include <algorithm>
#include <utility>

#include "kernels/base/error.h"
#include "kernels/workspace.h"
#include "runtime/pass/forward.h"
#include "runtime/plan/split_plan.h"
#include "tools/engine/engine.h"

namespace slipstream::tools {

namespace {

// More than anything needs, and far from overflow.
constexpr std::size_t kRoomyBytes = std::size_t{1} << 56;

// Sets the rates of a device of this machine; a requested link speed can only lower its own.
void set_rates(PlannedDevice& device, const EngineDevice& own, const MachineRates& machine) {
    const double throttled = own.throttled_link_bytes_per_second;
    device.rates = machine.rates;
    device.link_bytes_per_second =
        throttled > 0.0 ? std::min(throttled, machine.copy_bytes_per_second) : machine.copy_bytes_per_second;
    device.memory_bytes_per_second = machine.memory_bytes_per_second;
    device.host_bytes_per_copied_byte = machine.host_bytes_per_copied_byte;
}

}  // namespace

SplitPlanRequest split_plan_request(PlacementRequest request) {
    SplitPlanRequest split{.config = request.config,
                           .weights = request.weights,
                           .kind = request.split,
                           .shards = request.shards,
                           .rank_request = {},
                           .pass_tokens = request.pass_tokens};
    split.rank_request = [request = std::move(request)](std::size_t rank, const ModelConfig& config,
                                                        const ModelWeights& weights) {
        const PlannedDevice& device = request.devices[rank];
        const RunNeeds& needs = request.needs;
        const std::size_t n_summing = request.split == SplitKind::Tensor ? request.devices.size() : 0;
        std::size_t taken = device.taken_bytes;
        if (device.device != nullptr)
            taken +=
                workspace_bytes(*device.device, Forward::workspace_shapes(config, request.kv_dtype, needs.forward));
        ModelPlanRequest asked =
            memory_request({.config = &config,
                            .weights = &weights,
                            .kv_dtype = request.kv_dtype,
                            .text_tokens = needs.text_tokens > 0 ? needs.text_tokens : request.context_tokens,
                            .needs = needs,
                            .taken_bytes = taken,
                            .summing = {device.kind, n_summing}});
        asked.budget_bytes = std::min(device.budget_bytes, kRoomyBytes);
        asked.ring_bytes = request.ring_bytes;
        asked.rates = device.rates;
        asked.link_bytes_per_second = device.link_bytes_per_second;
        asked.memory_bytes_per_second = device.memory_bytes_per_second;
        // GPUs that share matrices share the host's memory for their copies. For CPU devices the rate is one device's
        // part already: measured with the threads of one, or divided by MachineRates::shared_by().
        if (n_summing > 1 && device.kind == DeviceKind::Cuda)
            asked.memory_bytes_per_second /= static_cast<double>(n_summing);
        asked.host_bytes_per_copied_byte = device.host_bytes_per_copied_byte;
        return asked;
    };
    return split;
}

PlacementRequest placement_request(const PlacedModel& placed, const EnginePlanRequest& plan_request) {
    PlacementRequest request{.config = &placed.config(),
                             .weights = &placed.weights(),
                             .kv_dtype = placed.kv_dtype(),
                             .context_tokens = placed.context_tokens(),
                             .needs = plan_request.needs,
                             .devices = {},
                             .split = placed.split(),
                             .shards = placed.shards(),
                             .ring_bytes = plan_request.ring_bytes.value_or(0),
                             .pass_tokens = plan_request.pass_tokens};
    for (std::size_t i = 0; i < placed.devices().size(); ++i) {
        const EngineDevice& own = placed.devices()[i];
        PlannedDevice device{.kind = own.device->kind(),
                             .budget_bytes = own.device->budget().limit_bytes(),
                             .taken_bytes = own.device->budget().used_bytes(),
                             .device = plan_request.has_workspace ? nullptr : own.device.get()};
        if (!plan_request.beside_bytes.empty()) device.taken_bytes += plan_request.beside_bytes[i];
        if (plan_request.timed) set_rates(device, own, placed.rates(i));
        request.devices.push_back(device);
    }
    return request;
}

std::optional<SplitPlan> fitting_plan(const PlacedModel& placed, EnginePlanRequest& plan_request) {
    do {
        try {
            return SplitPlan(split_plan_request(placement_request(placed, plan_request)));
        } catch (const OutOfBudget&) {  // a smaller self-check may fit
        }
    } while (shrink_check(plan_request.needs));
    return std::nullopt;
}

}  // namespace slipstream::tools
