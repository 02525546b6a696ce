// The part of attention that one warp computes, by mma m16n8k16: 16 queries are operand A; the slots of a step, and the
// columns of values, are operand B. This file fixes the order of a query's arithmetic; tiles, copies and AttentionWay
// do not affect it.
//
// Per step of 64 slots: scores s = q . k, k ascending in steps of 16; t = s * (scale log2(e) 2^e), capped if there is a
// softcap (softcap.cuh), -inf if masked; m' = max(m, all t); o and l are multiplied by 2^(m - m'); p = 2^(t - m'); a
// lane adds its 16 p in slot order to its part of l; o += p v by mma, with p rounded to the KV type, slots ascending in
// steps of 16. At the end of a KV chunk l is summed over the row's four lanes (xor 1, then 2), and the KV chunk's state
// is folded into the running one: m' = max(m, mc), l = fma(l, 2^(m - m'), lc * 2^(mc - m')), o in the same way. 2^e
// undoes the power of two that scaled the row of q so that it fits a half float.
//
// A masked slot gives p = 0 exactly. A row that a step does not concern keeps its bits: its factor is 1, its sums are
// 0. For that, rows of masked slots must be finite numbers; slots without a row are zeros.
#pragma once

#include "gpu.cuh"
#include "kernels/cuda/softcap.cuh"

namespace slipstream::cuda {

/// KV slots of a step, in which the fold of a KV chunk is computed.
inline constexpr int kStepSlots = 64;
/// Tiles of 8 KV slots in a step: an mma has 8 columns.
inline constexpr int kSlotTiles = kStepSlots / 8;
/// Steps of a KV chunk of 256 positions.
inline constexpr int kChunkSteps = 4;
/// m (maximum of the scores) of a state that has seen no KV slot.
inline constexpr float kNothingSeen = -INFINITY;

__device__ __forceinline__ void mma_16816(gpu::Bf16, float (&acc)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    gpu::mma_bf16_16816(acc, a, b);
}
__device__ __forceinline__ void mma_16816(gpu::Half, float (&acc)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    gpu::mma_f16_16816(acc, a, b);
}
__device__ __forceinline__ uint32_t pack_pair(gpu::Bf16, float low, float high) {
    return gpu::pack_bf16(low, high);
}
__device__ __forceinline__ uint32_t pack_pair(gpu::Half, float low, float high) {
    return gpu::pack_f16(low, high);
}

/// State of the two rows that a lane has of a warp's 16, lane / 4 and lane / 4 + 8, for `Columns` columns of the
/// values.
template <int Columns>
struct RowPair {
    float o[Columns / 8][4];  // accumulators of mma: elements 0, 1 are of the first row, 2, 3 of the second
    float m[2];
    float l[2];  // sums of the weights; within a KV chunk this lane's part

    __device__ __forceinline__ void clear() {
        for (int r = 0; r < 2; ++r) {
            m[r] = kNothingSeen;
            l[r] = 0.0F;
        }
#pragma unroll
        for (int d = 0; d < Columns / 8; ++d)
            for (int e = 0; e < 4; ++e) o[d][e] = 0.0F;
    }
};

/// What a lane knows of its two rows: the query attends to positions [lowest, position].
struct RowPairPlace {
    int lowest[2];
    int position[2];
    float scale[2];  // factor of scores: AttentionLaunch::scale_log2 * 2^e; 2^e undoes the scaling of the query's row
};

/// Adds the scores of `Slots` slots to s[first_tile] and on. `q`: the warp's 16 rows; `k`: the slots' rows; both Pitch
/// elements apart. The whole warp must call it.
template <class Kv, int D, int Slots, int Pitch>
__device__ __forceinline__ void add_scores(float (&s)[kSlotTiles][4], int first_tile, gpu::SharedPtr<Kv> q,
                                           gpu::SharedPtr<Kv> k) {
    const int lane = threadIdx.x % 32;
    const auto q_row = q + (lane % 16) * Pitch + lane / 16 * 8;
    const auto k_row = k + (lane % 8 + lane / 16 * 8) * Pitch + lane / 8 % 2 * 8;
#pragma unroll
    for (int d = 0; d < D; d += 16) {
        uint32_t a[4];
        gpu::ldmatrix_x4(a, q_row + d);
#pragma unroll
        for (int j = 0; j < Slots / 16; ++j) {
            uint32_t b[4];
            gpu::ldmatrix_x4(b, k_row + j * 16 * Pitch + d);
            mma_16816(Kv{}, s[first_tile + 2 * j], a, {b[0], b[1]});
            mma_16816(Kv{}, s[first_tile + 2 * j + 1], a, {b[2], b[3]});
        }
    }
}

/// Turns the scores `s` of a step into weights, and moves m, l and o of `state` to the new maximum. `base`: position of
/// slot 0. A row that the step does not concern must have a position below `base`. `softcap_log2`: as in
/// AttentionLaunch; unused unless kSoftcap. The whole warp must call it.
template <bool kSoftcap, int Columns>
__device__ __forceinline__ void weigh(float (&s)[kSlotTiles][4], int base, const RowPairPlace& place,
                                      float softcap_log2, RowPair<Columns>& state) {
    const int column = threadIdx.x % 4 * 2;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const int low = place.lowest[r] - base;
        const int end = place.position[r] - base + 1;
        float best = state.m[r];
#pragma unroll
        for (int j = 0; j < kSlotTiles; ++j)
#pragma unroll
            for (int e = 2 * r; e < 2 * r + 2; ++e) {
                const int slot = j * 8 + column + e % 2;
                float score = s[j][e] * place.scale[r];
                if constexpr (kSoftcap) score = softcapped(score, softcap_log2);
                s[j][e] = slot >= low && slot < end ? score : kNothingSeen;
                best = fmaxf(best, s[j][e]);
            }
        best = fmaxf(best, gpu::shfl_xor(best, 1));
        best = fmaxf(best, gpu::shfl_xor(best, 2));
        const float from = best == kNothingSeen ? 0.0F : best;
        const float keep = gpu::exp2_approx(state.m[r] - from);
        state.m[r] = best;
        float l = state.l[r] * keep;
#pragma unroll
        for (int j = 0; j < kSlotTiles; ++j)
#pragma unroll
            for (int e = 2 * r; e < 2 * r + 2; ++e) {
                s[j][e] = gpu::exp2_approx(s[j][e] - from);
                l = l + s[j][e];
            }
        state.l[r] = l;
#pragma unroll
        for (int d = 0; d < Columns / 8; ++d) {
            state.o[d][2 * r] *= keep;
            state.o[d][2 * r + 1] *= keep;
        }
    }
}

