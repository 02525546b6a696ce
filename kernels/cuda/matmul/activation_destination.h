// Where a kernel stores activations a second time: rounded and laid out for matmuls (matmul_plan.h). Plain data, part
// of launches.
#pragma once

#include <cstdint>

namespace slipstream::cuda {

/// Place in device memory of rows that the following matmuls read as bfloat16. Columns past the last token may keep
/// their old contents, which reach no output.
struct ActivationDestination {
    char* fragments = nullptr;  // operands B of the matmul kernels, laid out as in matmul_plan.h; null: nothing is
                                // stored
    float* sums = nullptr;      // sums of each 32 rounded activations, laid out as in matmul_plan.h; null: not wanted
    std::int64_t n_tiles = 0;   // tiles of 8 tokens in `fragments`
    std::int64_t n_blocks = 0;  // blocks of 32 k in `fragments`; those past the end of the row are filled with zeros
};

}  // namespace slipstream::cuda
