// The two matmul kernels over fragments; weights are operand A, tokens operand B. Both reduce an output alike: K is cut
// into n_parts by its length alone; a part is one chain from zero, units ascending; parts are added in ascending order.
// Within a unit, types without scales add each step to the chain by mma; the others sum a run of steps that shares a
// scale from zero, then take acc = fma(run, scale, acc), then acc = fma(sum of activations, offset, acc).
//
// matmul_split: few tokens, bound by the weights' bytes. A block has R groups of 16 rows, a warp one part of K: weights
// go from memory to registers, W::kUnitsAhead units ahead; tokens come from L1 and L2.
// matmul_tiles: many tokens. A block has 8 groups, a warp each, and 64 tokens; parts one after another; the block's
// tokens pass through shared memory in slabs of 64 k, kStages deep.
#pragma once

#include "gpu.cuh"
#include "kernels/cuda/matmul_params.h"
#include "kernels/cuda/matmul_weights.cuh"

namespace slipstream::cuda {

inline constexpr int kWarp = 32;
inline constexpr int kSplitWarps = 8;  // kMaxParts
inline constexpr int kTileWarps = 8;
inline constexpr int kTileTokens = 8;  // tiles of 8 tokens a block
inline constexpr int kStages = 4;
inline constexpr int kSlabSteps = 4;
inline constexpr int kFragmentBytes = 256;  // of a step, 8 tokens
inline constexpr int kSumBytes = 32;        // of a block of 32 k, 8 tokens
inline constexpr int kSlabBytes = kSlabSteps * kTileTokens * kFragmentBytes;

/// Operands B of a lane, from global memory. kFew: of one tile with few tokens, those that are not there are not read.
template <bool kFew>
struct TokensInMemory {
    const char* fragments;  // of the block's first tile, the lane's
    const char* sums;       // likewise: tokens 2 (lane % 4) and the next
    int n_tiles;            // of the whole call
    bool there;             // the lane's column of the first tile is a token
    const char* slab;       // where fragments and sums of the slab begin
    const char* slab_sums;

    __device__ __forceinline__ void turn_to(int64_t number) {
        slab = fragments + number * (kSlabSteps * kFragmentBytes) * n_tiles;
        slab_sums = sums + number * (kSlabSteps / 2 * kSumBytes) * n_tiles;
    }
    __device__ __forceinline__ gpu::U32x2 fragment(int s, int j) const {
        if constexpr (kFew)
            if (!there) return gpu::U32x2{};
        return gpu::load_8(slab + s * n_tiles * kFragmentBytes + j * kFragmentBytes);
    }
    /// Of the slab's block of 32 number i.
    __device__ __forceinline__ gpu::U32x2 sum(int i, int j) const {
        return gpu::load_8(slab_sums + i * n_tiles * kSumBytes + j * kSumBytes);
    }
};

template <bool kFew>
__device__ __forceinline__ TokensInMemory<kFew> tokens_in_memory(const MatmulParams& p, int64_t tile, int lane) {
    TokensInMemory<kFew> out;
    out.fragments = out.slab = p.fragments + tile * kFragmentBytes + lane * 8;
    out.sums = out.slab_sums = p.sums + tile * kSumBytes + lane % 4 * 8;
    out.n_tiles = static_cast<int>(p.n_tiles);
    out.there = tile * 8 + lane / 4 < p.n_tokens;
    return out;
}

/// The same where fragments lie in shared memory.
struct TokensInShared {
    TokensInMemory<false> memory;  // for the sums
    gpu::SharedPtr<char> slab;
    int lane;

