// Measures how long this machine's CPU, or a GPU, takes per byte of weights and of KV, and per copied byte: with the
// kernels and copy streams of a run, in well under a second, for the types and sizes of one model.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/base/dtype.h"
#include "kernels/device.h"
#include "runtime/model/model_config.h"
#include "runtime/model/weight_items.h"
#include "runtime/model/weights.h"
#include "runtime/plan/pass_cost.h"

namespace slipstream::tools {

enum class RateEffort : std::uint8_t {
    All,      // compute and copies, over much memory
    Compute,  // compute only, over little memory: some hundredths of a second
};

struct RateQuestion {
    const ModelConfig* config = nullptr;
    const ModelWeights* weights = nullptr;  // types and sizes; the values are not read
    WeightRounding rounding = WeightRounding::None;
    DType kv_dtype = DType::F16;
    int n_threads = 1;       // of a CPU
    Device* card = nullptr;  // GPU to measure; null: the CPU
    RateEffort effort = RateEffort::All;
};

struct MachineRates {
    PassRates rates;                     // types that the model does not have: like the slowest of its types
    double copy_bytes_per_second = 0.0;  // of a copy stream alone: the link of a device that is not throttled
    // Copying slows computing on a CPU, by memory bandwidth or by a core; both count as bytes of weights that are not
    // read meanwhile. A GPU has its own memory: then memory_bytes_per_second is 0 (no limit), and
    // host_bytes_per_copied_byte has no effect.
    double memory_bytes_per_second = 0.0;     // bytes of weights read while computing alone
    double host_bytes_per_copied_byte = 0.0;  // bytes of weights not read per copied byte

    /// Returns the rates of each of `n` devices that compute at the same time, if these are measured with the threads
    /// of all.
    [[nodiscard]] MachineRates shared_by(std::size_t n) const;
};

/// Measures. Allocates up to 320 MiB on the device meanwhile, less if memory is short.
[[nodiscard]] MachineRates measure_rates(const RateQuestion& question);

}  // namespace slipstream::tools
