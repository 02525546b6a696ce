// All memory of a device, summed up in one place: for `plan`, which only reports it, and for bench and loading, which
// allocate it. So all of them give the same bytes for the same options.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "kernels/device.h"
#include "runtime/model/model_config.h"
#include "runtime/model/weights.h"
#include "runtime/ranks/model_runner.h"

namespace slipstream {
struct ModelPlanRequest;
}

namespace slipstream::tools {

/// Whether the self-check computes passes again without draft tokens.
enum class CheckPasses : std::uint8_t { No, Yes };

/// What runs over a model need of the device beside the model. text_tokens of 0: the whole context.
struct RunNeeds : RunnerNeeds {
    std::size_t other_bytes = 0;  // device memory that the caller allocates after loading
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
    std::size_t n = 0;  // 0 or 1: there are no sums
};
/// Returns the largest sum in bytes: the hidden rows of the largest pass.
[[nodiscard]] std::size_t sum_bytes(const ModelConfig& config, const RunNeeds& needs);

struct MemoryRequest {
    const ModelConfig* config = nullptr;
    const ModelWeights* weights = nullptr;  // views; they need no memory
    DType kv_dtype = DType::F16;
    std::int64_t text_tokens = 0;  // > 0: length of the sequence that must fit
    RunNeeds needs{};
    std::size_t taken_bytes = 0;  // device memory taken by anything but the model: workspace of ops, a draft model
    SummingDevices summing{};
};
/// Returns the request for a plan with all sums in it: fixed memory, memory for streaming, memory for KV that streams.
/// The caller must set budget, ring, rates and tokens of a pass.
[[nodiscard]] ModelPlanRequest memory_request(const MemoryRequest& request);

}  // namespace slipstream::tools
