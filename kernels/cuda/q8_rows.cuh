// Rows of Q8 in kernels: sizes as KvLayout has them, and the rounding of kernels/base/q8_row.h, bit for bit.
#pragma once

#include "gpu.cuh"

namespace slipstream::cuda {

/// Stands for KvType::Q8 as a template argument; the other types are named by their element.
struct Q8 {};

inline constexpr int kQ8BlockElements = 32;  // kQ8Block: codes that share a scale

__host__ __device__ constexpr int q8_code_bytes(int head_dim) {
    return (head_dim + 3) / 4 * 4;
}
__host__ __device__ constexpr int q8_scale_bytes(int head_dim) {
    return ((head_dim + kQ8BlockElements - 1) / kQ8BlockElements + 1) / 2 * 4;
}
__host__ __device__ constexpr int q8_row_bytes(int head_dim) {
    return q8_code_bytes(head_dim) + q8_scale_bytes(head_dim);
}

/// Returns `value` limited to the numbers that a Q8 row can hold; the largest of them for NaN (q8_within()).
__device__ __forceinline__ float q8_limited(float value) {
    constexpr float kMost = 0x1p127F;
    const float below = value < kMost ? value : kMost;
    return below > -kMost ? below : -kMost;
}
/// Returns the bits of q8_scale(), a BF16 number, for a block whose largest |q8_limited(x)| is `most`.
__device__ __forceinline__ uint32_t q8_scale_bits(float most) {
    constexpr float kLeast = 0x1p-119F;
    return most < kLeast ? 0 : (__builtin_bit_cast(uint32_t, most / 127.0F) + 0xffffU) >> 16;
}
/// Returns 1 / scale, or 0 if the scale is 0, for the BF16 scale with these bits (q8_factor()).
__device__ __forceinline__ float q8_inverse(uint32_t scale_bits) {
    return scale_bits == 0 ? 0.0F : 1.0F / __builtin_bit_cast(float, scale_bits << 16);
}
/// Returns value * factor rounded to the nearest integer, ties to even, as a signed byte (q8_code()). `value` must be a
/// result of q8_limited(), `factor` of q8_inverse().
__device__ __forceinline__ std::byte q8_code_bits(float value, float factor) {
    // Adding 1.5 * 2^23 leaves the rounded integer in the low bits of the sum.
    return static_cast<std::byte>(__builtin_bit_cast(uint32_t, value * factor + 0x1.8p23F) & 0xffU);
}

}  // namespace slipstream::cuda
