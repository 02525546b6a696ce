// Parameters of the kernel of combine_experts() (kernels/experts.h). All pointers are to device memory.
#pragma once

#include <cstddef>
#include <cstdint>

namespace slipstream::cuda {

struct CombineExpertsLaunch {
    std::int64_t n_rows = 0;
    std::int64_t n_tokens = 0;
    std::int64_t d = 0;
    const float* rows = nullptr;           // [n_rows, d]
    std::int64_t row_stride = 0;           // floats from one row to the next
    const std::int32_t* tokens = nullptr;  // [n_rows]: the token to which each row is added
    const float* weights = nullptr;        // [n_rows]
    float* sums = nullptr;                 // [n_tokens, d]
    std::int64_t sum_stride = 0;           // floats from one token to the next
    bool from_zero = false;                // `sums` are not read
};
/// Enqueues the kernel of `launch` on `stream`. The caller must check the status of the launch.
void launch_combine_experts(const CombineExpertsLaunch& launch, void* stream);

/// Returns the bytes of host memory to which choose_experts() copies what it reads: the logits of all experts, the bias
/// of the choice, the scales of the weights.
[[nodiscard]] constexpr std::size_t choice_bytes(std::int64_t n_tokens, std::int64_t n_experts) {
    return static_cast<std::size_t>((n_tokens + 2) * n_experts) * sizeof(float);
}

}  // namespace slipstream::cuda
