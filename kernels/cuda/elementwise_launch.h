// Parameters of the small kernels between matmuls (what each computes: kernels/elementwise.h). Rows of floats in device
// memory; strides are floats from one row to the next.
#pragma once

#include <cstdint>

#include "kernels/cuda/matmul/activation_destination.h"

namespace slipstream::cuda {

/// y = norm(x) * weight, row by row. If `add` is given, the norm is of sum = x + add, which is written to `sum`. y, or
/// sum, may be x (in place).
struct RmsNormLaunch {
    std::int64_t n_rows = 0;
    std::int64_t d = 0;
    const float* x = nullptr;  // [n_rows, d]
    std::int64_t x_stride = 0;
    const float* weight = nullptr;  // [d]; null: all weights are 1
    float* y = nullptr;             // [n_rows, d]
    std::int64_t y_stride = 0;
    float eps = 1e-5F;
    const float* add = nullptr;  // [n_rows, d], is added to x first; null: nothing is added
    std::int64_t add_stride = 0;
    float* sum = nullptr;  // [n_rows, d], receives x + add; only with `add`
    std::int64_t sum_stride = 0;
    ActivationDestination prepare{};  // copy of y for matmuls; not together with `add`
};
/// Enqueues the kernel of `launch` on `stream`. The caller of a launch function must check the status of the launch.
void launch_rms_norm(const RmsNormLaunch& launch, void* stream);

enum class RopePairs : std::int32_t { Interleaved, Half };

struct RopeLaunch {
    std::int64_t n_tokens = 0;
    std::int32_t n_heads = 0;
    std::int32_t head_dim = 0;
    std::int32_t n_rotated = 0;
    RopePairs pairs = RopePairs::Half;
    float* x = nullptr;  // [n_tokens, n_heads * head_dim]
    std::int64_t x_stride = 0;
    const float* cos_sin = nullptr;  // [n_tokens, n_rotated]
    std::int64_t cos_sin_stride = 0;
};
void launch_rope(const RopeLaunch& launch, void* stream);

enum class GateKind : std::int32_t { Silu, GeluTanh, Sigmoid, ClampedSilu };

struct GatedActivationLaunch {
    std::int64_t n_rows = 0;
    std::int64_t d = 0;
    const float* gate = nullptr;  // [n_rows, d]
    std::int64_t gate_stride = 0;
    const float* up = nullptr;  // [n_rows, d]
    std::int64_t up_stride = 0;
    float* y = nullptr;  // [n_rows, d]
    std::int64_t y_stride = 0;
    ActivationDestination prepare{};  // copy of y for matmuls
    GateKind kind = GateKind::Silu;
    float limit = 0.0F;  // of ClampedSilu
};
void launch_gated_activation(const GatedActivationLaunch& launch, void* stream);

struct AddLaunch {
    std::int64_t n_rows = 0;
    std::int64_t d = 0;
    const float* x = nullptr;  // [n_rows, d]
    std::int64_t x_stride = 0;
    float* y = nullptr;  // [n_rows, d]
    std::int64_t y_stride = 0;
    float scale = 1.0F;             // multiplies x
    const float* factor = nullptr;  // [1], multiplies the sum; null: 1
};
void launch_add(const AddLaunch& launch, void* stream);

struct SoftcapLaunch {
    std::int64_t n_rows = 0;
    std::int64_t d = 0;
    float* y = nullptr;  // [n_rows, d]
    std::int64_t y_stride = 0;
    float cap = 1.0F;
};
void launch_softcap(const SoftcapLaunch& launch, void* stream);

}  // namespace slipstream::cuda
