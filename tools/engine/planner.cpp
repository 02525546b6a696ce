#include "tools/engine/planner.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "kernels/base/size_text.h"
#include "kernels/workspace.h"
#include "runtime/pass/forward.h"
#include "runtime/pass/hidden_tail.h"
#include "tools/engine/engine.h"

namespace slipstream::tools {

namespace {

// Bytes of the budget of a device that has none: more than anything needs, and far from overflow in sums.
constexpr std::size_t kRoomyBytes = std::size_t{1} << 56;

// Sets the rates of a device of this machine; a requested link speed can only lower its own.
void set_rates(PlannedDevice& device, const EngineDevice& own, const MachineRates& machine) {
    device.speed = machine.speed();
    if (own.throttled_link_bytes_per_second > 0.0)
        device.speed.link_bytes_per_second =
            std::min(own.throttled_link_bytes_per_second, device.speed.link_bytes_per_second);
}

}  // namespace

namespace {

// Returns the request for the memory of the device `rank`, whose shard has `config` and `weights`; both must outlive
// the result.
MemoryRequest rank_memory(const PlacementRequest& request, std::size_t rank, const ModelConfig& config,
                          const ModelWeights& weights) {
    const PlannedDevice& device = request.devices[rank];
    const RunNeeds& needs = request.needs;
    TakenMemory taken = device.taken;
    if (device.device != nullptr)
        taken.workspace_bytes +=
            workspace_bytes(*device.device, Forward::workspace_shapes(config, request.kv_dtype, needs.forward));
    return {.config = &config,
            .weights = &weights,
            .kv_dtype = request.kv_dtype,
            .text_tokens = needs.text_tokens > 0 ? needs.text_tokens : request.context_tokens,
            .needs = needs,
            .taken = taken,
            .summing = {device.kind, request.split == SplitKind::Tensor ? request.devices.size() : 0}};
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
        ModelPlanRequest asked = memory_request(rank_memory(request, rank, config, weights));
        asked.budget_bytes = std::min(device.budget_bytes, kRoomyBytes);
        asked.ring_bytes = request.ring_bytes;
        asked.fixed_experts = request.fixed_experts;
        asked.speed = device.speed;
        // GPUs that share matrices share the host's memory for their copies. For CPU devices the rate is one device's
        // part already: measured with the threads of one, or divided by MachineRates::shared_by().
        if (request.split == SplitKind::Tensor && request.devices.size() > 1 && device.kind == DeviceKind::Cuda)
            asked.speed.memory_bytes_per_second /= static_cast<double>(request.devices.size());
        asked.misses = device.misses;
        return asked;
    };
    return split;
}

std::vector<DeviceMemory> device_memory(const PlacementRequest& request, const SplitPlan& plan) {
    std::vector<DeviceMemory> devices;
    for (std::size_t i = 0; i < plan.ranks().size(); ++i) {
        const bool whole = request.shards.empty();
        const ModelConfig config = whole ? *request.config : shard_config(*request.config, request.shards[i]);
        const ModelWeights weights =
            whole ? *request.weights : shard_weights(*request.weights, *request.config, request.shards[i]);
        devices.push_back(
            device_memory(rank_memory(request, i, config, weights), plan.ranks()[i], request.devices[i].budget_bytes));
    }
    return devices;
}

HostNeeds host_needs(const PlacementRequest& request, const SplitPlan& plan) {
    const ConstTensorView& embedding = request.weights->token_embedding;
    HostNeeds needs;
    for (std::size_t i = 0; i < plan.ranks().size(); ++i) {
        needs.pinned_bytes += plan.ranks()[i].pinned_bytes();
        if (request.devices[i].kind == DeviceKind::Cpu) needs.device_bytes += plan.ranks()[i].residency().device_bytes;
    }
    const bool in_prefill_chunks = request.split == SplitKind::Tensor && plan.ranks().size() > 1;
    if (!in_prefill_chunks && (needs.pinned_bytes > 0 || plan.ranks().size() > 1))
        needs.hidden_bytes = request.context_tokens * row_bytes(DType::F32, request.config->d_model);
    for (std::size_t i = 0; i < request.devices.size(); ++i) {
        const ModelConfig config =
            request.shards.empty() ? *request.config : shard_config(*request.config, request.shards[i]);
        const std::size_t bytes = RecurrentStates::most_checkpoint_bytes(config.kv_layouts(request.kv_dtype),
                                                                         request.context_tokens, kCheckpointBytes);
        needs.checkpoint_bytes += bytes;
        if (request.devices[i].kind != DeviceKind::Cpu) needs.locked_checkpoint_bytes += bytes;
    }
    if (request.needs.hidden_rows > 0) {
        const HiddenTail::HostBytes tail =
            HiddenTail::host_bytes(request.config->d_model, request.needs.hidden_rows, request.needs.scratch_nodes);
        const std::int64_t last = request.config->n_layers() - 1;
        // As RankTarget::hidden_device(): where matrices are split, all devices have the last layer.
        const auto found = std::ranges::find_if(request.shards, [&](const ModelShard& shard) {
            return std::ranges::find(shard.layers, last) != shard.layers.end();
        });
        const std::size_t owner = found != request.shards.end() ? found - request.shards.begin() : 0;
        needs.hidden_tail_bytes = tail.all;
        if (request.devices[owner].kind != DeviceKind::Cpu) needs.locked_tail_bytes = tail.of_nodes;
    }
    needs.head_pass_bytes = request.needs.head_pass_bytes;
    needs.embedding_bytes = embedding.shape[0] * row_bytes(embedding.dtype, embedding.cols());
    return needs;
}

namespace {

bool is_locked_within(const HostNeeds& needs, const HostLimits& limits) {
    return limits.pinned_bytes == 0 || needs.needed_locked_bytes() <= limits.pinned_bytes;
}

}  // namespace

bool is_within(HostNeeds needs, const HostLimits& limits) {
    needs.kept_bytes = limits.kept_bytes;
    return is_locked_within(needs, limits) && (limits.all_bytes == 0 || needs.total_bytes() <= limits.all_bytes);
}

PlanWithin plan_within(PlacementRequest& request, const HostLimits& limits) {
    const SplitPlan plan(split_plan_request(request));
    HostNeeds needs = host_needs(request, plan);
    needs.kept_bytes = limits.kept_bytes;
    if (plan.sums().slot_bytes == 0 || is_within(needs, limits))
        return {plan.with_counted(request.counted).with_miss_factor(request.miss_factor), {}};
    std::string note = fmt::format(
        "experts on the device stay there; to change them, all experts would be in host memory, {}",
        is_locked_within(needs, limits)
            ? fmt::format("{} in all, and there are {}", size_text(needs.total_bytes()), size_text(limits.all_bytes))
            : fmt::format("{} pinned, of which {} may be used (--host-memory)", size_text(needs.needed_locked_bytes()),
                          size_text(limits.pinned_bytes)));
    request.fixed_experts = true;
    return {SplitPlan(split_plan_request(request)).with_counted(request.counted), std::move(note)};
}

TakenMemory taken_memory(const Budget& budget) {
    const std::size_t workspace = budget.used_bytes(MemoryTag::Workspace);
    return {.draft_bytes = budget.used_bytes() - workspace, .workspace_bytes = workspace};
}

bool are_alike(std::span<const DeviceTraits> devices) {
    return std::ranges::all_of(devices, [&](const DeviceTraits& each) { return each == devices.front(); });
}

PlacementRequest placement_request(ModelOnDevices model, const EnginePlanRequest& plan_request) {
    PlacementRequest request{std::move(model)};
    request.needs = plan_request.needs;
    request.ring_bytes = plan_request.ring_bytes.value_or(0);
    request.pass_tokens = plan_request.pass_tokens;
    return request;
}

PlacementRequest placement_request(const PlacedModel& placed, const EnginePlanRequest& plan_request) {
    ModelOnDevices model{.config = &placed.config(),
                         .weights = &placed.weights(),
                         .kv_dtype = placed.kv_dtype(),
                         .context_tokens = placed.context_tokens(),
                         .devices = {},
                         .split = placed.split(),
                         .shards = placed.shards()};
    for (std::size_t i = 0; i < placed.devices().size(); ++i) {
        const EngineDevice& own = placed.devices()[i];
        PlannedDevice device{.kind = own.device->kind(),
                             .budget_bytes = own.device->budget().limit_bytes(),
                             .taken = taken_memory(own.device->budget()),
                             .device = plan_request.has_workspace ? nullptr : own.device.get(),
                             .misses = placed.expert_misses(i)};
        if (!plan_request.beside_bytes.empty()) device.taken.draft_bytes += plan_request.beside_bytes[i];
        if (plan_request.timed) set_rates(device, own, placed.rates(i));
        model.devices.push_back(device);
    }
    return placement_request(std::move(model), plan_request);
}

std::optional<SplitPlan> fitting_plan(const PlacedModel& placed, EnginePlanRequest& plan_request) {
    do {
        try {
            SplitPlan plan(split_plan_request(placement_request(placed, plan_request)));
            if (!plan_request.all_resident || !plan.streams()) return plan;
        } catch (const OutOfBudget&) {  // tried again with a smaller self-check, which may fit
        }
    } while (shrink_check(plan_request.needs));
    return std::nullopt;
}

}  // namespace slipstream::tools
