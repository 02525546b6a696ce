// What the matmul kernels of all types share: their parameters, and a function a type that starts them. Between
// matmul.cu, which fills this in, and the sources that hold the instances.
#pragma once

#include <cstdint>

#include "kernels/cuda/matmul/matmul_launch.h"

namespace slipstream::cuda {

/// A matrix of a launch; its rows' blocks follow those of the matrices before.
struct MatrixParams {
    const char* weights = nullptr;  // groups of 16 rows
    std::int64_t m = 0;
    float* y = nullptr;
    std::int64_t y_stride = 0;
    const float* bias = nullptr;
};

/// Small enough for the compiler to take it apart, and kernels without a register to spare count on that.
struct MatmulParams {
    MatrixParams matrix;
    std::int64_t group_bytes = 0;
    std::int64_t k = 0;
    std::int64_t n_units = 0;         // matmul_plan()
    std::int64_t n_parts = 0;         //
    const char* fragments = nullptr;  // scratch, as matmul_plan.h tells
    const char* sums = nullptr;       //
    const float* factors = nullptr;   // null: none
    std::int64_t n_tiles = 0;
    std::int32_t n_tokens = 0;
    MatmulStoreForm store = MatmulStoreForm::Overwrite;
};

/// The same for several matrices.
struct JointParams {
    MatmulParams all;  // with the first matrix
    MatrixParams more[kMostMatrices - 1];
    std::int32_t n_more = 0;
    std::int64_t last_group_bytes = 0;  // where the last one is of another type
    // Where the blocks of `more` begin; of those that are not there behind all blocks. deal_blocks() sets it.
    std::int32_t first_block[kMostMatrices - 1] = {};
    // What the host chooses by.
    MatmulForm form = MatmulForm::Chosen;
    std::int32_t n_multiprocessors = 64;
};

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

/// The last matrix is of the second type; up to 8 tokens.
void start_matmul_q3k_q4k(const JointParams& params, void* stream);
void start_matmul_q3k_q5k(const JointParams& params, void* stream);
void start_matmul_q4k_q6k(const JointParams& params, void* stream);
void start_matmul_q5k_q6k(const JointParams& params, void* stream);

/// F32 weights, without mma: x as it is; of one matrix.
void start_matmul_f32(const MatmulLaunch& launch, const MatmulMatrix& matrix, void* stream);

/// x into scratch (matmul_plan.h).
void start_matmul_activations(const MatmulLaunch& launch, void* stream);

}  // namespace slipstream::cuda
