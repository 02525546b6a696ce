// The two kernels of attention on tensor cores. Both take a tile of queries of one kv head through steps (the ring of
// attention_steps.cuh) with the arithmetic of attention_warp.cuh, so they give the same bits.
//
// - attention_parallel: grid (tiles, kv heads, KV chunks of a wave), up to four warps of 16 queries. Stores the KV
//   chunk's state of each query in memory. For few queries and long sequences: a thread block of one warp has 30 KB of
//   shared memory (heads of 128) with 17 KB being copied, so three such thread blocks per multiprocessor are more than
//   latency times bandwidth. All query heads of a query group share what is read.
// - attention_folded: grid (tiles, kv heads), four warps; folds KV chunk after KV chunk in registers. For many queries.
//   With heads of 256, two warps share 16 queries: each takes half of the columns of the values, and both compute the
//   scores.
#pragma once

#include "gpu.cuh"
#include "kernels/cuda/attention/attention_launch.h"
#include "kernels/cuda/attention/attention_queries.cuh"
#include "kernels/cuda/attention/attention_steps.cuh"
#include "kernels/cuda/attention/attention_warp.cuh"

namespace slipstream::cuda {

/// Sizes of the parallel kernel for heads of D elements. 32 slots per sub-tile are four independent chains of mma. 3
/// stages of 32 slots were measured on an H200 (kernels/cuda/NOTES.md), all else is estimated. The stages let two
/// thread blocks of the folding kernel fit into the 100 KB of sm_86, 89 and 120 for heads of up to 128. Kernels without
/// a softcap are compiled apart, so that they have no instruction more.
template <class Kv, int D, bool Softcap>
struct ParallelShape {
    static constexpr bool kSoftcap = Softcap;
    static constexpr int kHeadDim = D;
    static constexpr int kColumns = D;  // columns of values per warp
    static constexpr int kSlots = D > 128 ? 16 : 32;
    static constexpr int kStages = D == 64 ? 4 : 3;
    using Ring = typename RingFor<Kv, D, kSlots, kStages>::Type;
    using Element = typename Ring::Element;
};
template <class Kv, int D, bool Softcap>
struct FoldedShape {
    static constexpr bool kSoftcap = Softcap;
    static constexpr int kHeadDim = D;
    static constexpr int kColumns = D > 128 ? D / 2 : D;
    static constexpr int kSlots = 32;
    static constexpr int kStages = 3;
    using Ring = typename RingFor<Kv, D, kSlots, kStages>::Type;
    using Element = typename Ring::Element;
};

/// Returns the bytes of shared memory of a thread block with n_rows queries: the ring, the queries, a factor for each.
template <class Shape>
constexpr size_t tile_shared_bytes(int n_rows) {
    return Shape::Ring::kBytes + static_cast<size_t>(n_rows) * (Shape::Ring::kPitch * 2 + 4);
}

/// Folds the ring's next step into `chunk`. Every warp of the thread block must call it, since all read the ring; a
/// warp that the step does not concern computes nothing.
template <class Shape>
__device__ __forceinline__ void take_step(typename Shape::Ring& ring, const StepRows& step, int first_row,
                                          int first_column, gpu::SharedPtr<typename Shape::Element> queries,
                                          const RowPairPlace& place, float softcap_log2,
                                          RowPair<Shape::kColumns>& chunk) {
    using Kv = typename Shape::Element;
    constexpr int kParts = Shape::Ring::kParts;
    constexpr int kTiles = Shape::kSlots / 8;
    const bool concerned = step.first_row < first_row + kWarpRows && step.end_row > first_row;
    float s[kSlotTiles][4];
#pragma unroll
    for (int j = 0; j < kSlotTiles; ++j)
        for (int e = 0; e < 4; ++e) s[j][e] = 0.0F;
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
        const auto keys = ring.next();
        if (concerned)
            add_scores<Kv, Shape::kHeadDim, Shape::kSlots, Shape::Ring::kPitch>(s, part * kTiles, queries, keys);
    }
    if (concerned) {
        RowPairPlace within = place;
        for (int r = 0; r < 2; ++r) {
            const int row = first_row + static_cast<int>(threadIdx.x % 32 / 4) + 8 * r;
            if (row < step.first_row || row >= step.end_row) within.position[r] = -1;
        }
        weigh<Shape::kSoftcap>(s, step.step * kStepSlots, within, softcap_log2, chunk);
    }
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
        const auto values = ring.next();
        if (concerned)
            add_values<Kv, Shape::kColumns, Shape::kSlots, Shape::Ring::kPitch>(s, part * kTiles, values + first_column,
                                                                                chunk);
    }
}

