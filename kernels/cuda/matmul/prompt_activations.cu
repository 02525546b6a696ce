// Rounds the tokens of a prefill chunk into the rows that cuBLASLt multiplies, and stores its product as outputs. For
// F16 weights a token is first multiplied by a power of two that brings its largest magnitude to [2^14, 2^15), as in
// matmul_activations.cu.
#include "gpu.cuh"
#include "kernels/cuda/matmul/prompt_launch.h"
#include "kernels/cuda/matmul/prompt_plan.h"

namespace slipstream::cuda {

namespace {

constexpr int kWarp = 32;
constexpr int kThreads = 128;
constexpr int kStoreThreads = 256;

// Returns the power of two by which the thread block's token must be divided; its inverse is exact. Returns 1 if a
// value is not finite or all are 0. All threads must call it.
__device__ __forceinline__ float power_of_two(const float* x, int64_t k) {
    auto largest = gpu::dynamic_shared<uint32_t>(0);
    const int thread = static_cast<int>(threadIdx.x);
    uint32_t most = 0;  // float bits; as integers, magnitudes have the order of their values
    for (int64_t i = thread; x != nullptr && i < k; i += kThreads) {
        const uint32_t magnitude = __builtin_bit_cast(uint32_t, x[i]) & 0x7fffffffU;
        most = magnitude > most ? magnitude : most;
    }
    for (int distance = 16; distance > 0; distance /= 2) {
        const uint32_t other = gpu::shfl_xor(most, distance);
        most = other > most ? other : most;
    }
    if (thread % kWarp == 0) largest[thread / kWarp] = most;
    gpu::sync_threads();
    for (int w = 0; w < kThreads / kWarp; ++w) most = largest[w] > most ? largest[w] : most;
    // Exponents as stored in a float: 127 stands for 2^0.
    const uint32_t exponent = most >> 23;
    uint32_t factor = exponent > 14 ? exponent - 14 : 1U;
    if (exponent == 255 || most == 0) factor = 127;
    return __builtin_bit_cast(float, factor << 23);
}

// Rounds one row of the prefill chunk per thread block; rows without a token become zeros. A thread takes 8 k at a
// time.
template <PromptOperands operands>
__global__ void __launch_bounds__(kThreads) prompt_activations(PromptActivationsLaunch p) {
    const int64_t row = blockIdx.x;
    const int64_t token = row - p.first_token;
    const float* x = token >= 0 && token < p.n_tokens ? p.x + token * p.x_stride : nullptr;
    float multiply = 1.0F;
    if constexpr (operands == PromptOperands::F16) {
        const float factor = power_of_two(x, p.k);
        if (threadIdx.x == 0) p.factors[row] = factor;
        multiply = 1.0F / factor;
    }
    char* to = static_cast<char*>(p.activations) + row * p.k * 2;
    for (int64_t k = int64_t{threadIdx.x} * 8; k < p.k; k += kThreads * 8) {
        gpu::U32x4 out{};
        if (x != nullptr) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const float lo = x[k + 2 * i] * multiply;
                const float hi = x[k + 2 * i + 1] * multiply;
                if constexpr (operands == PromptOperands::F16) {
                    out.x[i] = gpu::pack_f16(lo, hi);
                } else {
                    out.x[i] = gpu::pack_bf16(lo, hi);
                }
            }
        }
        gpu::store_16(to + k * 2, out);
    }
}

__global__ void __launch_bounds__(kStoreThreads) prompt_store(PromptStoreLaunch p) {
    const int64_t row = static_cast<int64_t>(blockIdx.x) * kStoreThreads + threadIdx.x;
    const int64_t token = blockIdx.y;
    if (row >= p.n_rows) return;
    float sum = p.product[token * p.product_stride + row];
    if (p.factors != nullptr) sum = sum * p.factors[token];
    if (p.bias != nullptr) sum = sum + p.bias[row];
    float& to = p.y[token * p.y_stride + row];
    to = p.store == MatmulStoreForm::Add ? to + sum : sum;
}

}  // namespace

void launch_prompt_activations(const PromptActivationsLaunch& launch, void* stream) {
    const dim3 grid(static_cast<unsigned>(kPromptTokens));
    const dim3 block(kThreads);
    if (launch.operands == PromptOperands::F16)
        return gpu::launch(prompt_activations<PromptOperands::F16>, grid, block, kThreads / kWarp * sizeof(uint32_t),
                           stream, launch);
    gpu::launch(prompt_activations<PromptOperands::Bf16>, grid, block, 0, stream, launch);
}

void launch_prompt_store(const PromptStoreLaunch& launch, void* stream) {
    if (launch.n_tokens == 0 || launch.n_rows == 0) return;
    const dim3 grid(static_cast<unsigned>((launch.n_rows + kStoreThreads - 1) / kStoreThreads),
                    static_cast<unsigned>(launch.n_tokens));
    gpu::launch(prompt_store, grid, dim3(kStoreThreads), 0, stream, launch);
}

}  // namespace slipstream::cuda
