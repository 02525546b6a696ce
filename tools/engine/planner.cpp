#include "tools/engine/planner.h"

#include <algorithm>

#include "kernels/base/error.h"
#include "kernels/workspace.h"
#include "runtime/pass/forward.h"

namespace slipstream::tools {

namespace {

// More than anything takes, and still far from overflow.
constexpr std::size_t kRoomyBytes = std::size_t{1} << 56;

}  // namespace

SplitPlanRequest split_plan_request(const PlacedModel& placed, const EnginePlanRequest& plan_request) {
    const auto rank_request = [&placed, plan_request](std::size_t rank, const ModelConfig& config,
                                                      const ModelWeights& weights) {
        Device& device = *placed.devices()[rank].device;
        const std::size_t workspace =
            plan_request.has_workspace ? 0
                                       : workspace_bytes(device, Forward::workspace_shapes(config, placed.kv_dtype(),
                                                                                           plan_request.needs.forward));
        ModelPlanRequest request =
            memory_request({.config = &config,
                            .weights = &weights,
                            .kv_dtype = placed.kv_dtype(),
                            .text_tokens = plan_request.needs.text_tokens > 0 ? plan_request.needs.text_tokens
                                                                              : placed.context_tokens(),
                            .needs = plan_request.needs,
                            .taken_bytes = device.budget().used_bytes() + workspace +
                                           (plan_request.beside_bytes.empty() ? 0 : plan_request.beside_bytes[rank]),
                            .summing = {device.kind(), placed.shards_matrices() ? placed.devices().size() : 0}});
        request.budget_bytes = std::min(device.budget().limit_bytes(), kRoomyBytes);
        request.ring_bytes = plan_request.ring_bytes.value_or(0);
        request.link_bytes_per_second = 1.0;  // any, where speeds are not asked for
        if (plan_request.timed) {
            set_rates(request, placed.devices()[rank], placed.rates(rank));
            // Cards share it for their copies; of CPU devices it was measured with the threads of one.
            if (placed.shards_matrices() && placed.devices()[rank].choice.card)
                request.memory_bytes_per_second /= static_cast<double>(placed.devices().size());
        }
        return request;
    };
    return {.config = &placed.config(),
            .weights = &placed.weights(),
            .kind = placed.split(),
            .shards = placed.shards(),
            .rank_request = rank_request,
            .pass_tokens = plan_request.pass_tokens};
}

std::optional<SplitPlan> fitting_plan(const PlacedModel& placed, EnginePlanRequest& plan_request) {
    do {
        try {
            return SplitPlan(split_plan_request(placed, plan_request));
        } catch (const OutOfBudget&) {  // the next may fit
        }
    } while (shrink_check(plan_request.needs));
    return std::nullopt;
}

void set_rates(ModelPlanRequest& request, const EngineDevice& device, const MachineRates& machine) {
    const double throttled = device.throttled_link_bytes_per_second;
    request.rates = machine.rates;
    request.link_bytes_per_second =
        throttled > 0.0 ? std::min(throttled, machine.copy_bytes_per_second) : machine.copy_bytes_per_second;
    request.memory_bytes_per_second = machine.memory_bytes_per_second;
    request.host_bytes_per_copied_byte = machine.host_bytes_per_copied_byte;
}

}  // namespace slipstream::tools
