// The softcap of attention scores: s becomes cap * tanh(s / cap).
#pragma once

#include "gpu.cuh"

namespace slipstream::cuda {

/// Returns cap * tanh(s / cap) for t = s * 2 log2(e) / cap, as cap - 2 cap / (1 + 2^t). The error is at most cap *
/// 2^-20 (tested): absolute, since a softmax and a log of a sum depend on differences of scores. -cap and cap at
/// infinities; NaN at NaN.
__device__ __forceinline__ float softcapped(float t, float cap) {
    return gpu::fma(-2.0F * cap, gpu::reciprocal_approx(1.0F + gpu::exp2_approx(t)), cap);
}

}  // namespace slipstream::cuda