    __device__ __forceinline__ gpu::U32x2 fragment(int s, int j) const {
        return gpu::load_shared_8(slab + ((s * kTileTokens + j) * kFragmentBytes + lane * 8));
    }
    __device__ __forceinline__ gpu::U32x2 sum(int i, int j) const { return memory.sum(i, j); }
};

template <class W>
__device__ __forceinline__ void multiply_step(float (&acc)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    if constexpr (W::kHalf) {
        gpu::mma_f16_16816(acc, a, b);
    } else {
        gpu::mma_bf16_16816(acc, a, b);
    }
}

/// Slab `number` of a unit, of R groups, times NT tiles of tokens.
template <class W, int R, int NT, class Tokens>
__device__ __forceinline__ void multiply_slab(const typename W::Head (&head)[R], const typename W::Slab (&slab)[R],
                                              int number, int lane, const Tokens& tokens, float (&acc)[R][NT][4]) {
    SlabScales scales[R];
#pragma unroll
    for (int r = 0; r < R; ++r) W::slab_scales(head[r], number, lane, scales[r]);
#pragma unroll
    for (int run = 0; run < kSlabSteps / W::kRunSteps; ++run) {
        uint32_t a[R][W::kRunSteps][4];
#pragma unroll
        for (int r = 0; r < R; ++r)
#pragma unroll
            for (int s = 0; s < W::kRunSteps; ++s)
                W::operand(head[r], slab[r], number, run * W::kRunSteps + s, a[r][s]);
#pragma unroll
        for (int j = 0; j < NT; ++j) {
            gpu::U32x2 b[W::kRunSteps];
#pragma unroll
            for (int s = 0; s < W::kRunSteps; ++s) b[s] = tokens.fragment(run * W::kRunSteps + s, j);
            gpu::U32x2 sum{};
            if constexpr (W::kOffsets) sum = tokens.sum(run, j);
#pragma unroll
            for (int r = 0; r < R; ++r) {
                if constexpr (!W::kScaled) {
#pragma unroll
                    for (int s = 0; s < W::kRunSteps; ++s) multiply_step<W>(acc[r][j], a[r][s], b[s].x);
                } else {
                    float part[4] = {};
#pragma unroll
                    for (int s = 0; s < W::kRunSteps; ++s) multiply_step<W>(part, a[r][s], b[s].x);
#pragma unroll
                    for (int h = 0; h < 4; ++h) {
                        float& to = acc[r][j][h];
                        to = gpu::fma(part[h], scales[r].scale[run][h / 2], to);
                        if constexpr (W::kOffsets)
                            to = gpu::fma(__builtin_bit_cast(float, sum.x[h % 2]), scales[r].offset[run][h / 2], to);
                    }
                }
            }
        }
    }
}

/// What becomes of a reduced sum.
__device__ __forceinline__ void store_output(const MatmulParams& p, int64_t row, int64_t token, float sum) {
    if (row >= p.m || token >= p.n_tokens) return;
    if (p.factors != nullptr) sum *= p.factors[token];
    if (p.bias != nullptr) sum += p.bias[row];
    float& to = p.y[token * p.y_stride + row];
    to = p.store == MatmulStoreForm::Add ? to + sum : sum;
}

/// Group `index`, or the last one where there is none: what is computed of it is not stored.
__device__ __forceinline__ const char* group_at(const MatmulParams& p, int64_t index) {
    const int64_t last = (p.m + kGroupRows - 1) / kGroupRows - 1;
    return p.weights + (index < last ? index : last) * p.group_bytes;
}

/// What a warp holds of R groups ahead of its multiplications: slabs of A units, each loaded anew as soon
/// as it is used up, and the heads of this unit and the next.
template <class W, int R, int A>
struct WeightsAhead {
    typename W::Slab slabs[A][W::kSlabs][R];
    typename W::Head head[R];
    typename W::Head next[R];
    const char* groups[R];
    int64_t k;
    int64_t end;  // unit behind the last
    int lane;

    __device__ __forceinline__ void load_slabs(int ahead, int64_t unit, int number) {
        if (unit >= end) return;
#pragma unroll
        for (int r = 0; r < R; ++r) W::load_slab(slabs[ahead][number][r], groups[r], k, unit, number, lane);
    }
    __device__ __forceinline__ void start(int64_t begin) {
#pragma unroll
        for (int r = 0; r < R; ++r) W::load_head(next[r], groups[r], k, begin, lane);
#pragma unroll
        for (int ahead = 0; ahead < A; ++ahead)
#pragma unroll
            for (int number = 0; number < W::kSlabs; ++number) load_slabs(ahead, begin + ahead, number);
    }
    /// `head` becomes that of `unit`.
    __device__ __forceinline__ void turn_to(int64_t unit) {
#pragma unroll
        for (int r = 0; r < R; ++r) {
            head[r] = next[r];
            if (unit + 1 < end) W::load_head(next[r], groups[r], k, unit + 1, lane);
        }
    }
};

// Block: 32 * n_parts threads; grid: n_tiles / NT, ceil(groups / R): blocks of the same rows follow one
// another; shared: [n_parts][NT][4][32] floats.
template <class W, int R, int NT>
__global__ void __launch_bounds__(kSplitWarps* kWarp, W::kMinBlocks) matmul_split(MatmulParams p) {
    constexpr int A = NT < 4 ? W::kUnitsAhead : W::kUnitsAheadOfMany;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int part = static_cast<int>(threadIdx.x) / kWarp;
    const int64_t group = static_cast<int64_t>(blockIdx.y) * R;
    const int64_t tile = static_cast<int64_t>(blockIdx.x) * NT;
    const int64_t begin = part * p.n_units / p.n_parts;
    const int64_t end = (part + 1) * p.n_units / p.n_parts;
    auto tokens = tokens_in_memory<NT == 1>(p, tile, lane);
    WeightsAhead<W, R, A> weights = {};
#pragma unroll
    for (int r = 0; r < R; ++r) weights.groups[r] = group_at(p, group + r);
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
                multiply_slab<W, R, NT>(weights.head, weights.slabs[ahead][number], number, lane, tokens, acc);
                weights.load_slabs(ahead, u + ahead + A, number);
            }
        }
    }

    auto partial = gpu::dynamic_shared<float>(0);
    constexpr int kOutputs = NT * 128;  // of a group
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
            const int row = i % kGroupRows;  // neighbours write neighbouring rows
            const int column = i / kGroupRows;
            const int h = row / 8 * 2 + column % 2;
            const int at = (column / 8 * 4 + h) * kWarp + row % 8 * 4 + column % 8 / 2;
            float sum = partial[at];
            for (int other = 1; other < p.n_parts; ++other) sum += partial[other * kOutputs + at];
            store_output(p, (group + r) * kGroupRows + row, tile * 8 + column, sum);
        }
    }
}

