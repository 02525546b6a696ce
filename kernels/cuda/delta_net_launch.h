// Parameters of the kernels of delta nets (what is computed: kernels/delta_net.h). All pointers are to device memory;
// strides are floats from one row to the next.
#pragma once

#include <cstdint>

namespace slipstream::cuda {

/// Where a step finds the state before its token; a number from 0 on: in that working state.
inline constexpr std::int32_t kHeldState = -1;    // in registers or shared memory: the step before it left it there,
                                                  // or, of the first step, it has been loaded from `state`
inline constexpr std::int32_t kStateBefore = -2;  // in DeltaNetLaunch::state
inline constexpr std::int32_t kKeptState = -3;    // in DeltaNetLaunch::kept_state
/// DeltaNetStep::save of a step whose state no later step loads.
inline constexpr std::int32_t kNotSaved = -1;

struct DeltaNetStep {
    std::int32_t row = 0;            // as in DeltaStep
    std::int32_t parent = 0;         // as in DeltaStep
    std::int32_t from = kHeldState;  // kHeldState or the place of the state
    std::int32_t save = kNotSaved;   // working state into which the state after the token is copied
};

/// Two kernels: the convolution, norms and gates of all tokens; then the recurrence, which also writes the kept taps.
struct DeltaNetLaunch {
    std::int32_t n_key_heads = 0;
    std::int32_t n_value_heads = 0;
    std::int32_t key_dim = 0;
    std::int32_t value_dim = 0;
    std::int32_t conv_width = 0;
    bool tiled = false;
    std::int32_t n_steps = 0;
    std::int32_t n_kept = 0;
    const DeltaNetStep* steps = nullptr;  // [n_steps]
    const float* rows = nullptr;
    std::int64_t rows_stride = 0;
    const float* stored = nullptr;
    const float* conv = nullptr;
    const float* decay_rates = nullptr;
    const float* decay_bias = nullptr;
    const float* state = nullptr;
    const float* taps = nullptr;
    float* kept_state = nullptr;
    float* kept_taps = nullptr;
    float* convolved = nullptr;
    float* working = nullptr;  // working states, each as long as `state`
    float* out = nullptr;
    std::int64_t out_stride = 0;
    float eps = 1e-6F;
    float query_scale = 1.0F;  // key_dim^-0.5
};
void launch_delta_net(const DeltaNetLaunch& launch, void* stream);

/// y[t][r * run + i] = x[t][first + r * stride + i].
struct GatherColumnsLaunch {
    std::int64_t n_rows = 0;
    std::int32_t n_cols = 0;  // of y
    std::int32_t run = 0;
    std::int32_t first = 0;
    std::int32_t stride = 0;
    const float* x = nullptr;
    std::int64_t x_stride = 0;
    float* y = nullptr;
    std::int64_t y_stride = 0;
};
void launch_gather_columns(const GatherColumnsLaunch& launch, void* stream);

}  // namespace slipstream::cuda
