// The inner primitive of kv_score, one a form: all queries of a kv head against the 64 slots of a step, whose eight
// groups they score. Nothing but the step's committed slots and a query touch the bits of a score.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "kernels/cpu/exp.h"
#include "kernels/kv_view.h"

namespace slipstream::cpu {

inline constexpr int kGroupSlots = static_cast<int>(kGroupTokens);
inline constexpr int kStepGroups = static_cast<int>(kStepTokens / kGroupTokens);

struct ScoreStep {
    const std::byte* k;       // [head_dim][64], transposed
    const std::byte* next_k;  // read after this step: fetched meanwhile. Itself where nothing follows
    DType dtype;
    std::int64_t head_dim;
    const float* q;  // [n_queries, head_dim]
    std::int64_t n_queries;
    float scale;
    GroupScore score;
    int n_slots;              // committed, the step's first; 1 to 64
    float* out;               // ceil(n_slots / 8) scores of each query
    std::int64_t out_stride;  // floats from query to query
};

using ScoreGroups = void (*)(const ScoreStep& step);

void score_groups_scalar(const ScoreStep& step);
void score_groups_avx2(const ScoreStep& step);
void score_groups_avx512(const ScoreStep& step);

/// Groups of the step with committed slots, and how many slots group g has of them, at least 1.
[[gnu::always_inline]] inline int groups_there(const ScoreStep& step) {
    return (step.n_slots + kGroupSlots - 1) / kGroupSlots;
}
[[gnu::always_inline]] inline int slots_of_group(const ScoreStep& step, int g) {
    const int n = step.n_slots - kGroupSlots * g;
    return n < 1 ? 1 : n > kGroupSlots ? kGroupSlots : n;
}

/// The step's scores of one query from its products q . k, [64] in slot order. The groups lie side by side, slot after
/// slot, so that the compiler works on all eight at once.
[[gnu::always_inline]] inline void reduce_groups(const float* products, const ScoreStep& step, float* out) {
    const bool mass = step.score == GroupScore::Mass;
    const float outside = mass ? -std::numeric_limits<float>::infinity() : 0.0F;
    float slots[kGroupSlots][kStepGroups];
    for (int j = 0; j < kGroupSlots; ++j)
        for (int g = 0; g < kStepGroups; ++g) {
            const int slot = g * kGroupSlots + j;
            slots[j][g] = slot < step.n_slots ? products[slot] * step.scale : outside;
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
