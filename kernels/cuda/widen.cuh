// Converts an element of KV to float, exactly.
#pragma once

#include "gpu.cuh"

namespace slipstream::cuda {

__device__ __forceinline__ float widen(float value) {
    return value;
}
__device__ __forceinline__ float widen(gpu::Half value) {
    return gpu::half_to_float(value);
}
__device__ __forceinline__ float widen(gpu::Bf16 value) {
    return gpu::bf16_to_float(value);
}

}  // namespace slipstream::cuda
