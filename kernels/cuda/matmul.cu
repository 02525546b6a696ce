// Matmul: from launch parameters to the type's kernels; activations into scratch before them. F32 weights, which models
// have few of, are multiplied plainly: a warp has a row, lanes take every 32nd k, 8 tokens at a time.
#include "kernels/cuda/matmul_launch.h"

#include "gpu.cuh"
#include "kernels/cuda/matmul_params.h"
#include "kernels/cuda/matmul_plan.h"

namespace slipstream::cuda {

namespace {

constexpr int kWarp = 32;
constexpr int kFloatRows = 8;    // warps of a block
constexpr int kFloatTokens = 8;  // of a block

// An output is 32 chains, k = lane, lane + 32, ...; then lanes are added in pairs at distance 16, 8, 4, 2, 1.
__global__ void __launch_bounds__(kFloatRows* kWarp) matmul_f32(MatmulLaunch p) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int64_t row = static_cast<int64_t>(blockIdx.x) * kFloatRows + threadIdx.x / kWarp;
    const int64_t token = static_cast<int64_t>(blockIdx.y) * kFloatTokens;
    if (row >= p.m) return;  // whole warps; no barrier follows
    const float* w = static_cast<const float*>(p.weights) + row * p.k;
    const float* x[kFloatTokens];
#pragma unroll
    for (int t = 0; t < kFloatTokens; ++t) x[t] = p.x + (token + t < p.n_tokens ? token + t : token) * p.x_stride;
    float acc[kFloatTokens] = {};
    for (int64_t k = lane; k < p.k; k += kWarp) {
        const float weight = w[k];
#pragma unroll
        for (int t = 0; t < kFloatTokens; ++t) acc[t] = gpu::fma(weight, x[t][k], acc[t]);
    }
#pragma unroll
    for (int t = 0; t < kFloatTokens; ++t) {
        for (int distance = 16; distance > 0; distance /= 2) acc[t] += gpu::shfl_xor(acc[t], distance);
        if (lane != t || token + t >= p.n_tokens) continue;
        float sum = acc[t];
        if (p.bias != nullptr) sum += p.bias[row];
        float& to = p.y[(token + t) * p.y_stride + row];
        to = p.store == MatmulStoreForm::Add ? to + sum : sum;
    }
}

MatmulParams params_of(const MatmulLaunch& launch, DType type) {
    const MatmulPlan plan = matmul_plan(type, launch.k);
    const MatmulScratch scratch = matmul_scratch(type, launch.k, launch.n_tokens);
    const auto* base = static_cast<const char*>(launch.scratch);
    MatmulParams out;
    out.weights = static_cast<const char*>(launch.weights);
    out.group_bytes = launch.k / weight_block(type).elements * weight_block(type).bytes * 16;
    out.m = launch.m;
    out.k = launch.k;
    out.n_units = plan.n_units;
    out.n_parts = plan.n_parts;
    out.fragments = base;
    out.sums = base + scratch.sums;
    if (matmul_scratch_kind(type) == ScratchKind::F16)
        out.factors = reinterpret_cast<const float*>(base + scratch.factors);
    out.n_tiles = scratch.n_tiles;
    out.y = launch.y;
    out.y_stride = launch.y_stride;
    out.bias = launch.bias;
    out.n_tokens = launch.n_tokens;
    out.store = launch.store;
    out.form = launch.form;
    out.n_multiprocessors = launch.n_multiprocessors;
    return out;
}

}  // namespace

void start_matmul_f32(const MatmulLaunch& launch, void* stream) {
    const dim3 grid(static_cast<unsigned>((launch.m + kFloatRows - 1) / kFloatRows),
                    static_cast<unsigned>((launch.n_tokens + kFloatTokens - 1) / kFloatTokens));
    gpu::launch(matmul_f32, grid, dim3(kFloatRows * kWarp), 0, stream, launch);
}

void launch_matmul(const MatmulLaunch& launch, void* stream) {
    if (launch.m == 0 || launch.n_tokens == 0) return;
    const auto type = static_cast<DType>(launch.dtype);
    // No k: sums of nothing, by the one kernel that needs no part of K to start.
    if (type == DType::F32 || launch.k == 0) return start_matmul_f32(launch, stream);
    if (launch.activations == MatmulActivations::Prepare) start_matmul_activations(launch, stream);
    const MatmulParams params = params_of(launch, type);
    switch (type) {
        case DType::F32:
            return;
        case DType::F16:
            return start_matmul_f16(params, stream);
        case DType::BF16:
            return start_matmul_bf16(params, stream);
        case DType::Q8_0:
            return start_matmul_q8_0(params, stream);
        case DType::Q4_0:
            return start_matmul_q4_0(params, stream);
        case DType::Q4_1:
            return start_matmul_q4_1(params, stream);
        case DType::Q5_0:
            return start_matmul_q5_0(params, stream);
        case DType::Q5_1:
            return start_matmul_q5_1(params, stream);
        case DType::Q3_K:
            return start_matmul_q3_k(params, stream);
        case DType::Q4_K:
            return start_matmul_q4_k(params, stream);
        case DType::Q5_K:
            return start_matmul_q5_k(params, stream);
        case DType::Q6_K:
            return start_matmul_q6_k(params, stream);
    }
}

}  // namespace slipstream::cuda
