// All memory of a device, summed up in one place: for `plan`, which only reports it, and for bench and loading, which
// allocate it. So all of them give the same bytes for the same options.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/device.h"
#include "runtime/model/model_config.h"
#include "runtime/model/weights.h"
#include "runtime/ranks/model_runner.h"

namespace slipstream {
class ModelPlan;
struct ExpertPlan;
struct ModelPlanRequest;
struct ResidencyPlan;
}  // namespace slipstream

namespace slipstream::tools {

/// Whether the self-check computes passes again without draft tokens.
enum class CheckPasses : std::uint8_t { No, Yes };

/// What runs over a model need of the device beside the model. text_tokens of 0: the whole context.
struct RunNeeds : RunnerNeeds {
    std::size_t other_bytes = 0;      // device memory that the caller allocates after loading
    std::size_t head_pass_bytes = 0;  // pinned host memory of the MTP head's passes, allocated before loading
};

/// Returns the needs of generation with trees of up to `budget` nodes and sequences of up to `text_tokens` tokens (0:
/// the whole context).
[[nodiscard]] RunNeeds generation_needs(std::int64_t budget, std::int64_t text_tokens, CheckPasses check);
/// Makes the passes of the self-check smaller; their result is the same. Returns false if there is no self-check or its
/// passes are the smallest already.
[[nodiscard]] bool shrink_check(RunNeeds& needs);

/// Devices that share every matrix and sum their partial products.
struct SummingDevices {
    DeviceKind kind = DeviceKind::Cpu;
    std::size_t n = 0;  // number of devices; 0 or 1: there are no sums
};
/// Returns the largest sum in bytes: the hidden rows of the largest pass.
[[nodiscard]] std::size_t sum_bytes(const ModelConfig& config, const RunNeeds& needs);

/// Device memory that is taken before the model is loaded.
struct TakenMemory {
    std::size_t draft_bytes = 0;  // bytes of a draft model: weights, KV cache, activations
    std::size_t workspace_bytes = 0;
};

/// Returns what is taken of the budget of a device before the model is loaded: all but the workspace counts as a draft
/// model's.
[[nodiscard]] TakenMemory taken_memory(const Budget& budget);

/// Returns "1.2 GiB of weights"; of a plan with experts that stream "1.2 GiB of weights (expected for passes of 4
/// tokens; at most 17 GiB)". `pass_tokens`: of the plan.
[[nodiscard]] std::string streamed_weights_text(const ResidencyPlan& plan, std::int64_t pass_tokens);

/// Returns for how many experts a plan has slots, over all devices: "42 to 43 of 128 experts of a layer"; empty if
/// there are no slots.
[[nodiscard]] std::string expert_slots_text(const ExpertPlan& plan);

/// Returns where the hits of a plan with slots come from, if they are not assumed: "counted in earlier texts of this
/// model".
[[nodiscard]] std::string_view hits_origin_text(const ExpertPlan& plan);

/// Returns why a plan has no slots for experts; empty if it has some, or the model has no experts. `fixed_note` is as
/// PlanWithin::fixed_note.
[[nodiscard]] std::string no_slots_text(const ExpertPlan& plan, const std::string& fixed_note);

/// Memory of one device by purpose, in bytes.
struct DeviceMemory {
    std::size_t weights = 0;      // bytes of resident items, and of tensors that always stay: norms, biases; no slots
    std::size_t kv = 0;           // bytes of resident KV, and of the device tails of KV that streams
    std::size_t kv_scratch = 0;   // bytes of KV rows of tokens that are not committed
    std::size_t ring = 0;         // bytes of the transfer ring of what streams
    std::size_t activations = 0;  // bytes of the activations of passes; those of the self-check included
    std::size_t logits = 0;       // bytes of logits beyond those that they share with activations
    std::size_t draft = 0;        // bytes of the draft model: weights, KV, activations
    std::size_t views = 0;        // bytes of KV views, and of the passes over them
    std::size_t experts = 0;      // bytes of slots of experts
    std::size_t workspace = 0;    // bytes of the workspace of ops
    std::size_t sums = 0;         // bytes of sums between devices that share matrices
    std::size_t other = 0;        // bytes that the caller allocates after loading
    std::optional<std::size_t> free{};  // bytes left of the budget; no value: there is no budget

    /// Returns the sum of all but `free`: the peak of the budget.
    [[nodiscard]] std::size_t used() const;
    /// Returns the names, as JSON has them, and bytes of all but `free`, in this order.
    [[nodiscard]] std::vector<std::pair<std::string_view, std::size_t>> rows() const;
};

struct MemoryRequest {
    const ModelConfig* config = nullptr;
    const ModelWeights* weights = nullptr;  // weights of the model; only types and shapes are read
    DType kv_dtype = DType::F16;
    std::int64_t text_tokens = 0;  // > 0: length of the sequence that must fit
    RunNeeds needs{};
    TakenMemory taken{};
    SummingDevices summing{};
};
/// Returns the request for a plan with all sums in it: fixed memory, memory for streaming, memory for KV that streams.
/// The caller must set budget, ring, rates and tokens of a pass.
[[nodiscard]] ModelPlanRequest memory_request(const MemoryRequest& request);
/// Returns the memory of the device with `plan`, which was made for memory_request(request) with this budget; a
/// budget_bytes of the largest number means that there is no budget.
[[nodiscard]] DeviceMemory device_memory(const MemoryRequest& request, const ModelPlan& plan, std::size_t budget_bytes);

}  // namespace slipstream::tools
