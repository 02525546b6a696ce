// Scratch of delta nets on a CUDA device.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/delta_net.h"

namespace slipstream::cuda {

/// Returns the most bytes of scratch that a call of delta_net() of up to `n_steps` steps takes: its working states.
[[nodiscard]] std::size_t delta_net_scratch_bytes(const DeltaNetShape& shape, std::int64_t n_steps);

}  // namespace slipstream::cuda
