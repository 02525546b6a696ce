// What the matmul kernels of all types share: their parameters, and a function a type that starts them. Between
// matmul.cu, which fills this in, and the sources that hold the instances.
#pragma once

#include <cstdint>

#include "kernels/cuda/matmul_launch.h"

namespace slipstream::cuda {

struct MatmulParams {
    const char* weights = nullptr;  // groups of 16 rows
    std::int64_t group_bytes = 0;
    std::int64_t m = 0;
    std::int64_t k = 0;
    std::int64_t n_units = 0;         // matmul_plan()
    std::int64_t n_parts = 0;         //
    const char* fragments = nullptr;  // scratch, as matmul_plan.h tells
    const char* sums = nullptr;       //
    const float* factors = nullptr;   // null: none
    std::int64_t n_tiles = 0;
    float* y = nullptr;
    std::int64_t y_stride = 0;
    const float* bias = nullptr;
    std::int32_t n_tokens = 0;
    MatmulStoreForm store = MatmulStoreForm::Overwrite;
    MatmulForm form = MatmulForm::Chosen;
    std::int32_t n_multiprocessors = 64;
};

void start_matmul_bf16(const MatmulParams& params, void* stream);
void start_matmul_f16(const MatmulParams& params, void* stream);
void start_matmul_q8_0(const MatmulParams& params, void* stream);
void start_matmul_q4_0(const MatmulParams& params, void* stream);
void start_matmul_q4_1(const MatmulParams& params, void* stream);
void start_matmul_q5_0(const MatmulParams& params, void* stream);
void start_matmul_q5_1(const MatmulParams& params, void* stream);
void start_matmul_q3_k(const MatmulParams& params, void* stream);
void start_matmul_q4_k(const MatmulParams& params, void* stream);
void start_matmul_q5_k(const MatmulParams& params, void* stream);
void start_matmul_q6_k(const MatmulParams& params, void* stream);

/// F32 weights, without mma: x as it is.
void start_matmul_f32(const MatmulLaunch& launch, void* stream);

/// x into scratch (matmul_plan.h).
void start_matmul_activations(const MatmulLaunch& launch, void* stream);

}  // namespace slipstream::cuda
