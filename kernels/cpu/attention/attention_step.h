// The inner primitive of attention, one a form: up to four queries against the 64 slots of one step of one kv head.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "kernels/attention.h"
#include "kernels/cpu/exp.h"

namespace slipstream::cpu {

inline constexpr int kMaxBatch = 4;

/// The slots of a step that the whole batch sees are [first_slot, end_slot).
struct AttentionStep {
    const std::byte* k;  // [head_dim][64], transposed
    const std::byte* v;  // [64][head_dim]
    // What is read after this step: fetched while it is computed, line by line. Itself where nothing follows.
    const std::byte* next_k;
    const std::byte* next_v;
    DType dtype;
    std::int64_t head_dim;
    int first_slot;
    int end_slot;
    float scale;
};

/// One query and the state it is reduced into: running maximum, sum of weights, weighted sum of values.
struct QueryState {
    const float* q;  // [head_dim]
    float* o;        // [head_dim]
    float m;
    float l;
};

/// Reduces the step into each of the batch's states. The bits of a state depend on its own query and the step alone.
using ReduceStep = void (*)(const AttentionStep& step, QueryState* const* batch, int n_batch);

void reduce_step_scalar(const AttentionStep& step, QueryState* const* batch, int n_batch);
void reduce_step_avx2(const AttentionStep& step, QueryState* const* batch, int n_batch);
void reduce_step_avx512(const AttentionStep& step, QueryState* const* batch, int n_batch);
/// The same bits; rows are fetched straight into L1, and 16-bit ones need not be widened first.
void reduce_step_avx512_near(const AttentionStep& step, QueryState* const* batch, int n_batch);

/// From L2 into L1 rows are fetched this far ahead.
inline constexpr std::int64_t kStepL1PrefetchBytes = 1 << 10;

/// Widens `n` elements (a multiple of 16) of a 16-bit KV type; exact. `next`: as in AttentionStep.
using WidenStep = void (*)(DType type, const std::byte* src, const std::byte* next, float* dst, std::int64_t n);

void widen_step_scalar(DType type, const std::byte* src, const std::byte* next, float* dst, std::int64_t n);
void widen_step_avx2(DType type, const std::byte* src, const std::byte* next, float* dst, std::int64_t n);
void widen_step_avx512(DType type, const std::byte* src, const std::byte* next, float* dst, std::int64_t n);

/// The two primitives of a form.
struct AttentionForm {
    ReduceStep reduce;
    WidenStep widen;  // for rows that several batches read; null: that does not pay
};

/// Scores (raw q . k) become weights exp(score * scale - m), 0 outside the visible slots; m and l move on. Returns the
/// factor for what was summed before. Written without fused operations: every form gives the same bits from the same
/// scores.
[[gnu::always_inline]] inline float softmax_step(float (&scores)[kStepTokens], const AttentionStep& step,
                                                 QueryState& state) {
    constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
    for (int j = 0; j < kStepTokens; ++j)
        scores[j] = j >= step.first_slot && j < step.end_slot ? scores[j] * step.scale : kMinusInfinity;
    float best[16];
    for (int i = 0; i < 16; ++i) best[i] = scores[i];
    for (int j = 16; j < kStepTokens; j += 16)
        for (int i = 0; i < 16; ++i) best[i] = scores[j + i] > best[i] ? scores[j + i] : best[i];
    float m = state.m;
    for (const float value : best) m = value > m ? value : m;

    for (int j = 0; j < kStepTokens; ++j) scores[j] = exp_float(scores[j] - m);
    float sum[16];
    for (int i = 0; i < 16; ++i) sum[i] = (scores[i] + scores[16 + i]) + (scores[32 + i] + scores[48 + i]);
    for (int width = 8; width >= 1; width /= 2)
        for (int i = 0; i < width; ++i) sum[i] += sum[i + width];

    const float keep = exp_float(state.m - m);
    state.m = m;
    state.l = state.l * keep + sum[0];
    return keep;
}

}  // namespace slipstream::cpu
