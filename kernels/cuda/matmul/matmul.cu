// Matmul: from launch parameters to the kernels of the type, after the kernels that prepare activations. F32 weights,
// of which models have few, are multiplied without mma: a warp has a row, its lanes take every 32nd k, for 8 tokens at
// a time.
#include "kernels/cuda/matmul/matmul_launch.h"

#include <type_traits>

#include "gpu.cuh"
#include "kernels/cuda/matmul/matmul_params.h"
#include "kernels/cuda/matmul/matmul_plan.h"

namespace slipstream::cuda {

namespace {

constexpr int kWarp = 32;
// Rows that a thread block of matmul_f32 computes, one per warp.
constexpr int kFloatRows = 8;
// Tokens that a thread block of matmul_f32 computes, for which each weight is loaded once.
constexpr int kFloatTokens = 8;

// y = x W^T for F32 weights. An output is 32 chains, one per lane, over k = lane, lane + 32, ...; then the lanes' sums
// are added at distances 16, 8, 4, 2, 1.
__global__ void __launch_bounds__(kFloatRows* kWarp) matmul_f32(MatmulLaunch p, MatmulMatrix to) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int64_t row = static_cast<int64_t>(blockIdx.x) * kFloatRows + threadIdx.x / kWarp;
    const int64_t token = static_cast<int64_t>(blockIdx.y) * kFloatTokens;
    if (row >= to.m) return;  // whole warps return, and no barrier follows
    const float* w = static_cast<const float*>(to.weights) + row * p.k;
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
        if (to.bias != nullptr) sum += to.bias[row];
        float& out = to.y[(token + t) * to.y_stride + row];
        out = p.store == MatmulStoreForm::Add ? out + sum : sum;
    }
}

JointParams params_of(const MatmulLaunch& launch, DType type) {
    const MatmulPlan plan = matmul_plan(type, launch.k);
    const MatmulScratch scratch =
        matmul_scratch(matmul_scratch_kind(type, last_type(launch)), launch.k, launch.n_tokens);
    const auto* base = static_cast<const char*>(launch.scratch);
    JointParams out;
    for (int i = 0; i < launch.n_matrices; ++i) {
        const MatmulMatrix& from = launch.matrices[i];
        MatrixParams& to = i == 0 ? out.all.matrix : out.more[i - 1];
        to = {static_cast<const char*>(from.weights), from.m, from.y, from.y_stride, from.bias};
    }
    out.n_more = launch.n_matrices - 1;
    out.form = launch.form;
    out.n_multiprocessors = launch.n_multiprocessors;
    MatmulParams& all = out.all;
    const auto group_bytes = [&](DType of) {
        return launch.k / weight_block(of).elements * weight_block(of).bytes * 16;
    };
    all.group_bytes = group_bytes(type);
    out.last_group_bytes = group_bytes(last_type(launch));
    all.k = launch.k;
    all.n_units = plan.n_units;
    all.n_parts = plan.n_parts;
    all.fragments = base;
    all.sums = base + scratch.sums;
    if (matmul_scratch_kind(type) == ScratchKind::F16)
        all.factors = reinterpret_cast<const float*>(base + scratch.factors);
    all.n_tiles = scratch.n_tiles;
    all.n_tokens = launch.n_tokens;
    all.store = launch.store;
    return out;
}

}  // namespace

void start_matmul_f32(const MatmulLaunch& launch, const MatmulMatrix& matrix, void* stream) {
    if (matrix.m == 0) return;
    const dim3 grid(static_cast<unsigned>((matrix.m + kFloatRows - 1) / kFloatRows),
                    static_cast<unsigned>((launch.n_tokens + kFloatTokens - 1) / kFloatTokens));
    gpu::launch(matmul_f32, grid, dim3(kFloatRows * kWarp), 0, stream, launch, matrix);
}

namespace {

void start_matmul_mixed(DType type, DType last, const JointParams& params, void* stream) {
    if (type == DType::Q3_K)
        return last == DType::Q4_K ? start_matmul_q3k_q4k(params, stream) : start_matmul_q3k_q5k(params, stream);
    return type == DType::Q4_K ? start_matmul_q4k_q6k(params, stream) : start_matmul_q5k_q6k(params, stream);
}

// Params: JointParams, or GroupParams for types with matmul_groups().
template <class Params>
void start_matmul(DType type, const Params& params, void* stream) {
    switch (type) {
        case DType::F32:
            return;
        case DType::F16:
            if constexpr (std::is_same_v<Params, JointParams>) start_matmul_f16(params, stream);
            return;
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
        case DType::IQ4_NL:
            return start_matmul_iq4_nl(params, stream);
        case DType::MXFP4:
            return start_matmul_mxfp4(params, stream);
        case DType::IQ4_XS:  // never called: multiplies()
        case DType::Q2_K:
            return;
    }
}

}  // namespace

void launch_matmul(const MatmulLaunch& launch, void* stream) {
    int64_t m = 0;
    for (int i = 0; i < launch.n_matrices; ++i) m += launch.matrices[i].m;
    if (m == 0 || launch.n_tokens == 0) return;
    const auto type = static_cast<DType>(launch.dtype);
    // With K = 0 every sum is empty; only this kernel works without a part of K.
    if (type == DType::F32 || launch.k == 0) {
        for (int i = 0; i < launch.n_matrices; ++i) start_matmul_f32(launch, launch.matrices[i], stream);
        return;
    }
    if (launch.activations == MatmulActivations::Prepare) start_matmul_activations(launch, stream);
    const JointParams params = params_of(launch, type);
    if (launch.last_dtype >= 0) return start_matmul_mixed(type, last_type(launch), params, stream);
    start_matmul(type, params, stream);
}

void launch_matmul_group(const MatmulGroupLaunch& launch, void* stream) {
    const auto type = static_cast<DType>(launch.dtype);
    // What both kinds of launches have in common.
    const MatmulLaunch common{.dtype = launch.dtype,
                              .n_matrices = 0,
                              .n_tokens = launch.n_tokens,
                              .k = launch.k,
                              .x = launch.x,
                              .x_stride = launch.x_stride,
                              .scratch = launch.scratch};
    if (launch.activations == MatmulActivations::Prepare) start_matmul_activations(common, stream);
    GroupParams params{.all = params_of(common, type).all, .n_tiles = launch.n_tiles, .form = launch.form};
    for (int i = 0; i < launch.n_tiles; ++i) params.tiles[i] = launch.tiles[i];
    start_matmul(type, params, stream);
}

}  // namespace slipstream::cuda
