// The cost of computing, as numbers that are measured on a machine, or stated for a machine that is not there: seconds
// per byte of weights and of KV, as a function of the vectors that are multiplied with the byte in a pass. These rates
// and a schedule of items give the time of a pass with everything on the device. offload/residency_plan.h adds the time
// of streaming.
#pragma once

#include <array>

#include "kernels/base/dtype.h"
#include "offload/byte_cost.h"

namespace slipstream {

/// Rates of one device.
struct PassRates {
    // Costs by the vectors that a byte is multiplied with: tokens of the pass; of KV, tokens times query heads per kv
    // head.
    std::array<ByteCost, kDTypeCount> weights;  // [DType of the matrix]: cost of a byte of weights
    ByteCost kv;                                // cost of a byte of the KV cache, in its type
    double layer_seconds = 0.0;                 // seconds per layer, for any pass: launches, reductions between devices
    double layer_token_seconds = 0.0;           // seconds per layer and token: norms, activations, reductions
    double pass_seconds = 0.0;                  // seconds per pass outside the layers: embedding, sampling
    double host_bytes_per_second = 0.0;         // host memory that computing reads; 0 for a GPU, which has its own
};

}  // namespace slipstream
