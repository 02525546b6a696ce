// The matmul kernels over fragments; weights are operand A, tokens operand B. All reduce an output alike: K is divided
// into n_parts parts by its length alone; a part is one chain from zero, units ascending; parts are added in ascending
// order. Within a unit, types without scales add each step to the chain by mma. The others sum each run of steps that
// shares a scale from zero, then do acc = fma(run, scale, acc), then acc = fma(sum of activations, offset, acc).
//
// - matmul_ring: few tokens, limited by the bytes of the weights. A thread block has R row groups of 16 rows, a warp
//   one part of K. Weights are copied asynchronously through a ring in shared memory, 2, 3 or 7 slabs ahead, each lane
//   for itself. Tokens come from L1 and L2, a slab ahead if they are few.
// - matmul_split: like matmul_ring, but weights go from memory to registers, W::kUnitsAhead units ahead. For K that
//   ends inside a unit, for types without a ring, and for comparison (MatmulForm::SplitRegisters).
// - matmul_tiles: many tokens. A thread block has 8 row groups, one for each warp, and 64 tokens; parts of K follow one
//   another. The tokens go through shared memory in slabs of 64 k, kStages deep.
//
// A launch may have several matrices, whose thread blocks follow one another: a thread block has rows of one matrix.
// For up to 8 tokens the last matrix may have another type (matmul_mixed.cu).
#pragma once

#include "kernels/cuda/matmul/matmul_ahead.cuh"