template <class Shape>
__global__ void __launch_bounds__(32 * kMaxParallelWarps)
    attention_parallel(const AttentionLaunch a, const int first_chunk) {
    using Kv = typename Shape::Element;
    constexpr int D = Shape::kHeadDim;
    const AttentionTile tile = a.tiles[blockIdx.x];
    const int kv_head = static_cast<int>(blockIdx.y);
    const int slice = static_cast<int>(blockIdx.z);
    const int first_row = static_cast<int>(threadIdx.x / 32) * kWarpRows;
    const int n_block_rows = static_cast<int>(blockDim.x / 32) * kWarpRows;
    const auto queries = gpu::dynamic_shared<Kv>(Shape::Ring::kBytes) + first_row * Shape::Ring::kPitch;
    const auto undo =
        gpu::dynamic_shared<float>(Shape::Ring::kBytes + static_cast<size_t>(n_block_rows) * Shape::Ring::kPitch * 2) +
        first_row;

    const int chunk_number = place_of(a).first_chunk + first_chunk + slice;
    const StepList steps = steps_within(a, tile, chunk_number, chunk_number + 1);
    RowPair<D> chunk;
    chunk.clear();
    if (steps.n > 0) {
        typename Shape::Ring ring(a, steps, kv_head);
        load_queries<Kv, D, Shape::Ring::kPitch>(a, tile, kv_head, first_row, queries, undo);
        gpu::sync_warp();
        const RowPairPlace place = row_pair_place(a, tile, kv_head, first_row, undo);
        for (int i = 0; i < steps.n; ++i)
            take_step<Shape>(ring, steps.at(a, tile, i), first_row, 0, queries, place, a.softcap_log2, chunk);
        ring.end();
        end_chunk(chunk);
    }

    const int64_t n_queries = int64_t{a.n_tokens} * a.n_q_heads;
    const int column = static_cast<int>(threadIdx.x % 4) * 2;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const int row = first_row + static_cast<int>(threadIdx.x % 32 / 4) + 8 * r;
        if (row >= tile.n_rows) continue;
        const QueryPlace place = query_place(a, tile, kv_head, row);
        const int64_t query = int64_t{place.token} * a.n_q_heads + place.head;
        float* o = a.wave_o + (slice * n_queries + query) * D + column;
#pragma unroll
        for (int d = 0; d < D / 8; ++d) {
            o[d * 8] = chunk.o[d][2 * r];
            o[d * 8 + 1] = chunk.o[d][2 * r + 1];
        }
        if (column == 0) {
            a.wave_m[query * a.wave_chunks + slice] = chunk.m[r];
            a.wave_l[query * a.wave_chunks + slice] = chunk.l[r];
        }
    }
}

template <class Shape>
__global__ void __launch_bounds__(32 * kFoldWarps, 2) attention_folded(const AttentionLaunch a) {
    using Kv = typename Shape::Element;
    constexpr int D = Shape::kHeadDim;
    constexpr int kColumns = Shape::kColumns;
    constexpr int kHalves = D / kColumns;  // warps that share their queries
    constexpr int kRows = kWarpRows * kFoldWarps / kHalves;
    const AttentionTile tile = a.tiles[blockIdx.x];
    const int kv_head = static_cast<int>(blockIdx.y);
    const int warp = static_cast<int>(threadIdx.x / 32);
    const int first_row = warp / kHalves * kWarpRows;
    const int first_column = warp % kHalves * kColumns;
    const auto queries = gpu::dynamic_shared<Kv>(Shape::Ring::kBytes) + first_row * Shape::Ring::kPitch;
    const auto undo =
        gpu::dynamic_shared<float>(Shape::Ring::kBytes + size_t{kRows} * Shape::Ring::kPitch * 2) + first_row;

    const int first_chunk = place_of(a).first_chunk;
    const StepList steps = steps_within(a, tile, first_chunk, first_chunk + a.end_chunk - a.first_chunk);
    typename Shape::Ring ring(a, steps, kv_head);
    if (warp % kHalves == 0) load_queries<Kv, D, Shape::Ring::kPitch>(a, tile, kv_head, first_row, queries, undo);
    gpu::sync_threads();
    const RowPairPlace place = row_pair_place(a, tile, kv_head, first_row, undo);

    const int column = first_column + static_cast<int>(threadIdx.x % 4) * 2;
    int64_t query[2];
    float* out[2];
    bool there[2];
    for (int r = 0; r < 2; ++r) {
        const int row = first_row + static_cast<int>(threadIdx.x % 32 / 4) + 8 * r;
        const QueryPlace at = query_place(a, tile, kv_head, row);
        there[r] = row < tile.n_rows;
        query[r] = int64_t{at.token} * a.n_q_heads + at.head;
        out[r] = a.out != nullptr ? a.out + at.token * a.out_stride + int64_t{at.head} * D + column
                                  : a.state + query[r] * D + column;
    }
    const int64_t n_queries = int64_t{a.n_tokens} * a.n_q_heads;
    RowPair<kColumns> total;
    total.clear();
    if (a.start != nullptr) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            if (!there[r]) continue;
#pragma unroll
            for (int d = 0; d < kColumns / 8; ++d)
                for (int e = 0; e < 2; ++e) total.o[d][2 * r + e] = a.start[query[r] * D + column + d * 8 + e];
            total.m[r] = a.start[n_queries * D + query[r]];
            total.l[r] = a.start[n_queries * (D + 1) + query[r]];
        }
    } else if (a.sinks != nullptr) {
        for (int r = 0; r < 2; ++r) {
            if (!there[r]) continue;
            const StateStart fresh(a.sinks, query[r] % a.n_q_heads);
            total.m[r] = fresh.m;
            total.l[r] = fresh.l;
        }
    }

    RowPair<kColumns> chunk;
    chunk.clear();
    for (int i = 0; i < steps.n; ++i) {
        const StepRows step = steps.at(a, tile, i);
        take_step<Shape>(ring, step, first_row, first_column, queries, place, a.softcap_log2, chunk);
        if (i + 1 < steps.n && steps.at(a, tile, i + 1).step / kChunkSteps == step.step / kChunkSteps) continue;
        end_chunk(chunk);
        fold_chunk(total, chunk);
        chunk.clear();
    }
    ring.end();

