// Rounds activations into the scratch of a matmul, filled up with zeros, in a launch of its own, if the op that
// computed them did not leave them there. A warp has 32 k of 8 tokens, four lanes per token (activation_fragments.cuh).
// For F16 weights a token is first multiplied by a power of two that brings its largest magnitude to [2^14, 2^15).
#include "gpu.cuh"
#include "kernels/cuda/matmul/activation_fragments.cuh"
#include "kernels/cuda/matmul/matmul_params.h"
#include "kernels/cuda/matmul/matmul_plan.h"

namespace slipstream::cuda {

namespace {

constexpr int kWarp = 32;
constexpr int kWarps = 4;

struct Activations {
    const float* x;
    int64_t x_stride;
    int64_t k;
    int32_t n_tokens;
    ActivationDestination to;
    float* factors;
};

// Computes factors[t], which undoes the power of two that token t will be multiplied by; 1 if a value is not finite.
// Thread block: 128 threads per token.
__global__ void __launch_bounds__(kWarps* kWarp) matmul_factors(Activations p) {
    auto largest = gpu::dynamic_shared<uint32_t>(0);
    const int thread = static_cast<int>(threadIdx.x);
    const int64_t token = blockIdx.x;
    uint32_t most = 0;  // float bits; as integers, magnitudes have the order of their values
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
    // Exponents as stored in a float: 127 stands for 2^0. That of the factor is in [1, 240], so the factor and its
    // inverse are normal numbers.
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
    if (block >= p.to.n_blocks) return;  // whole warps return, and no barrier follows
    const int64_t token = tile * 8 + lane / 4;
    float v[kLaneValues];
#pragma unroll
    for (int i = 0; i < kLaneValues; ++i) {
        const int64_t k = block * 32 + lane_k(lane % 4, i);
        v[i] = token < p.n_tokens && k < p.k ? p.x[token * p.x_stride + k] : 0.0F;
    }
    if constexpr (kind == ScratchKind::F16) {
        const float multiply = 1.0F / p.factors[token];
#pragma unroll
        for (int s = 0; s < 2; ++s) {
            gpu::U32x2 words;
#pragma unroll
            for (int h = 0; h < 2; ++h)
                words.x[h] = gpu::pack_f16(v[s * 4 + h * 2] * multiply, v[s * 4 + h * 2 + 1] * multiply);
            gpu::store_8(fragment_at(p.to.fragments, p.to.n_tiles, block * 2 + s, token, lane % 4), words);
        }
    } else {
        store_bf16_block(p.to, block, token, lane % 4, v);
    }
}

}  // namespace

void start_matmul_activations(const MatmulLaunch& launch, void* stream) {
    const ScratchKind kind = matmul_scratch_kind(static_cast<DType>(launch.dtype), last_type(launch));
    const MatmulScratch scratch = matmul_scratch(kind, launch.k, launch.n_tokens);
    char* base = static_cast<char*>(launch.scratch);
    const Activations args{launch.x,
                           launch.x_stride,
                           launch.k,
                           launch.n_tokens,
                           activation_destination(kind, launch.k, launch.n_tokens, base),
                           reinterpret_cast<float*>(base + scratch.factors)};
    const dim3 grid(static_cast<unsigned>((args.to.n_blocks + kWarps - 1) / kWarps),
                    static_cast<unsigned>(args.to.n_tiles));
    const dim3 block(kWarps * kWarp);
    switch (kind) {
        case ScratchKind::None:
            return;
        case ScratchKind::Bf16:
        case ScratchKind::Bf16WithSums:
            return gpu::launch(matmul_activations<ScratchKind::Bf16>, grid, block, 0, stream, args);
        case ScratchKind::F16:
            gpu::launch(matmul_factors, dim3(static_cast<unsigned>(args.to.n_tiles * 8)), block, kWarps * 4, stream,
                        args);
            return gpu::launch(matmul_activations<ScratchKind::F16>, grid, block, 0, stream, args);
    }
}

}  // namespace slipstream::cuda