namespace slipstream::cuda {

/// Adds the parts of K, one in each warp, in ascending order through shared memory [n_parts][NT][4][32] floats, a row
/// group at a time, and stores the outputs of the tokens `stored`. All threads of the thread block must call it.
template <int R, int NT, class Tokens>
__device__ __forceinline__ void add_parts(const MatmulParams& p, const BlockRows& rows, const Tokens& stored,
                                          const float (&acc)[R][NT][4], int part, int lane, int64_t tile) {
    auto partial = gpu::dynamic_shared<float>(0);
    constexpr int kOutputs = NT * 128;  // outputs of a row group: 16 rows, NT tiles of 8 tokens
    const int n_threads = static_cast<int>(p.n_parts) * kWarp;
    for (int r = 0; r < R; ++r) {
        gpu::sync_threads();
#pragma unroll
        for (int q = 0; q < R; ++q)
            if (q == r)
#pragma unroll
                for (int i = 0; i < NT * 4; ++i) partial[part * kOutputs + i * kWarp + lane] = acc[q][i / 4][i % 4];
        gpu::sync_threads();
        for (int i = static_cast<int>(threadIdx.x); i < kOutputs; i += n_threads) {
            const int row = i % kGroupRows;  // neighbouring threads store neighbouring rows of y
            const int column = i / kGroupRows;
            const int h = row / 8 * 2 + column % 2;
            const int at = (column / 8 * 4 + h) * kWarp + row % 8 * 4 + column % 8 / 2;
            float sum = partial[at];
            for (int other = 1; other < p.n_parts; ++other) sum += partial[other * kOutputs + at];
            const int64_t out = (rows.group + r) * kGroupRows + row;
            if (stored.has(tile * 8 + column))
                store_sum(p, rows.matrix, out, tile * 8 + column, sum, bias_of(rows.matrix, out));
        }
    }
}

/// Thread blocks per multiprocessor that matmul_split is compiled for; 0: the compiler decides. For types whose runs
/// are one step, or that have no scale, W::kMinBlocks applies to 8 tokens only (with 0 instead of 1, ptxas may spill 8
/// to 56 bytes of registers to fit two; from the output of nvcc 13.0).
template <class W, int NT>
inline constexpr int kSplitBlocks = NT == 1 || W::kRunSteps == 2 ? W::kMinBlocks : 0;

/// Computes the outputs of the thread block's rows, in the matrix of `params` that they belong to, with weights in
/// registers. Shared memory: [n_parts][NT][4][32] floats.
template <class W, int R, int NT, class Params>
__device__ __forceinline__ void multiply_by_registers(const Params& params) {
    const MatmulParams& p = common_of(params);
    constexpr int A = NT < 4 ? W::kUnitsAhead : W::kUnitsAheadOfMany;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int part = static_cast<int>(threadIdx.x) / kWarp;
    const BlockRows rows = block_rows(params, R);
    const int64_t tile = first_tile<NT>(params);
    const int64_t begin = part_begin(p, part);
    const int64_t end = part_begin(p, part + 1);
    auto tokens = tokens_in_memory<NT == 1>(p, tile, lane);
    WeightsAhead<W, R, A> weights = {};
#pragma unroll
    for (int r = 0; r < R; ++r) weights.groups[r] = group_at(p, rows.matrix, rows.group + r);
    weights.k = p.k;
    weights.end = end;
    weights.lane = lane;
    weights.start(begin);
    float acc[R][NT][4] = {};
    for (int64_t u = begin; u < end; u += A) {
#pragma unroll
        for (int ahead = 0; ahead < A; ++ahead) {
            if (u + ahead >= end) break;
            weights.turn_to(u + ahead);
#pragma unroll
            for (int number = 0; number < W::kSlabs; ++number) {
                tokens.turn_to((u + ahead) * W::kSlabs + number);
                multiply_slab<W, R, NT>(weights.head, weights.units, weights.slabs[ahead][number], number, lane, tokens,
                                        acc);
                weights.load_slabs(ahead, u + ahead + A, number);
            }
        }
    }

    add_parts<R, NT>(p, block_rows(params, R), stored_tokens(params), acc, part, lane, tile);
}

// Multiplies few tokens, with weights from memory to registers. Thread block: 32 * n_parts threads. Grid: n_tiles / NT,
// ceil(row groups / R); thread blocks of the same rows follow one another.
template <class W, int R, int NT, class Params>
__global__ void __launch_bounds__(kSplitWarps* kWarp, kSplitBlocks<W, NT>) matmul_split(Params params) {
    multiply_by_registers<W, R, NT>(params);
}

/// Computes the outputs of the thread block's rows, in the matrix of `params` that they belong to, with weights through
/// a ring in shared memory. `p`: what the matrices of this type have in common. Shared memory: n_parts rings, then used
/// again for [n_parts][NT][4][32] floats.
/// kTiles: number of tiles of tokens of the whole call, if the compiler knows it; else 0.
template <class W, int R, int NT, int kTiles = NT, class Params>
__device__ __forceinline__ void multiply_by_ring(const MatmulParams& p, const Params& params) {
    constexpr int A = WeightsInRing<W, R>::kSlots / W::kSlabs;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int part = static_cast<int>(threadIdx.x) / kWarp;
    const BlockRows rows = block_rows(params, R);
    const int64_t tile = first_tile<NT>(params);
    const int64_t begin = part_begin(p, part);
    const int64_t end = part_begin(p, part + 1);
    WeightsInRing<W, R> weights = {};
#pragma unroll
    for (int r = 0; r < R; ++r) weights.groups[r] = group_at(p, rows.matrix, rows.group + r);
    weights.k = p.k;
    weights.end = end;
    weights.lane = lane;
    weights.ring = gpu::dynamic_shared<char>(static_cast<size_t>(part) * WeightsInRing<W, R>::kBytes + lane * 16);
    weights.start(begin);
    TokensAhead<W, NT, (NT <= 2), kTiles> tokens;
    tokens.start(p, tile, lane, begin * W::kSlabs);
    float acc[R][NT][4] = {};
    for (int64_t u = begin; u < end; u += A) {
#pragma unroll
        for (int ahead = 0; ahead < A; ++ahead) {
            if (u + ahead >= end) break;
            weights.turn_to(u + ahead);
#pragma unroll
            for (int number = 0; number < W::kSlabs; ++number) {
                typename W::Slab slab[R];
                weights.take(slab, u + ahead, ahead * W::kSlabs + number, number);
                tokens.turn(u + ahead + 1 < end || number + 1 < W::kSlabs);
                multiply_slab<W, R, NT>(weights.head, weights.units, slab, number, lane, tokens, acc);
            }
        }
    }
    gpu::copy_async_wait<0>();
    add_parts<R, NT>(p, block_rows(params, R), stored_tokens(params), acc, part, lane, tile);
}

template <class W, int R, int NT>
__global__ void __launch_bounds__(kSplitWarps* kWarp, NT == 1 || (NT == 2 && !W::kScaled) ? 2 : 1)
    matmul_ring(JointParams params) {
    multiply_by_ring<W, R, NT>(params.all, params);
}

// Multiplies tiles of tokens, each with a matrix of its own (GroupParams). Thread block: 32 * n_parts threads. Grid:
// ceil(row groups / R) of the matrix that has most, tiles.
template <class W, int R>
__global__ void __launch_bounds__(kSplitWarps* kWarp, 2) matmul_ring_tiles(GroupParams params) {
    if (block_rows(params, R).group * kGroupRows >= params.tiles[blockIdx.y].m) return;  // the whole thread block
    multiply_by_ring<W, R, 1, 0>(params.all, params);
}
template <class W>
__global__ void __launch_bounds__(kSplitWarps* kWarp, kSplitBlocks<W, 1>) matmul_split_tiles(GroupParams params) {
    if (block_rows(params, 1).group * kGroupRows >= params.tiles[blockIdx.y].m) return;  // the whole thread block
    multiply_by_registers<W, 1, 1>(params);
}

/// Multiplies up to 8 tokens with several matrices, of which the last has another type whose units have the same
/// length. The other matrices go through registers if their type has no ring.
template <class W, class WOfLast>
__global__ void __launch_bounds__(kSplitWarps* kWarp, W::kPieces > 0 ? 2 : 1) matmul_mixed(JointParams params) {
    static_assert(W::kSlabs == WOfLast::kSlabs);
    if (static_cast<int>(blockIdx.y) < params.first_block[params.n_more - 1]) {
        if constexpr (W::kPieces > 0)
            return multiply_by_ring<W, 1, 1>(params.all, params);
        else
            return multiply_by_registers<W, 1, 1>(params);
    }
    MatmulParams of_last = params.all;
    of_last.group_bytes = params.last_group_bytes;
    multiply_by_ring<WOfLast, 1, 1>(of_last, params);
}

/// Begins the copies of slab `slab` (64 k) of the thread block's tokens to shared memory; past the last slab, an empty
/// copy. All threads must call it.
__device__ __forceinline__ void copy_slab(const MatmulParams& p, int64_t slab, int64_t n_slabs, int64_t tile) {
    if (slab < n_slabs) {
        const auto to = gpu::dynamic_shared<char>(static_cast<size_t>(slab % kStages) * kSlabBytes);
        for (int i = static_cast<int>(threadIdx.x); i < kSlabBytes / 16; i += kTileWarps * kWarp) {
            const int j = i / (kFragmentBytes / 16) % kTileTokens;
            const int step = i / (kFragmentBytes / 16) / kTileTokens;
            const int64_t from = ((slab * kSlabSteps + step) * p.n_tiles + tile + j) * kFragmentBytes;
            gpu::copy_async_16(to + i * 16, p.fragments + from + i % (kFragmentBytes / 16) * 16);
        }
    }
    gpu::copy_async_commit();
}

// Multiplies 128 rows with 64 tokens per thread block of 256 threads. Grid: n_tiles / 8, ceil(row groups / 8). Shared
// memory: kStages slabs.
template <class W>
__global__ void __launch_bounds__(kTileWarps* kWarp) matmul_tiles(JointParams params) {
    const MatmulParams& p = params.all;
    constexpr int A = W::kUnitsAheadOfMany;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const BlockRows rows = block_rows(params, kTileWarps);
    const int64_t group = rows.group + threadIdx.x / kWarp;
    const int64_t tile = static_cast<int64_t>(blockIdx.x) * kTileTokens;
    const int64_t n_slabs = p.n_units * W::kSlabs;
    TokensInShared tokens{tokens_in_memory<false>(p, tile, lane), gpu::dynamic_shared<char>(0), lane};

    for (int s = 0; s < kStages - 1; ++s) copy_slab(p, s, n_slabs, tile);
    WeightsAhead<W, 1, A> weights = {};
    weights.groups[0] = group_at(p, rows.matrix, group);
    weights.k = p.k;
    weights.end = p.n_units;
    weights.lane = lane;
    weights.start(0);
    float total[kTileTokens][4] = {};
    float acc[1][kTileTokens][4] = {};
    int part = 0;
    int64_t part_end = part_begin(p, 1);
    for (int64_t u = 0; u < p.n_units; u += A) {
#pragma unroll
        for (int ahead = 0; ahead < A; ++ahead) {
            if (u + ahead >= p.n_units) break;
            weights.turn_to(u + ahead);
#pragma unroll
            for (int number = 0; number < W::kSlabs; ++number) {
                const int64_t slab = (u + ahead) * W::kSlabs + number;
                gpu::copy_async_wait<kStages - 2>();
                gpu::sync_threads();  // the slab has arrived, and all threads have read the one before it
                copy_slab(p, slab + kStages - 1, n_slabs, tile);
                tokens.memory.turn_to(slab);
                tokens.slab = gpu::dynamic_shared<char>(static_cast<size_t>(slab % kStages) * kSlabBytes);
                multiply_slab<W, 1, kTileTokens>(weights.head, weights.units, weights.slabs[ahead][number], number,
                                                 lane, tokens, acc);
                weights.load_slabs(ahead, u + ahead + A, number);
            }
            if (u + ahead + 1 < part_end) continue;
#pragma unroll
            for (int i = 0; i < kTileTokens * 4; ++i) {
                float& sum = total[i / 4][i % 4];
                sum = part == 0 ? acc[0][i / 4][i % 4] : sum + acc[0][i / 4][i % 4];
                acc[0][i / 4][i % 4] = 0;
            }
            ++part;
            part_end = part_begin(p, part + 1);
        }
    }
    const int64_t row = group * kGroupRows + lane / 4;
    const float bias[2] = {bias_of(rows.matrix, row), bias_of(rows.matrix, row + 8)};
#pragma unroll
    for (int i = 0; i < kTileTokens * 4; ++i) {
        const int h = i % 4;
        store_sum(p, rows.matrix, row + h / 2 * 8, (tile + i / 4) * 8 + lane % 4 * 2 + h % 2, total[i / 4][h],
                  bias[h / 2]);
    }
}

}  // namespace slipstream::cuda
