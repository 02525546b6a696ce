// Parameters of the matmul kernels: y = x W^T (+ bias) (+ y), weights as fragments (fragments.h), of one matrix or of
// several that meet the same x. Plain data.
//
// E1: K is cut into parts by its length and the weights' type alone, each part is one chain of mma from zero, parts are
// added in ascending order; so the bits of an output do not depend on n_tokens, on the form, or on how the matrix's
// rows are cut into slices.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/base/dtype.h"

namespace slipstream::cuda {

/// How the work is dealt out; all give the same bits.
enum class MatmulForm : std::int32_t {
    Chosen,          // by the shape
    Split,           // a block has few rows, its warps the parts of K: weights are read once for up to 64 tokens
    SplitRegisters,  // the same with weights from memory to registers: the form before the ring in shared memory
    Tiles,           // a block has 128 rows x 64 tokens, its warps the rows; tokens come through shared memory. Up to
                     // 32 tokens are always Split
};

enum class MatmulActivations : std::int32_t {
    Prepare,   // round x into scratch first
    Prepared,  // scratch still has them, from a launch with the same x, K and kind of weights (matmul_scratch_kind)
};

enum class MatmulStoreForm : std::int32_t { Overwrite, Add };

inline constexpr std::int32_t kMostMatrices = 6;

struct MatmulMatrix {
    const void* weights = nullptr;  // [ceil(m / 16)] groups, aligned to 16 bytes
    std::int64_t m = 0;             // >= 0
    float* y = nullptr;             // [n_tokens, m]
    std::int64_t y_stride = 0;      // floats
    const float* bias = nullptr;    // [m], or null
};

struct MatmulLaunch {
    std::int32_t dtype = 0;        // slipstream::DType of the weights
    std::int32_t last_dtype = -1;  // of the last matrix, where it is another (matmul_mixes()); -1: the same
    std::int32_t n_matrices = 1;   // 1 to kMostMatrices
    MatmulMatrix matrices[kMostMatrices];
    std::int32_t n_tokens = 0;  // >= 0
    std::int64_t k = 0;         // >= 0, a multiple of the type's block
    const float* x = nullptr;   // [n_tokens, k]
    std::int64_t x_stride = 0;  // floats
    void* scratch = nullptr;    // matmul_scratch_bytes() (matmul_plan.h), aligned to 16 bytes
    MatmulStoreForm store = MatmulStoreForm::Overwrite;
    MatmulActivations activations = MatmulActivations::Prepare;
    MatmulForm form = MatmulForm::Chosen;
    std::int32_t n_multiprocessors = 64;  // of the card: what Chosen looks at
};

/// Of the last matrix.
[[nodiscard]] constexpr DType last_type(const MatmulLaunch& launch) {
    return static_cast<DType>(launch.last_dtype < 0 ? launch.dtype : launch.last_dtype);
}

/// Enqueues a kernel, up to two before it that prepare x; of F32 weights a kernel each matrix. Allocates nothing and
/// waits for nothing; nothing where n_tokens or all m are 0.
void launch_matmul(const MatmulLaunch& launch, void* stream);

}  // namespace slipstream::cuda
