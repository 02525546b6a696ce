// What crosses the border of the module for sums over several GPUs (module_api.h: sum_parts, gather_parts).
#pragma once

#include <cstddef>

#include "kernels/cuda/module_api.h"

namespace slipstream::cuda {

/// Arguments of one rank in a call that enqueues for all ranks.
struct RankPart {
    Place place{};                 // the rank's device and stream
    void* communicator = nullptr;  // the rank's communicator, from Module::make_communicators()
    const float* from = nullptr;   // [n_floats], device memory
    float* to = nullptr;  // device memory. Sum: [n_floats], may be `from`; gathering: [n_ranks, n_floats] in the order
                          // of the ranks
};

}  // namespace slipstream::cuda
