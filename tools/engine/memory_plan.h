// All memory of a device, summed up once: for `plan`, which only tells, and for bench and loading, which take it. So
// for the same options all of them name the same bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "kernels/device.h"
#include "runtime/model/model_config.h"
#include "runtime/model/weights.h"
#include "runtime/plan/model_plan.h"
#include "runtime/ranks/model_runner.h"

namespace slipstream::tools {

/// Whether passes are computed once more without guesses.
enum class CheckPasses : std::uint8_t { No, Yes };

/// What runs over the model will need of the device beside it. text_tokens of 0 means the whole context.
struct RunNeeds : RunnerNeeds {
    std::size_t other_bytes = 0;  // left free for what else allocates there later
};

/// What generating with trees of up to `budget` nodes needs; texts of up to `text_tokens`, 0: the whole context.
[[nodiscard]] RunNeeds generation_needs(std::int64_t budget, std::int64_t text_tokens, CheckPasses check);
/// Smaller passes of the self-check, whose result is the same. False where there is none, or they are the smallest.
[[nodiscard]] bool shrink_check(RunNeeds& needs);

/// Devices that share every matrix, and sum up what each makes of it.
struct SummingDevices {
    DeviceKind kind = DeviceKind::Cpu;
    std::size_t n = 0;  // 0 or 1: there are no sums
};
/// Most that is summed up at once: rows of the largest pass.
[[nodiscard]] std::size_t sum_bytes(const ModelConfig& config, const RunNeeds& needs);

struct MemoryRequest {
    const ModelConfig* config = nullptr;
    const ModelWeights* weights = nullptr;  // views with or without memory
    DType kv_dtype = DType::F16;
    std::int64_t text_tokens = 0;  // > 0, that there is to be room for
    RunNeeds needs{};
    std::size_t taken_bytes = 0;  // of the device by what is no part of the model: workspace of ops, a draft model
    SummingDevices summing{};
};
/// The request for a plan with all sums in it: what is fixed, what streaming takes, what KV takes that streams. Budget,
/// ring, speeds and tokens of a pass are for the caller to set.
[[nodiscard]] ModelPlanRequest memory_request(const MemoryRequest& request);

}  // namespace slipstream::tools
