// What the matmul kernels of all types share: their parameters, and one function per type that launches them. matmul.cu
// fills the parameters in; the sources with the instances define the functions.
#pragma once

#include <cstdint>

#include "kernels/cuda/matmul/matmul_launch.h"

namespace slipstream::cuda {

/// A matrix of a launch. The thread blocks of its rows follow those of the matrices before it.
struct MatrixParams {
    const char* weights = nullptr;  // row groups of 16 rows
    std::int64_t m = 0;
    float* y = nullptr;
    std::int64_t y_stride = 0;
    const float* bias = nullptr;
};

/// Parameters of a product with one matrix. Keep this struct small: kernels at their register limit need the compiler
/// to split it into registers.
struct MatmulParams {
    MatrixParams matrix;
    std::int64_t group_bytes = 0;  // bytes of a row group of 16 rows
    std::int64_t k = 0;
    std::int64_t n_units = 0;         // MatmulPlan::n_units
    std::int64_t n_parts = 0;         // MatmulPlan::n_parts
    const char* fragments = nullptr;  // activations in scratch (matmul_plan.h)
    const char* sums = nullptr;       // sums in scratch (matmul_plan.h)
    const float* factors = nullptr;   // null: none
    std::int64_t n_tiles = 0;         // tiles of 8 tokens in scratch
    std::int32_t n_tokens = 0;
    MatmulStoreForm store = MatmulStoreForm::Overwrite;
};

/// Parameters of a product with several matrices.
struct JointParams {
    MatmulParams all;  // parameters that all matrices have in common, and the first matrix
    MatrixParams more[kMostMatrices - 1];
    std::int32_t n_more = 0;
    std::int64_t last_group_bytes = 0;  // bytes of a row group of the last matrix, if it has another type
    // First thread block of each matrix of `more`; for entries past n_more a number past all thread blocks.
    // deal_blocks() sets it.
    std::int32_t first_block[kMostMatrices - 1] = {};
    // The host chooses kernels by these two fields.
    MatmulForm form = MatmulForm::Chosen;
    std::int32_t n_multiprocessors = 64;
};

/// Parameters of products with tiles of tokens (MatmulGroupLaunch).
struct GroupParams {
    MatmulParams all;  // parameters that all tiles have in common; without a matrix
    MatmulGroupTile tiles[kMostGroupTiles];
    std::int32_t n_tiles = 0;
    MatmulForm form = MatmulForm::Chosen;
};

/// These launch the kernels for weights of one type on `stream`. The activations must be prepared.
void start_matmul_bf16(const JointParams& params, void* stream);
void start_matmul_f16(const JointParams& params, void* stream);
void start_matmul_q8_0(const JointParams& params, void* stream);
void start_matmul_q4_0(const JointParams& params, void* stream);
void start_matmul_q4_1(const JointParams& params, void* stream);
void start_matmul_q5_0(const JointParams& params, void* stream);
void start_matmul_q5_1(const JointParams& params, void* stream);
void start_matmul_q3_k(const JointParams& params, void* stream);
void start_matmul_q4_k(const JointParams& params, void* stream);
void start_matmul_q5_k(const JointParams& params, void* stream);
void start_matmul_q6_k(const JointParams& params, void* stream);
void start_matmul_iq4_nl(const JointParams& params, void* stream);
void start_matmul_mxfp4(const JointParams& params, void* stream);

/// These launch the kernels for tiles of tokens, with weights of one type; the same holds for them.
void start_matmul_bf16(const GroupParams& params, void* stream);
void start_matmul_q8_0(const GroupParams& params, void* stream);
void start_matmul_q4_0(const GroupParams& params, void* stream);
void start_matmul_q4_1(const GroupParams& params, void* stream);
void start_matmul_q5_0(const GroupParams& params, void* stream);
void start_matmul_q5_1(const GroupParams& params, void* stream);
void start_matmul_q3_k(const GroupParams& params, void* stream);
void start_matmul_q4_k(const GroupParams& params, void* stream);
void start_matmul_q5_k(const GroupParams& params, void* stream);
void start_matmul_q6_k(const GroupParams& params, void* stream);
void start_matmul_iq4_nl(const GroupParams& params, void* stream);
void start_matmul_mxfp4(const GroupParams& params, void* stream);

/// These launch the kernels for matrices of the first type with a last one of the second type, for up to 8 tokens.
void start_matmul_q3k_q4k(const JointParams& params, void* stream);
void start_matmul_q3k_q5k(const JointParams& params, void* stream);
void start_matmul_q4k_q6k(const JointParams& params, void* stream);
void start_matmul_q5k_q6k(const JointParams& params, void* stream);

/// Launches the kernel for one matrix of F32 weights, which reads x itself and uses no mma.
void start_matmul_f32(const MatmulLaunch& launch, const MatmulMatrix& matrix, void* stream);

/// Launches the kernels that round x into scratch (matmul_plan.h).
void start_matmul_activations(const MatmulLaunch& launch, void* stream);

}  // namespace slipstream::cuda
