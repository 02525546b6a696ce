// The inner function of kv_score(), one per kernel variant: scores the eight slot groups of a step of 64 slots for all
// queries of a kv head. The bits of a score depend only on its query and on the committed slots of the step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "kernels/cpu/exp.h"
#include "kernels/kv_view.h"

namespace slipstream::cpu {

inline constexpr int kGroupSlots = static_cast<int>(kGroupTokens);                // slots of a slot group
inline constexpr int kStepGroups = static_cast<int>(kStepTokens / kGroupTokens);  // slot groups of a step

/// Arguments for the scores of one step of one kv head. At least one slot of the step must be committed.
struct ScoreStep {
    const std::byte* k;       // [head_dim][64], `dtype`: keys, transposed. Q8_0: codes, followed by the scales
    const std::byte* next_k;  // keys of the step that is read after this one, prefetched meanwhile; k if none follows
    DType dtype;              // F16, BF16, F32 or Q8_0
    std::int64_t head_dim;
    const float* q;  // [n_queries, head_dim]
    std::int64_t n_queries;
    float scale;    // multiplies q . k
    float softcap;  // KvScoreArgs::softcap
    GroupScore score;
    int n_slots;              // the first n_slots slots of the step are committed; 1 to 64
    float* out;               // [n_queries][ceil(n_slots / 8)]: the scores that are written
    std::int64_t out_stride;  // floats in `out` from one query to the next
};

/// A function that writes the scores of a step to step.out.
using ScoreGroups = void (*)(const ScoreStep& step);

void score_groups_scalar(const ScoreStep& step);
void score_groups_avx2(const ScoreStep& step);
void score_groups_avx512(const ScoreStep& step);

/// Returns the number of slot groups of the step that have committed slots, 1 to 8.
[[gnu::always_inline]] inline int groups_there(const ScoreStep& step) {
    return (step.n_slots + kGroupSlots - 1) / kGroupSlots;
}
/// Returns the number of committed slots in slot group `g` (0 to 7) of the step; 1 instead of 0, so that a mean over an
/// unused group does not divide by 0.
[[gnu::always_inline]] inline int slots_of_group(const ScoreStep& step, int g) {
    const int n = step.n_slots - kGroupSlots * g;
    return n < 1 ? 1 : n > kGroupSlots ? kGroupSlots : n;
}

/// Computes the scores of the step's slot groups for one query from `products` (q . k, not scaled), [64] in slot order,
/// and writes groups_there(step) scores to `out`. Intermediate values are stored as [slot of the group][group], so that
/// the compiler vectorises over the eight groups. With kSoftcap, scaled products are capped (step.softcap must then be
/// above 0); the capped ones replace `products`.
template <bool kSoftcap>
[[gnu::always_inline]] inline void reduce_groups(float (&products)[kStepTokens], const ScoreStep& step, float* out) {
    const bool mass = step.score == GroupScore::Mass;
    const float outside = mass ? -std::numeric_limits<float>::infinity() : 0.0F;
    if constexpr (kSoftcap) {
        const Softcap capped(step.softcap);
        for (int slot = 0; slot < kStepTokens; ++slot) products[slot] = capped(products[slot] * step.scale);
    }
    float slots[kGroupSlots][kStepGroups];
    for (int j = 0; j < kGroupSlots; ++j)
        for (int g = 0; g < kStepGroups; ++g) {
            const int slot = g * kGroupSlots + j;
            slots[j][g] = slot >= step.n_slots ? outside : kSoftcap ? products[slot] : products[slot] * step.scale;
        }
    float best[kStepGroups];
    float sum[kStepGroups] = {};
    if (mass) {
        for (int g = 0; g < kStepGroups; ++g) best[g] = slots[0][g];
        for (int j = 1; j < kGroupSlots; ++j)
            for (int g = 0; g < kStepGroups; ++g) best[g] = slots[j][g] > best[g] ? slots[j][g] : best[g];
        for (int j = 0; j < kGroupSlots; ++j)
            for (int g = 0; g < kStepGroups; ++g) sum[g] += exp_float(slots[j][g] - best[g]);
        for (int g = 0; g < kStepGroups; ++g) sum[g] = best[g] + log_float(sum[g]);
    } else {
        for (int j = 0; j < kGroupSlots; ++j)
            for (int g = 0; g < kStepGroups; ++g) sum[g] += slots[j][g];
        for (int g = 0; g < kStepGroups; ++g) sum[g] /= static_cast<float>(slots_of_group(step, g));
    }
    for (int g = 0; g < groups_there(step); ++g) out[g] = sum[g];
}

}  // namespace slipstream::cpu
