// Activations into the scratch of a matmul (matmul_plan.h): rounded, in the order in which lanes hold them as operand B
// of mma.m16n8k16, filled up with zeros. A warp has 32 k of 8 tokens, so that it also has what a sum is made of: with
// g = lane / 4, t = lane % 4 * 2, a lane reads k = t, t + 1, t + 8, t + 9 of each step of 16 k of token g. For F16
// weights a token is first multiplied by a power of two that brings its largest magnitude to [2^14, 2^15).
#include "gpu.cuh"
#include "kernels/cuda/matmul_params.h"
#include "kernels/cuda/matmul_plan.h"

namespace slipstream::cuda {

namespace {

constexpr int kWarp = 32;
constexpr int kWarps = 4;

struct Activations {
    const float* x;
    int64_t x_stride;
    int64_t k;
    int64_t n_blocks;  // of 32 k, zeros included
    int64_t n_tiles;
    int32_t n_tokens;
    char* fragments;
    float* sums;
    float* factors;
};

// Block: 128 threads a token. factors[t] is what undoes the multiplication; 1 where a value is not finite.
__global__ void __launch_bounds__(kWarps* kWarp) matmul_factors(Activations p) {
    auto largest = gpu::dynamic_shared<uint32_t>(0);
    const int thread = static_cast<int>(threadIdx.x);
    const int64_t token = blockIdx.x;
    uint32_t most = 0;  // magnitudes compare as integers
    if (token < p.n_tokens)
        for (int64_t k = thread; k < p.k; k += kWarps * kWarp) {
            const uint32_t magnitude = __builtin_bit_cast(uint32_t, p.x[token * p.x_stride + k]) & 0x7fffffffU;
            most = magnitude > most ? magnitude : most;
        }
    for (int distance = 16; distance > 0; distance /= 2) {
        const uint32_t other = gpu::shfl_xor(most, distance);
        most = other > most ? other : most;
    }
    if (thread % kWarp == 0) largest[thread / kWarp] = most;
    gpu::sync_threads();
    if (thread != 0) return;
    for (int w = 1; w < kWarps; ++w) most = largest[w] > most ? largest[w] : most;
    // Exponents as stored, 127 for 1. The factor's lies in [1, 240]: it and its inverse are normal numbers.
    const uint32_t exponent = most >> 23;
    uint32_t factor = exponent > 14 ? exponent - 14 : 1U;
    if (exponent == 255 || most == 0) factor = 127;
    p.factors[token] = __builtin_bit_cast(float, factor << 23);
}

template <ScratchKind kind>
__global__ void __launch_bounds__(kWarps* kWarp) matmul_activations(Activations p) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int64_t block = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
    const int64_t tile = blockIdx.y;
    if (block >= p.n_blocks) return;  // whole warps; no barrier follows
    const int64_t token = tile * 8 + lane / 4;
    float multiply = 1.0F;
    if constexpr (kind == ScratchKind::F16) multiply = 1.0F / p.factors[token];
    float sum = 0.0F;
#pragma unroll
    for (int s = 0; s < 2; ++s) {
        gpu::U32x2 out;
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            float v[2];
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const int64_t k = block * 32 + s * 16 + h * 8 + lane % 4 * 2 + i;
                v[i] = token < p.n_tokens && k < p.k ? p.x[token * p.x_stride + k] * multiply : 0.0F;
            }
            if constexpr (kind == ScratchKind::F16) {
                out.x[h] = gpu::pack_f16(v[0], v[1]);
            } else {
                out.x[h] = gpu::pack_bf16(v[0], v[1]);
                if constexpr (kind == ScratchKind::Bf16WithSums) {
                    sum += gpu::bf16_to_float(gpu::Bf16{static_cast<uint16_t>(out.x[h])});
                    sum += gpu::bf16_to_float(gpu::Bf16{static_cast<uint16_t>(out.x[h] >> 16)});
                }
            }
        }
        gpu::store_8(p.fragments + ((block * 2 + s) * p.n_tiles + tile) * 256 + lane * 8, out);
    }
    if constexpr (kind == ScratchKind::Bf16WithSums) {
        sum += gpu::shfl_xor(sum, 1);
        sum += gpu::shfl_xor(sum, 2);
        if (lane % 4 == 0) p.sums[(block * p.n_tiles + tile) * 8 + lane / 4] = sum;
    }
}

}  // namespace

void start_matmul_activations(const MatmulLaunch& launch, void* stream) {
    const auto type = static_cast<DType>(launch.dtype);
    const MatmulScratch scratch = matmul_scratch(type, launch.k, launch.n_tokens);
    char* base = static_cast<char*>(launch.scratch);
    const Activations args{launch.x,
                           launch.x_stride,
                           launch.k,
                           scratch.n_steps / 2,
                           scratch.n_tiles,
                           launch.n_tokens,
                           base,
                           reinterpret_cast<float*>(base + scratch.sums),
                           reinterpret_cast<float*>(base + scratch.factors)};
    const dim3 grid(static_cast<unsigned>((args.n_blocks + kWarps - 1) / kWarps), static_cast<unsigned>(args.n_tiles));
    const dim3 block(kWarps * kWarp);
    switch (matmul_scratch_kind(type)) {
        case ScratchKind::None:
            return;
        case ScratchKind::Bf16:
            return gpu::launch(matmul_activations<ScratchKind::Bf16>, grid, block, 0, stream, args);
        case ScratchKind::Bf16WithSums:
            return gpu::launch(matmul_activations<ScratchKind::Bf16WithSums>, grid, block, 0, stream, args);
        case ScratchKind::F16:
            gpu::launch(matmul_factors, dim3(static_cast<unsigned>(args.n_tiles * 8)), block, kWarps * 4, stream, args);
            return gpu::launch(matmul_activations<ScratchKind::F16>, grid, block, 0, stream, args);
    }
}

}  // namespace slipstream::cuda
