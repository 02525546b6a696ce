// Parameters of the matmul kernels: y = x W^T (+ bias) (+ y), with weights packed as fragments (fragments.h), of one
// matrix or of several with the same x. Plain data.
//
// Batch invariance (E1): K is divided into parts that depend on K and the type of the weights alone; each part is one
// chain of mma from zero; parts are added in ascending order. So the bits of an output do not depend on n_tokens, on
// the form, or on how the matrix's rows are divided into items.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/base/dtype.h"

namespace slipstream::cuda {

/// How the work is divided over thread blocks and warps; all forms give the same bits.
enum class MatmulForm : std::int32_t {
    Chosen,  // chosen by the shape
    Split,   // a thread block has few rows, and each warp a part of K: weights are read once for up to 64 tokens
    SplitRegisters,  // like Split, but weights go from memory to registers, not through a ring in shared memory
    Tiles,  // a thread block has 128 rows x 64 tokens, and each warp 16 rows; tokens go through shared memory. Calls of
            // up to 32 tokens are computed as Split all the same
};

/// Whether a launch prepares its activations.
enum class MatmulActivations : std::int32_t {
    Prepare,   // round x into scratch first
    Prepared,  // scratch still has rounded activations, from a launch with the same x, K and format
               // (matmul_scratch_kind)
};

/// What happens to the old contents of y.
enum class MatmulStoreForm : std::int32_t { Overwrite, Add };

/// Most matrices of a launch, which share x; kernel parameters have room for them.
inline constexpr std::int32_t kMostMatrices = 6;

/// A matrix of a launch, with its output. All pointers are to device memory.
struct MatmulMatrix {
    const void* weights = nullptr;  // [ceil(m / 16)] row groups, aligned to 16 bytes
    std::int64_t m = 0;             // rows, >= 0
    float* y = nullptr;             // [n_tokens, m]
    std::int64_t y_stride = 0;      // floats from one token to the next
    const float* bias = nullptr;    // [m], or null
};

/// One launch: products of the same x with 1 to kMostMatrices matrices. All pointers are to device memory.
struct MatmulLaunch {
    std::int32_t dtype = 0;        // DType of the weights as a number
    std::int32_t last_dtype = -1;  // type of the last matrix if it is another one (matmul_mixes()); -1: the same type
    std::int32_t n_matrices = 1;   // 1 to kMostMatrices
    MatmulMatrix matrices[kMostMatrices];
    std::int32_t n_tokens = 0;  // >= 0
    std::int64_t k = 0;         // >= 0, a multiple of the type's quantisation block
    const float* x = nullptr;   // [n_tokens, k]
    std::int64_t x_stride = 0;  // floats from one token to the next
    void* scratch = nullptr;    // matmul_scratch_bytes() bytes (matmul_plan.h), aligned to 16 bytes
    MatmulStoreForm store = MatmulStoreForm::Overwrite;
    MatmulActivations activations = MatmulActivations::Prepare;
    MatmulForm form = MatmulForm::Chosen;
    std::int32_t n_multiprocessors = 64;  // multiprocessors of the GPU; MatmulForm::Chosen depends on it
};

/// Returns the type of the last matrix.
[[nodiscard]] constexpr DType last_type(const MatmulLaunch& launch) {
    return static_cast<DType>(launch.last_dtype < 0 ? launch.dtype : launch.last_dtype);
}

/// Enqueues the kernel for all matrices, after up to two kernels that prepare x. F32 weights, and kernels that read
/// weights through registers, may take one kernel per matrix. Allocates nothing and does not wait. Does nothing if
/// n_tokens is 0 or all m are 0.
void launch_matmul(const MatmulLaunch& launch, void* stream);

}  // namespace slipstream::cuda
