// The planner: which parts of a model stay on each device, which stream, and how long passes then take. Loading and
// drafting plan over the devices of a placed model, `plan` also over those of a profile; both build their requests
// here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/device.h"
#include "runtime/model/model_shard.h"
#include "runtime/plan/pass_cost.h"
#include "runtime/plan/split_plan.h"
#include "tools/engine/engine_options.h"
#include "tools/engine/kept_rates.h"
#include "tools/engine/memory_plan.h"

namespace slipstream::tools {

class PlacedModel;

/// A device to plan for, of this machine or of a profile.
struct PlannedDevice {
    DeviceKind kind = DeviceKind::Cpu;
    std::size_t budget_bytes = std::numeric_limits<std::size_t>::max();
    TakenMemory taken{};       // parts of the budget that are in use
    Device* device = nullptr;  // if not null, `taken` grows by the workspace of its ops
    // If times are not needed, the link has any positive rate. GPUs that share matrices divide the host's memory
    // bandwidth.
    DeviceSpeed speed{.link_bytes_per_second = 1.0};
    ExpertMisses misses = ExpertMisses::Copy;  // as ModelPlanRequest::misses; a GPU has Copy
};

/// Properties of a device that do not change between starts.
struct DeviceTraits {
    std::string card{};          // name of a GPU; empty: a CPU, or all GPUs of a profile
    std::size_t card_bytes = 0;  // memory of a GPU
    std::string form{};          // kernel variant
    DeviceLimits limits{};
    bool operator==(const DeviceTraits&) const = default;
};
/// Returns whether all of these devices are equal. Then an even split of the matrices that they share is the best.
[[nodiscard]] bool are_alike(std::span<const DeviceTraits> devices);

/// A model on its devices, of this machine or of a profile. `config` and `weights` must outlive all that is made of it.
struct ModelOnDevices {
    const ModelConfig* config = nullptr;
    const ModelWeights* weights = nullptr;  // weights of the model; only types and shapes are read
    DType kv_dtype = DType::F16;
    std::int64_t context_tokens = 0;  // > 0
    std::vector<PlannedDevice> devices;
    SplitKind split = SplitKind::Layers;
    std::vector<ModelShard> shards{};  // [devices]; empty: one device has the whole model
};

/// What is planned of a model on its devices.
struct PlacementRequest : ModelOnDevices {
    RunNeeds needs{};  // needs.text_tokens > 0: length of the longest sequence, used instead of context_tokens
    std::size_t ring_bytes = 0;                   // bytes of the ring of each device; 0: the plan chooses
    std::optional<std::int64_t> pass_tokens = 1;  // no value: as many as are almost free (kAlmostFree)
    bool fixed_experts = false;                   // as ModelPlanRequest::fixed_experts
    double miss_factor = 1.0;                     // of plan_within(): as ModelPlan::with_miss_factor()
    std::vector<CountedExperts> counted{};        // of plan_within(): as SplitPlan::with_counted()
};
[[nodiscard]] SplitPlanRequest split_plan_request(PlacementRequest request);
/// Returns the memory of each device by purpose with `plan`, which was made for `request`.
[[nodiscard]] std::vector<DeviceMemory> device_memory(const PlacementRequest& request, const SplitPlan& plan);

/// Bytes of host memory that a plan takes.
struct HostNeeds {
    std::size_t pinned_bytes = 0;             // weights and KV that stream
    std::size_t hidden_bytes = 0;             // hidden states of a prompt between layers; pinned as well
    std::size_t embedding_bytes = 0;          // token embedding, whose rows are gathered on the host
    std::size_t device_bytes = 0;             // bytes of CPU devices, which are in host memory
    std::size_t checkpoint_bytes = 0;         // most bytes for checkpoints of recurrent layers
    std::size_t locked_checkpoint_bytes = 0;  // of those, bytes of GPUs, which are pinned
    std::size_t hidden_tail_bytes = 0;        // hidden states of the model that are kept for the MTP head
    std::size_t locked_tail_bytes = 0;        // of those, bytes that a GPU writes, which are pinned
    std::size_t head_pass_bytes = 0;          // what the MTP head's passes exchange with its GPU; all of it pinned
    std::size_t kept_bytes = 0;               // most bytes for the KV of a server's earlier texts; not part of the plan
    /// Bytes that are pinned for the MTP head.
    [[nodiscard]] std::size_t head_locked_bytes() const { return locked_tail_bytes + head_pass_bytes; }
    /// Bytes that must be pinned, within --host-memory: without checkpoints, which are left out if the system refuses.
    [[nodiscard]] std::size_t needed_locked_bytes() const { return pinned_bytes + hidden_bytes + head_locked_bytes(); }
    [[nodiscard]] std::size_t locked_bytes() const { return needed_locked_bytes() + locked_checkpoint_bytes; }
    [[nodiscard]] std::size_t total_bytes() const {
        return needed_locked_bytes() + embedding_bytes + device_bytes + checkpoint_bytes +
               (hidden_tail_bytes - locked_tail_bytes) + kept_bytes;
    }
};

/// Returns the host memory that `plan` takes, which was made for `request`; kept_bytes is 0.
[[nodiscard]] HostNeeds host_needs(const PlacementRequest& request, const SplitPlan& plan);

/// Host memory that a plan may take; 0: not known.
struct HostLimits {
    std::size_t pinned_bytes = 0;
    std::size_t all_bytes = 0;
    std::size_t kept_bytes = 0;  // of all_bytes, for the KV of a server's earlier texts
};
/// Returns whether a plan with these needs stays within `limits`, whose kept_bytes count in addition.
[[nodiscard]] bool is_within(HostNeeds needs, const HostLimits& limits);
/// A plan, and the line that says why experts have no slots in it; empty if there is no reason.
struct PlanWithin {
    SplitPlan plan;
    std::string fixed_note;
};
/// Returns the plan for `request`, placed by what is expected, with what the request counts of experts. Slots need all
/// experts in host memory: if that is more than `limits` allow, sets request.fixed_experts and plans that the experts
/// on the device stay there.
[[nodiscard]] PlanWithin plan_within(PlacementRequest& request, const HostLimits& limits);

/// A request for a plan over the devices of a model.
struct EnginePlanRequest {
    RunNeeds needs{};
    std::vector<std::size_t> beside_bytes{};      // [devices], bytes to leave free for others; empty: none
    std::optional<std::size_t> ring_bytes{};      // bytes of the ring of each device; no value: the plan chooses
    std::optional<std::int64_t> pass_tokens = 1;  // no value: as many as are almost free (kAlmostFree)
    bool timed = false;                           // whether to use this machine's rates, measuring them if unknown
    bool has_workspace = false;                   // whether the workspace for `needs` is allocated already
    bool all_resident = false;                    // whether a plan in which something streams counts as none
};
/// Returns the request for a plan over the devices of `model`. Of plan_request only needs, ring_bytes and pass_tokens
/// count.
[[nodiscard]] PlacementRequest placement_request(ModelOnDevices model, const EnginePlanRequest& plan_request);
/// Returns the request for a plan over the devices of `placed`, which must outlive the result.
[[nodiscard]] PlacementRequest placement_request(const PlacedModel& placed, const EnginePlanRequest& plan_request);
/// Returns the requested plan. If it does not fit, makes the passes of the self-check in plan_request.needs smaller
/// until it does. Returns no value if no plan fits.
[[nodiscard]] std::optional<SplitPlan> fitting_plan(const PlacedModel& placed, EnginePlanRequest& plan_request);

}  // namespace slipstream::tools