/// Starts the copies of a slab of the block's tokens; nothing behind the last slab.
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

// Block: 256 threads; grid: n_tiles / 8, ceil(groups / 8); shared: kStages slabs.
template <class W>
__global__ void __launch_bounds__(kTileWarps* kWarp) matmul_tiles(MatmulParams p) {
    constexpr int A = W::kUnitsAheadOfMany;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int64_t group = static_cast<int64_t>(blockIdx.y) * kTileWarps + threadIdx.x / kWarp;
    const int64_t tile = static_cast<int64_t>(blockIdx.x) * kTileTokens;
    const int64_t n_slabs = p.n_units * W::kSlabs;
    TokensInShared tokens{tokens_in_memory<false>(p, tile, lane), gpu::dynamic_shared<char>(0), lane};

    for (int s = 0; s < kStages - 1; ++s) copy_slab(p, s, n_slabs, tile);
    WeightsAhead<W, 1, A> weights = {};
    weights.groups[0] = group_at(p, group);
    weights.k = p.k;
    weights.end = p.n_units;
    weights.lane = lane;
    weights.start(0);
    float total[kTileTokens][4] = {};
    float acc[1][kTileTokens][4] = {};
    int64_t part = 0;
    int64_t part_end = p.n_units / p.n_parts;
    for (int64_t u = 0; u < p.n_units; u += A) {
#pragma unroll
        for (int ahead = 0; ahead < A; ++ahead) {
            if (u + ahead >= p.n_units) break;
            weights.turn_to(u + ahead);
#pragma unroll
            for (int number = 0; number < W::kSlabs; ++number) {
                const int64_t slab = (u + ahead) * W::kSlabs + number;
                gpu::copy_async_wait<kStages - 2>();
                gpu::sync_threads();  // the slab is there, and nobody still reads the one before it
                copy_slab(p, slab + kStages - 1, n_slabs, tile);
                tokens.memory.turn_to(slab);
                tokens.slab = gpu::dynamic_shared<char>(static_cast<size_t>(slab % kStages) * kSlabBytes);
                multiply_slab<W, 1, kTileTokens>(weights.head, weights.slabs[ahead][number], number, lane, tokens, acc);
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
            part_end = (part + 1) * p.n_units / p.n_parts;
        }
    }
#pragma unroll
    for (int i = 0; i < kTileTokens * 4; ++i) {
        const int h = i % 4;
        store_output(p, group * kGroupRows + lane / 4 + h / 2 * 8, (tile + i / 4) * 8 + lane % 4 * 2 + h % 2,
                     total[i / 4][h]);
    }
}

template <class W, int R, int NT>
inline void start_split(const MatmulParams& p, void* stream) {
    const int64_t n_groups = (p.m + kGroupRows - 1) / kGroupRows;
    const dim3 grid(static_cast<unsigned>(p.n_tiles / NT), static_cast<unsigned>((n_groups + R - 1) / R));
    const auto n_parts = static_cast<unsigned>(p.n_parts);
    gpu::launch(matmul_split<W, R, NT>, grid, dim3(n_parts * kWarp), size_t{n_parts} * NT * 512, stream, p);
}

/// Any choice here gives the same bits. Few rows: more blocks of one group each, so that more of the card is busy.
template <class W>
inline void start_weights(const MatmulParams& p, void* stream) {
    constexpr int64_t kFewGroups = 192;  // estimated: below one block of two groups for each of a big card's processors
    constexpr int64_t kEnoughTiles = 64;  // estimated: blocks of matmul_tiles that outweigh fewer reads of tokens
    const int64_t n_groups = (p.m + kGroupRows - 1) / kGroupRows;
    const int64_t row_blocks = (n_groups + kTileWarps - 1) / kTileWarps;
    const int64_t token_blocks = (p.n_tiles + kTileTokens - 1) / kTileTokens;
    const bool whole = p.n_tiles % kTileTokens == 0;
    const bool many = p.n_tiles > kTileTokens && row_blocks * token_blocks >= kEnoughTiles;
    if (whole && (p.form == MatmulForm::Tiles || (p.form == MatmulForm::Chosen && many))) {
        const dim3 grid(static_cast<unsigned>(token_blocks), static_cast<unsigned>(row_blocks));
        gpu::launch(matmul_tiles<W>, grid, dim3(kTileWarps * kWarp), size_t{kStages} * kSlabBytes, stream, p);
        return;
    }
    if (p.n_tiles == 1)
        return n_groups < kFewGroups ? start_split<W, 1, 1>(p, stream) : start_split<W, 2, 1>(p, stream);
    if (p.n_tiles == 2) return start_split<W, 2, 2>(p, stream);
    // Eight tiles beside scales take more registers than there are; two blocks of four read the weights from L2 once
    // more.
    constexpr int kMost = W::kScaled ? 4 : 8;
    if (p.n_tiles == 4) return start_split<W, 2, 4>(p, stream);
    return start_split<W, 2, kMost>(p, stream);
}

}  // namespace slipstream::cuda
