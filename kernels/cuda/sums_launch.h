// What crosses the module's border for sums over several cards (module_api.h: sum_parts, gather_parts).
#pragma once

#include <cstddef>

#include "kernels/cuda/module_api.h"

namespace slipstream::cuda {

/// One rank's side of a call for all of them.
struct RankPart {
    Place place{};                 // its stream
    void* communicator = nullptr;  // of its own, of make_communicators()
    const float* from = nullptr;   // device memory, as `to`
    float* to = nullptr;           // of a sum: may be `from`; of a gathering: the parts of all ranks, in order
};

}  // namespace slipstream::cuda
