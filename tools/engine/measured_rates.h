// What this machine's CPU, or a card, takes for a byte of weights and of KV, and for a byte that is copied: measured
// with the kernels and copy streams that a run uses, in well under a second, for the types and sizes of one model.
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
    All,      // of everything, over much memory
    Compute,  // of computing alone, over little: some hundredths of a second
};

struct RateQuestion {
    const ModelConfig* config = nullptr;
    const ModelWeights* weights = nullptr;  // for their types
    WeightRounding rounding = WeightRounding::None;
    DType kv_dtype = DType::F16;
    int n_threads = 1;       // of a CPU
    Device* card = nullptr;  // where given, what it takes; else the CPU
    RateEffort effort = RateEffort::All;
};

struct MachineRates {
    PassRates rates;                     // types that the model has not: as the slowest that it has
    double copy_bytes_per_second = 0.0;  // of a copy stream, alone: the link of a device that is not throttled
    // Copying beside computing takes from it, by memory bandwidth or by a core; both are counted in bytes of weights
    // that are not read meanwhile. A card has memory of its own: 0, no limit, and nothing lost.
    double memory_bytes_per_second = 0.0;     // of weights, computing alone
    double host_bytes_per_copied_byte = 0.0;  // of weights not read for each byte copied

    /// What each of `n` devices has of them that compute at once, measured with the threads of all.
    [[nodiscard]] MachineRates shared_by(std::size_t n) const;
};

/// Takes up to 320 MiB of the device for as long, less where memory is short.
[[nodiscard]] MachineRates measure_rates(const RateQuestion& question);

}  // namespace slipstream::tools