#pragma unroll
    for (int r = 0; r < 2; ++r) {
        if (!there[r]) continue;
#pragma unroll
        for (int d = 0; d < kColumns / 8; ++d)
            for (int e = 0; e < 2; ++e)
                out[r][d * 8 + e] = a.out != nullptr ? total.o[d][2 * r + e] / total.l[r] : total.o[d][2 * r + e];
        if (a.out == nullptr && column == 0) {
            a.state[n_queries * D + query[r]] = total.m[r];
            a.state[n_queries * (D + 1) + query[r]] = total.l[r];
        }
    }
}

/// Launches one wave of `n_chunks` KV chunks, beginning `first_chunk` KV chunks after the call's first one.
template <class Shape>
void start_parallel(const AttentionLaunch& a, int first_chunk, int n_chunks, void* stream) {
    const int rows = a.warps_per_tile * kWarpRows;
    gpu::launch(
        attention_parallel<Shape>,
        dim3(static_cast<unsigned>(a.n_tiles), static_cast<unsigned>(a.n_kv_heads), static_cast<unsigned>(n_chunks)),
        dim3(static_cast<unsigned>(32 * a.warps_per_tile)), tile_shared_bytes<Shape>(rows), stream, a, first_chunk);
}
template <class Shape>
void start_folded(const AttentionLaunch& a, void* stream) {
    gpu::launch(attention_folded<Shape>, dim3(static_cast<unsigned>(a.n_tiles), static_cast<unsigned>(a.n_kv_heads)),
                dim3(32 * kFoldWarps), tile_shared_bytes<Shape>(fold_rows(Shape::kHeadDim)), stream, a);
}

/// Launches the kernels for the head_dim of a call: one wave of the parallel way, or the whole fold.
template <class Kv>
struct AttentionOn {
    static void parallel(const AttentionLaunch& a, int first_chunk, int n_chunks, void* stream) {
        if (a.softcap_log2 != 0.0F) {
            if (a.head_dim == 128)
                return start_parallel<ParallelShape<Kv, 128, true>>(a, first_chunk, n_chunks, stream);
            return start_parallel<ParallelShape<Kv, 256, true>>(a, first_chunk, n_chunks, stream);
        }
        switch (a.head_dim) {
            case 64:
                return start_parallel<ParallelShape<Kv, 64, false>>(a, first_chunk, n_chunks, stream);
            case 96:
                return start_parallel<ParallelShape<Kv, 96, false>>(a, first_chunk, n_chunks, stream);
            case 128:
                return start_parallel<ParallelShape<Kv, 128, false>>(a, first_chunk, n_chunks, stream);
            default:
                return start_parallel<ParallelShape<Kv, 256, false>>(a, first_chunk, n_chunks, stream);
        }
    }
    static void folded(const AttentionLaunch& a, void* stream) {
        if (a.softcap_log2 != 0.0F) {
            if (a.head_dim == 128) return start_folded<FoldedShape<Kv, 128, true>>(a, stream);
            return start_folded<FoldedShape<Kv, 256, true>>(a, stream);
        }
        switch (a.head_dim) {
            case 64:
                return start_folded<FoldedShape<Kv, 64, false>>(a, stream);
            case 96:
                return start_folded<FoldedShape<Kv, 96, false>>(a, stream);
            case 128:
                return start_folded<FoldedShape<Kv, 128, false>>(a, stream);
            default:
                return start_folded<FoldedShape<Kv, 256, false>>(a, stream);
        }
    }
};

}  // namespace slipstream::cuda
