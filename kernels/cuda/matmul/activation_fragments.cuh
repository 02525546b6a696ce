// Stores activations in the scratch of a matmul (matmul_plan.h): rounded, in the order in which lanes hold them as
// operand B of mma.m16n8k16. Four lanes have 32 k of a token together: lane i of the four has, with t = 2 i, the values
// at k = t, t + 1, t + 8, t + 9 of each step of 16 k. Whole warps must call these functions together.
#pragma once

#include "gpu.cuh"
#include "kernels/cuda/matmul/activation_destination.h"

namespace slipstream::cuda {

/// Values that a lane has of 32 k of a token: 8, since four lanes share them.
inline constexpr int kLaneValues = 8;

/// Returns the k, within its block of 32 k, of a lane's value number i (0 to 7). `quarter`: which of the token's four
/// lanes it is, 0 to 3.
__device__ __forceinline__ int lane_k(int quarter, int i) {
    return i / 4 * 16 + i / 2 % 2 * 8 + quarter * 2 + i % 2;
}

/// Returns the address in `fragments` of the two words (8 bytes) that a lane has of `token` in step `step` of 16 k.
/// `quarter`: which of the token's four lanes it is, 0 to 3.
__device__ __forceinline__ char* fragment_at(char* fragments, int64_t n_tiles, int64_t step, int64_t token,
                                             int quarter) {
    return fragments + (step * n_tiles + token / 8) * 256 + (token % 8 * 4 + quarter) * 8;
}

/// Adds the two bfloat16 numbers in `pair` to `sum`, the low one first.
__device__ __forceinline__ void add_rounded(float& sum, uint32_t pair) {
    sum += gpu::bf16_to_float(gpu::Bf16{static_cast<uint16_t>(pair)});
    sum += gpu::bf16_to_float(gpu::Bf16{static_cast<uint16_t>(pair >> 16)});
}

/// Adds `sum` over the four lanes of a token, and stores the total for block `block` of 32 k. Whole warps only.
__device__ __forceinline__ void store_sum_of_block(float* sums, int64_t n_tiles, int64_t block, int64_t token,
                                                   int quarter, float sum) {
    sum += gpu::shfl_xor(sum, 1);
    sum += gpu::shfl_xor(sum, 2);
    if (quarter == 0) sums[(block * n_tiles + token / 8) * 8 + token % 8] = sum;
}

/// Stores the eight values of a lane as bfloat16, and their sum over the block of 32 k if to.sums is not null. The
/// stored values do not depend on whether the sum is wanted.
__device__ __forceinline__ void store_bf16_block(const ActivationDestination& to, int64_t block, int64_t token,
                                                 int quarter, const float (&v)[kLaneValues]) {
    float sum = 0.0F;
#pragma unroll
    for (int s = 0; s < 2; ++s) {
        gpu::U32x2 words;
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            words.x[h] = gpu::pack_bf16(v[s * 4 + h * 2], v[s * 4 + h * 2 + 1]);
            add_rounded(sum, words.x[h]);
        }
        gpu::store_8(fragment_at(to.fragments, to.n_tiles, block * 2 + s, token, quarter), words);
    }
    if (to.sums != nullptr) store_sum_of_block(to.sums, to.n_tiles, block, token, quarter, sum);
}

}  // namespace slipstream::cuda
