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

/// Most tiles of a group launch (MatmulGroupLaunch); kernel parameters have room for them.
inline constexpr std::int32_t kMostGroupTiles = 64;

/// A product of one matrix with tokens of one tile of 8: of tokens [first_token, first_token + n_tokens) of x. All
/// pointers are to device memory.
struct MatmulGroupTile {
    const void* weights = nullptr;  // [ceil(m / 16)] row groups, aligned to 16 bytes
    float* y = nullptr;             // output of token 0 of x, [.., m]; only those of the tile's tokens are written
    const float* bias = nullptr;    // [m], or null
    std::int32_t m = 0;             // rows
    std::int32_t y_stride = 0;      // floats from one token to the next
    std::int32_t first_token = 0;
    std::int32_t n_tokens = 0;  // 1 to 8, none of the next tile
};

/// One launch: products of matrices of one type and width, each with tokens of its own among the rows of x. Every
/// output has the bits that launch_matmul() gives it. All pointers are to device memory.
struct MatmulGroupLaunch {
    std::int32_t dtype = 0;    // DType of the weights as a number; one with matmul_groups()
    std::int32_t n_tiles = 0;  // 1 to kMostGroupTiles
    MatmulGroupTile tiles[kMostGroupTiles];
    std::int32_t n_tokens = 0;  // rows of x
    std::int64_t k = 0;         // > 0, a multiple of the type's quantisation block
    const float* x = nullptr;   // [n_tokens, k]
    std::int64_t x_stride = 0;  // floats from one token to the next
    void* scratch = nullptr;    // matmul_scratch_bytes() bytes (matmul_plan.h), aligned to 16 bytes
    MatmulActivations activations = MatmulActivations::Prepare;
    MatmulForm form = MatmulForm::Chosen;  // Chosen, or SplitRegisters
};

/// Enqueues the kernel for all tiles, after the one that prepares x. Allocates nothing and does not wait.
void launch_matmul_group(const MatmulGroupLaunch& launch, void* stream);

}  // namespace slipstream::cuda
