// Parameters of the kernels that multiply a prefill chunk by cuBLASLt (shapes: prompt_plan.h): they round tokens,
// unpack a slab of weights, multiply, and store the product's elements as outputs. Plain data; all pointers are to
// device memory, and everything but x, packed weights, bias and y is scratch.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/matmul/matmul_launch.h"

namespace slipstream::cuda {

/// Type of both factors of the product: binary16 for F16 weights; all others are rounded to bfloat16 after they are
/// unpacked.
enum class PromptOperands : std::int32_t { Bf16, F16 };

/// Rounds x into rows [first_token, first_token + n_tokens) of the prefill chunk, and sets its other rows to zero.
struct PromptActivationsLaunch {
    PromptOperands operands = PromptOperands::Bf16;
    std::int32_t n_tokens = 0;
    std::int32_t first_token = 0;
    std::int64_t k = 0;           // a multiple of 32
    const float* x = nullptr;     // [n_tokens, k]
    std::int64_t x_stride = 0;    // floats from one token to the next
    void* activations = nullptr;  // [512, k], aligned to 16 bytes
    float* factors = nullptr;     // [512]: each undoes the power of two that its token was multiplied by; only for F16
};
/// Enqueues the kernel of `launch` on `stream`.
void launch_prompt_activations(const PromptActivationsLaunch& launch, void* stream);

/// Unpacks contiguous row groups of 16 packed rows into contiguous rows.
struct PromptWeightsLaunch {
    std::int32_t dtype = 0;  // slipstream::DType, but not F32
    std::int64_t n_groups = 0;
    std::int64_t k = 0;            // a multiple of 32
    const void* packed = nullptr;  // [n_groups] row groups, aligned to 16 bytes
    void* rows = nullptr;          // [16 * n_groups, k], aligned to 16 bytes
};
/// Enqueues the kernel of `launch` on `stream`; nothing if there are no row groups.
void launch_prompt_weights(const PromptWeightsLaunch& launch, void* stream);

/// product[t, r] = sum over k of activations[t, k] * weights[r, k], in float, by cuBLASLt. The algorithm is the first
/// that the library's heuristics name for (operands, slab_rows, k) on this GPU, among those that do not split K for a
/// second kernel or atomics to add up. It is chosen once; nothing is timed.
struct PromptProductLaunch {
    void* blas = nullptr;  // Module::make_blas()
    PromptOperands operands = PromptOperands::Bf16;
    std::int64_t slab_rows = 0;
    std::int64_t k = 0;
    const void* activations = nullptr;  // [512, k]
    const void* weights = nullptr;      // [slab_rows, k]
    float* product = nullptr;           // [512, slab_rows]
    std::int64_t product_stride = 0;    // floats from one token to the next, a multiple of 4; product is aligned to 16
                                        // bytes
    void* workspace = nullptr;          // kPromptBlasBytes bytes, aligned to 256
};

/// y = product * factor (+ bias) (+ y), the sums in this order, for some tokens and rows.
struct PromptStoreLaunch {
    std::int32_t n_tokens = 0;
    std::int64_t n_rows = 0;
    const float* product = nullptr;  // [n_tokens, n_rows]
    std::int64_t product_stride = 0;
    const float* factors = nullptr;  // [n_tokens]: each multiplies the product of its token; null: none
    const float* bias = nullptr;     // [n_rows], or null
    float* y = nullptr;              // [n_tokens, n_rows]
    std::int64_t y_stride = 0;
    MatmulStoreForm store = MatmulStoreForm::Overwrite;
};
/// Enqueues the kernel of `launch` on `stream`; nothing if n_tokens or n_rows is 0.
void launch_prompt_store(const PromptStoreLaunch& launch, void* stream);

}  // namespace slipstream::cuda
