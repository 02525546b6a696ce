// Where a kernel leaves the activations that it makes a second time: rounded and laid out for matmuls, as
// matmul_plan.h tells. Plain data, part of launches.
#pragma once

#include <cstdint>

namespace slipstream::cuda {

/// Of rows that are bfloat16 to the matmuls behind. Columns of tokens that are not there may stay as they are: they
/// reach no output.
struct ActivationDestination {
    char* fragments = nullptr;  // null: nowhere
    float* sums = nullptr;      // of 32 each; null: none
    std::int64_t n_tiles = 0;   // of 8 tokens
    std::int64_t n_blocks = 0;  // of 32 k; behind the row's end come zeros
};

}  // namespace slipstream::cuda
