// The inner function of attention, one per kernel variant: reduces up to six queries over the 64 slots of one step,
// for one kv head.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "kernels/attention.h"
#include "kernels/cpu/exp.h"

namespace slipstream::cpu {

/// Most queries that one call reduces over a step: the vector variants share each load and widening of a row among
/// them.
inline constexpr int kMaxBatch = 4;
/// Most queries that one call of reduce_step_q8_vnni() reduces over a step: as many as registers allow.
inline constexpr int kMaxQ8Batch = 6;

/// Value of a parameter `next_chunk` if no KV chunk follows.
inline constexpr std::int64_t kNoChunk = -1;

/// One step of the fold: the K and V of 64 slots of one kv head. Only the slots [first_slot, end_slot) are visible, to
/// all queries of the batch.
struct AttentionStep {
    const std::byte* k;  // [head_dim][64], `dtype`: keys, transposed. Q8_0: codes, followed by the scales (kv_layout.h)
    const std::byte* v;  // [64][head_dim], `dtype`: values. Q8_0: codes, followed by the scales
    // K and V of the step that is read after this one; they are prefetched line by line while this step is computed. k
    // and v themselves if no step follows. Of the shapes of k and v.
    const std::byte* next_k;
    const std::byte* next_v;
    DType dtype;  // F16, BF16, F32 or Q8_0
    std::int64_t head_dim;
    int first_slot;  // first visible slot, 0 to 63
    int end_slot;    // end of the visible slots, at most 64
    float scale;     // multiplies q . k
    float softcap;   // AttentionArgs::softcap
};

/// A query vector and the state of its fold. The pointers refer to memory of the caller.
struct QueryState {
    const float* q;  // [head_dim]: the query
    float* o;        // [head_dim]: weighted sum of the values so far
    float m;         // largest scaled score so far; -infinity: no slot was visible
    float l;         // sum of the weights so far
};

/// Bytes of an element, or code, of a KV type.
template <DType kType>
inline constexpr std::int64_t kKvElementBytes = kType == DType::F32    ? 4
                                                : kType == DType::Q8_0 ? 1
                                                                       : 2;

/// Returns the scales of a step of Q8_0, [blocks][64], from the address of its codes: BF16, to be widened.
[[gnu::always_inline]] inline const std::uint16_t* step_scales(const std::byte* codes, std::int64_t head_dim) {
    return reinterpret_cast<const std::uint16_t*>(codes + kStepTokens * head_dim);
}

/// A function that folds the step into the states of the `n_batch` (1 to AttentionForm::max_batch) queries of `batch`.
/// The bits of a state depend only on its own query and on the step, not on the other queries.
using ReduceStep = void (*)(const AttentionStep& step, QueryState* const* batch, int n_batch);

void reduce_step_scalar(const AttentionStep& step, QueryState* const* batch, int n_batch);
void reduce_step_avx2(const AttentionStep& step, QueryState* const* batch, int n_batch);
void reduce_step_avx512(const AttentionStep& step, QueryState* const* batch, int n_batch);
/// Gives the same bits as reduce_step_avx512(). Rows are prefetched directly into L1, not into L2 first, and 16-bit
/// rows need not be widened before the call.
void reduce_step_avx512_near(const AttentionStep& step, QueryState* const* batch, int n_batch);
/// Folds a step of Q8_0 with products of integers; step.dtype must be Q8_0.
void reduce_step_q8_vnni(const AttentionStep& step, QueryState* const* batch, int n_batch);

/// Distance in bytes, from the row being read, at which rows are prefetched from L2 into L1. Distances from 512 bytes
/// to 4 KiB were measured within 1 % of each other (kernels/NOTES.md).
inline constexpr std::int64_t kStepL1PrefetchBytes = 1 << 10;

/// A function that converts `n` elements (a multiple of 16) of the 16-bit KV type `type` from `src` to floats at `dst`,
/// exactly, and prefetches the `n` elements at `next` meanwhile (`src` itself if nothing is read after it).
using WidenStep = void (*)(DType type, const std::byte* src, const std::byte* next, float* dst, std::int64_t n);

void widen_step_scalar(DType type, const std::byte* src, const std::byte* next, float* dst, std::int64_t n);
void widen_step_avx2(DType type, const std::byte* src, const std::byte* next, float* dst, std::int64_t n);
void widen_step_avx512(DType type, const std::byte* src, const std::byte* next, float* dst, std::int64_t n);

/// The inner functions of a kernel variant for one KV type.
struct AttentionForm {
    ReduceStep reduce;
    WidenStep widen;  // applied once to 16-bit rows that several batches read; null: widening does not pay. Codes are
                      // not widened, since their products are scaled block by block
    int max_batch = kMaxBatch;  // most queries of one call of `reduce`
};

/// Replaces the 64 `scores` (q . k, not scaled) by the weights exp(score * step.scale - m), 0 outside the visible
/// slots, with scaled scores capped if kSoftcap (step.softcap must then be above 0), and updates state.m and state.l.
/// Returns the factor by which the caller must multiply state.o before it adds the weighted values of this step. Uses
/// no fused operations, so every kernel variant gives the same bits for the same scores.
template <bool kSoftcap>
[[gnu::always_inline]] inline float softmax_step(float (&scores)[kStepTokens], const AttentionStep& step,
                                                 QueryState& state) {
    constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
    if constexpr (kSoftcap) {
        const Softcap capped(step.softcap);
        // A loop of its own, so that the compiler vectorises it.
        for (int j = 0; j < kStepTokens; ++j) scores[j] = capped(scores[j] * step.scale);
        for (int j = 0; j < kStepTokens; ++j)
            scores[j] = j >= step.first_slot && j < step.end_slot ? scores[j] : kMinusInfinity;
    } else {
        for (int j = 0; j < kStepTokens; ++j)
            scores[j] = j >= step.first_slot && j < step.end_slot ? scores[j] * step.scale : kMinusInfinity;
    }
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