/// Adds the values of `Slots` slots, whose weights begin at p[first_tile], to state.o. `v`: the slots' rows, from the
/// first of the warp's columns on.
template <class Kv, int Columns, int Slots, int Pitch>
__device__ __forceinline__ void add_values(const float (&p)[kSlotTiles][4], int first_tile, gpu::SharedPtr<Kv> v,
                                           RowPair<Columns>& state) {
    const int lane = threadIdx.x % 32;
    const auto v_row = v + (lane % 16) * Pitch + lane / 16 * 8;
#pragma unroll
    for (int j = 0; j < Slots / 16; ++j) {
        const float(&left)[4] = p[first_tile + 2 * j];
        const float(&right)[4] = p[first_tile + 2 * j + 1];
        const uint32_t a[4] = {pack_pair(Kv{}, left[0], left[1]), pack_pair(Kv{}, left[2], left[3]),
                               pack_pair(Kv{}, right[0], right[1]), pack_pair(Kv{}, right[2], right[3])};
#pragma unroll
        for (int d = 0; d < Columns; d += 16) {
            uint32_t b[4];
            gpu::ldmatrix_x4_trans(b, v_row + j * 16 * Pitch + d);
            mma_16816(Kv{}, state.o[d / 8], a, {b[0], b[1]});
            mma_16816(Kv{}, state.o[d / 8 + 1], a, {b[2], b[3]});
        }
    }
}

/// Sums l of a KV chunk over the lanes of each row. All lanes must call it.
template <int Columns>
__device__ __forceinline__ void end_chunk(RowPair<Columns>& chunk) {
    for (int r = 0; r < 2; ++r) {
        chunk.l[r] = chunk.l[r] + gpu::shfl_xor(chunk.l[r], 1);
        chunk.l[r] = chunk.l[r] + gpu::shfl_xor(chunk.l[r], 2);
    }
}

/// m and l of a query's state before the first KV chunk: with `sinks` (null: none) the sink of its head has been seen.
struct StateStart {
    float m = kNothingSeen;
    float l = 0.0F;

    __device__ __forceinline__ StateStart(const float* sinks, int64_t head) {
        if (sinks == nullptr) return;
        m = sinks[head] * 1.44269504F;  // log2(e), as in scale_log2
        l = 1.0F;
    }
};

/// How a state and that of the next KV chunk are weighed: the new m, and the factors of the old state and of the KV
/// chunk.
struct FoldFactors {
    float m;
    float keep;
    float take;
};
__device__ __forceinline__ FoldFactors fold_factors(float m, float chunk_m) {
    const float both = fmaxf(m, chunk_m);
    return {both, gpu::exp2_approx(m - both), gpu::exp2_approx(chunk_m - both)};
}
__device__ __forceinline__ float fold_sum(float sum, float chunk_sum, float keep, float take) {
    return gpu::fma(sum, keep, chunk_sum * take);
}

/// Folds a KV chunk's state into `total`, for rows that saw something of the KV chunk.
template <int Columns>
__device__ __forceinline__ void fold_chunk(RowPair<Columns>& total, const RowPair<Columns>& chunk) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        if (chunk.m[r] == kNothingSeen) continue;
        const FoldFactors f = fold_factors(total.m[r], chunk.m[r]);
        total.m[r] = f.m;
        total.l[r] = fold_sum(total.l[r], chunk.l[r], f.keep, f.take);
#pragma unroll
        for (int d = 0; d < Columns / 8; ++d)
#pragma unroll
            for (int e = 2 * r; e < 2 * r + 2; ++e)
                total.o[d][e] = fold_sum(total.o[d][e], chunk.o[d][e], f.keep, f.take);
    }
}

}  // namespace slipstream::cuda
