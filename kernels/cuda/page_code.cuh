// Rounding of view pages on a GPU: kernels/base/page_code.h in the kernels' dialect, with the same bits; and where the
// parts of a page lie. The layout is that of cpu/attention/page_layout.h:
//   K codes [head_dim][8] words: word i of a dimension has slots i, 8 + i, ..., 56 + i, the first in the lowest bits
//   V codes [8][head_dim] words: word e of row g has dimension e of slots 8 g to 8 g + 7; if head_dim is odd, 32 unused
//   bytes follow
//   K scales [head_dim], K minimums [head_dim], V scales [64], V minimums [64]: F16
#pragma once

#include "gpu.cuh"

namespace slipstream::cuda {

/// Slots of a page.
inline constexpr int kPageSlotCount = 64;
/// Codes of a word, words of a dimension of K, and rows of words of V.
inline constexpr int kWordCodes = 8;

__host__ __device__ constexpr int64_t page_bytes(int d) {
    return int64_t{d} * (kPageSlotCount / 2) + int64_t{kPageSlotCount} * ((d + 1) / 2) + 4 * int64_t{d} +
           4 * kPageSlotCount;
}
__host__ __device__ constexpr int64_t page_values_at(int d) {
    return int64_t{d} * (kPageSlotCount / 2);
}
__host__ __device__ constexpr int64_t page_scales_at(int d) {
    return page_values_at(d) + int64_t{kPageSlotCount} * ((d + 1) / 2);
}
__host__ __device__ constexpr int64_t page_minimums_at(int d) {
    return page_scales_at(d) + 2 * int64_t{d};
}
__host__ __device__ constexpr int64_t page_value_scales_at(int d) {
    return page_scales_at(d) + 4 * int64_t{d};
}
__host__ __device__ constexpr int64_t page_value_minimums_at(int d) {
    return page_value_scales_at(d) + 2 * kPageSlotCount;
}

__device__ __forceinline__ uint16_t half_bits(float value) {
    return static_cast<uint16_t>(gpu::pack_f16(value, 0.0F) & 0xffffU);
}
__device__ __forceinline__ float half_of(uint16_t bits) {
    return gpu::half_to_float(gpu::Half{bits});
}

/// These are page_within(), page_minimum(), page_scale(), page_factor() and page_code().
__device__ __forceinline__ float page_limited(float value) {
    constexpr float kMost = 65504.0F;
    const float below = value < kMost ? value : kMost;
    return below > -kMost ? below : -kMost;
}
__device__ __forceinline__ uint16_t page_minimum_bits(float least) {
    const float value = least + 0.0F;
    const uint16_t near = half_bits(value);
    if (half_of(near) <= value) return near;
    if ((near & 0x7fffU) == 0) return 0x8001;
    return static_cast<uint16_t>((near & 0x8000U) != 0 ? near + 1 : near - 1);
}
__device__ __forceinline__ uint16_t page_scale_bits(float largest, uint16_t minimum) {
    const float value = (largest - half_of(minimum)) / 15.0F + 0.0F;
    const uint16_t near = half_bits(value);
    return half_of(near) >= value ? near : static_cast<uint16_t>(near + 1);
}
__device__ __forceinline__ float page_inverse(uint16_t scale) {
    return scale == 0 ? 0.0F : 1.0F / half_of(scale);
}
__device__ __forceinline__ uint32_t page_code_bits(float limited, float minimum, float factor) {
    return __builtin_bit_cast(uint32_t, (limited - minimum) * factor + 0x1.8p23F) - 0x4b400000U;
}

/// Returns code n (0 to 7) of a word.
__device__ __forceinline__ float code_of(uint32_t word, int n) {
    // The bits of 2^23 + code.
    return __builtin_bit_cast(float, gpu::and_or(word >> (4 * n), 0xfU, 0x4b000000U)) - 8388608.0F;
}

}  // namespace slipstream::cuda
