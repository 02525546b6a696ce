#include "kernels/cpu/matmul/matmul_tiling.h"

#include "kernels/cpu_device.h"

namespace slipstream::cpu {

CpuScratch matmul_scratch_interleaved(const WorkspaceShapes& shapes, const InterleavedForm& form) {
    CpuScratch most;
    for (int i = 0; i < kDTypeCount; ++i) {
        const auto type = static_cast<DType>(i);
        const Operand operand = operand_of(form, type);
        const std::int64_t block = dtype_info(type).block_elements;
        const std::int64_t k = shapes.max_cols / block * block;
        // Fewer tokens may use more row groups, and so more memory in all. So each number of tokens is tried.
        for (std::int64_t n = 1; n <= shapes.n_tokens; ++n) {
            const std::int64_t groups = most_groups(form, operand, n);
            most = larger_of(most, {.thread_bytes = ThreadScratch(form, type, shapes.weights, n, k, groups).bytes,
                                    .shared_bytes = laid_out_bytes(operand, n, k)});
        }
    }
    return most;
}

}  // namespace slipstream::cpu
