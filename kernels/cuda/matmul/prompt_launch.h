// Parameters of what multiplies a prefill chunk by cuBLASLt (prompt_plan.h tells the shapes): tokens rounded, a slab
// of weights unpacked, the product, its elements to where they belong. Plain data; everything but x and y is scratch.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/matmul/matmul_launch.h"

namespace slipstream::cuda {

/// What the product multiplies: F16 weights are halves, all others are rounded to bfloat16 once they are unpacked.
enum class PromptOperands : std::int32_t { Bf16, F16 };

/// x into rows [first_token, first_token + n_tokens) of the prefill chunk; its other rows become zeros.
struct PromptActivationsLaunch {
    PromptOperands operands = PromptOperands::Bf16;
    std::int32_t n_tokens = 0;
    std::int32_t first_token = 0;
    std::int64_t k = 0;           // a multiple of 32
    const float* x = nullptr;     // [n_tokens, k]
    std::int64_t x_stride = 0;    // floats
    void* activations = nullptr;  // [512, k], aligned to 16 bytes
    float* factors = nullptr;     // [512]; F16 alone
};
void launch_prompt_activations(const PromptActivationsLaunch& launch, void* stream);

/// Groups of 16 packed rows, unpacked behind one another.
struct PromptWeightsLaunch {
    std::int32_t dtype = 0;  // slipstream::DType, not F32
    std::int64_t n_groups = 0;
    std::int64_t k = 0;            // a multiple of 32
    const void* packed = nullptr;  // [n_groups], aligned to 16 bytes
    void* rows = nullptr;          // [16 * n_groups, k], aligned to 16 bytes
};
void launch_prompt_weights(const PromptWeightsLaunch& launch, void* stream);

/// product[t, r] = sum over k of activations[t, k] * weights[r, k], in float, by cuBLASLt. The algorithm is what its
/// heuristics name first for (operands, slab_rows, k) on this card, without any split of K that a second kernel or
/// atomics would add up; found once, nothing is timed.
struct PromptProductLaunch {
    void* blas = nullptr;  // Module::make_blas()
    PromptOperands operands = PromptOperands::Bf16;
    std::int64_t slab_rows = 0;
    std::int64_t k = 0;
    const void* activations = nullptr;  // [512, k]
    const void* weights = nullptr;      // [slab_rows, k]
    float* product = nullptr;           // [512, slab_rows]
    std::int64_t product_stride = 0;    // floats, a multiple of 4; product is aligned to 16 bytes
    void* workspace = nullptr;          // kPromptBlasBytes, aligned to 256
};

/// y = product (+ bias) (+ y), the sums in this order.
struct PromptStoreLaunch {
    std::int32_t n_tokens = 0;
    std::int64_t n_rows = 0;
    const float* product = nullptr;  // [n_tokens, n_rows]
    std::int64_t product_stride = 0;
    const float* factors = nullptr;  // [n_tokens] that multiply, or null
    const float* bias = nullptr;     // [n_rows], or null
    float* y = nullptr;              // [n_tokens, n_rows]
    std::int64_t y_stride = 0;
    MatmulStoreForm store = MatmulStoreForm::Overwrite;
};
void launch_prompt_store(const PromptStoreLaunch& launch, void* stream);

}  // namespace slipstream::cuda
