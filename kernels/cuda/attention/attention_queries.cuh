// The queries of a tile: which they are, what they see, and their rows in shared memory, rounded to the KV type for
// mma.
//
// Half floats have few exponents. So a row is first multiplied by the power of two that brings its largest magnitude
// into [1, 2), and the scale of its scores undoes that exactly. The bits of a row depend on the row alone.
#pragma once

#include "gpu.cuh"
#include "kernels/cuda/attention/attention_launch.h"
#include "kernels/cuda/attention/attention_warp.cuh"

namespace slipstream::cuda {

/// The query in a row of a tile.
struct QueryPlace {
    int token;
    int head;  // query head, of all query heads of the model
};
__device__ __forceinline__ QueryPlace query_place(const AttentionLaunch& a, const AttentionTile& tile, int kv_head,
                                                  int row) {
    const int group = a.n_q_heads / a.n_kv_heads;
    const int query = tile.first_query + row;
    return {query / group, kv_head * group + query % group};
}

/// Returns a power of two that brings a row into range, if the type needs that: F16: its largest magnitude, the maximum
/// of `most` over the warp, then is in [1, 2); BF16: 1. Whole warps only.
__device__ __forceinline__ float row_factor(gpu::Half, float most) {
    for (int mask = 16; mask > 0; mask /= 2) most = fmaxf(most, gpu::shfl_xor(most, mask));
    const int exponent = static_cast<int>(__builtin_bit_cast(uint32_t, most) >> 23);
    return __builtin_bit_cast(float, static_cast<uint32_t>(254 - gpu::min(gpu::max(exponent, 1), 253)) << 23);
}
__device__ __forceinline__ float row_factor(gpu::Bf16, float) {
    return 1.0F;
}

/// Rounds a warp's 16 queries, from row `first_row` of the tile on, into `rows`, [16][Pitch], and writes 1 / factor of
/// each to `undo`, [16]. Rows that the tile does not have become 0. The whole warp must call it.
template <class Kv, int D, int Pitch>
__device__ __forceinline__ void load_queries(const AttentionLaunch& a, const AttentionTile& tile, int kv_head,
                                             int first_row, gpu::SharedPtr<Kv> rows, gpu::SharedPtr<float> undo) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    constexpr int kPairs = (D / 2 + 31) / 32;  // pairs of elements of a query that a lane has: lane, lane + 32, ...
#pragma unroll 4
    for (int r = 0; r < kWarpRows; ++r) {
        const bool there = first_row + r < tile.n_rows;
        float x[kPairs][2] = {};
        if (there) {
            const QueryPlace place = query_place(a, tile, kv_head, first_row + r);
            const float* q = a.q + place.token * a.q_stride + int64_t{place.head} * D;
            for (int i = 0; i < kPairs; ++i) {
                const int at = 2 * (lane + 32 * i);
                if (at >= D) continue;
                x[i][0] = q[at];
                x[i][1] = q[at + 1];
            }
        }
        float most = 0.0F;
        for (int i = 0; i < kPairs; ++i) most = fmaxf(most, fmaxf(fabsf(x[i][0]), fabsf(x[i][1])));
        const float factor = row_factor(Kv{}, most);
        for (int i = 0; i < kPairs; ++i) {
            const int at = 2 * (lane + 32 * i);
            if (at < D)
                (rows + r * Pitch + at).template as<uint32_t>()[0] =
                    pack_pair(Kv{}, x[i][0] * factor, x[i][1] * factor);
        }
        if (lane == 0) undo[r] = 1.0F / factor;  // exact
    }
}

__device__ __forceinline__ RowPairPlace row_pair_place(const AttentionLaunch& a, const AttentionTile& tile, int kv_head,
                                                       int first_row, gpu::SharedPtr<float> undo) {
    RowPairPlace place;
    for (int r = 0; r < 2; ++r) {
        const int row = static_cast<int>(threadIdx.x % 32 / 4) + 8 * r;
        const bool there = first_row + row < tile.n_rows;
        place.position[r] = there ? a.positions[query_place(a, tile, kv_head, first_row + row).token] : -1;
        place.lowest[r] = a.window == 0 ? 0 : place.position[r] - a.window + 1;
        place.scale[r] = a.scale_log2 * undo[row];
    }
    return place;
}

}  // namespace slipstream::cuda
