// The two matmul kernels over fragments; weights are operand A, tokens operand B. Both reduce an output alike: K is cut
// into n_parts by its length alone; a part is one chain from zero, units ascending; parts are added in ascending order.
// Within a unit, types without scales add each step to the chain by mma; the others sum a run of steps that shares a
// scale from zero, then take acc = fma(run, scale, acc), then acc = fma(sum of activations, offset, acc).
//
// matmul_ring: few tokens, bound by the weights' bytes. A block has R groups of 16 rows, a warp one part of K: weights
// go by asynchronous copies through a ring in shared memory, 2, 3 or 7 slabs ahead, each lane for itself; tokens come
// from L1 and L2, a slab ahead where they are few.
// matmul_split: the form before: weights go from memory to registers, W::kUnitsAhead units ahead. For K that ends
// inside a unit, types without a ring, and comparison (MatmulForm::SplitRegisters). matmul_tiles: many tokens. A block
// has 8 groups, a warp each, and 64 tokens; parts one after another; the block's tokens pass through shared memory in
// slabs of 64 k, kStages deep.
//
// A launch may have several matrices, whose blocks follow one another: a block has rows of one. For up to 8 tokens the
// last one may be of another type (matmul_mixed.cu).
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
/// kTiles: of the whole call, where that is known to the compiler; else 0.
template <bool kFew, int kTiles = 0>
struct TokensInMemory {
    const char* fragments;  // of the block's first tile, the lane's
    const char* sums;       // likewise: tokens 2 (lane % 4) and the next
    int n_tiles;            // of the whole call
    bool there;             // the lane's column of the first tile is a token
    const char* slab;       // where fragments and sums of the slab begin
    const char* slab_sums;

    __device__ __forceinline__ int tiles() const { return kTiles > 0 ? kTiles : n_tiles; }
    __device__ __forceinline__ void turn_to(int64_t number) {
        slab = fragments + number * (kSlabSteps * kFragmentBytes) * tiles();
        slab_sums = sums + number * (kSlabSteps / 2 * kSumBytes) * tiles();
    }
    /// From the slab that was turned to on to the next.
    __device__ __forceinline__ void step_on() {
        slab += kSlabSteps * kFragmentBytes * tiles();
        slab_sums += kSlabSteps / 2 * kSumBytes * tiles();
    }
    __device__ __forceinline__ gpu::U32x2 fragment(int s, int j) const {
        if constexpr (kFew)
            if (!there) return gpu::U32x2{};
        return gpu::load_8(slab + s * tiles() * kFragmentBytes + j * kFragmentBytes);
    }
    /// Of the slab's block of 32 number i.
    __device__ __forceinline__ gpu::U32x2 sum(int i, int j) const {
        return gpu::load_8(slab_sums + i * tiles() * kSumBytes + j * kSumBytes);
    }
};

template <bool kFew, int kTiles = 0>
__device__ __forceinline__ TokensInMemory<kFew, kTiles> tokens_in_memory(const MatmulParams& p, int64_t tile,
                                                                         int lane) {
    TokensInMemory<kFew, kTiles> out;
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
__device__ __forceinline__ void multiply_slab(const typename W::Head (&head)[R], const typename W::Units (&units)[R],
                                              const typename W::Slab (&slab)[R], int number, int lane,
                                              const Tokens& tokens, float (&acc)[R][NT][4]) {
    SlabScales scales[R];
#pragma unroll
    for (int r = 0; r < R; ++r) W::slab_scales(head[r], units[r], number, lane, NT >= 4, scales[r]);
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

__host__ __device__ __forceinline__ int64_t groups_of(const MatrixParams& matrix) {
    return (matrix.m + kGroupRows - 1) / kGroupRows;
}

/// What a block's rows are of, and the first of its groups there.
struct BlockRows {
    MatrixParams matrix;
    int64_t group;
};
__device__ __forceinline__ BlockRows block_rows(const MatmulParams& p, int groups_a_block) {
    return {p.matrix, static_cast<int64_t>(blockIdx.y) * groups_a_block};
}
__device__ __forceinline__ BlockRows block_rows(const JointParams& p, int groups_a_block) {
    const int block = static_cast<int>(gpu::block_y());
    int index = 0;
#pragma unroll
    for (int i = 0; i < kMostMatrices - 1; ++i) index += block >= p.first_block[i] ? 1 : 0;
    if (index == 0) return {p.all.matrix, int64_t{block} * groups_a_block};
    return {p.more[index - 1], int64_t{block - p.first_block[index - 1]} * groups_a_block};
}
__device__ __forceinline__ const MatmulParams& common_of(const MatmulParams& p) {
    return p;
}
__device__ __forceinline__ const MatmulParams& common_of(const JointParams& p) {
    return p.all;
}

/// What becomes of a reduced sum; `bias` counts where there is one.
__device__ __forceinline__ void store_sum(const MatmulParams& p, const MatrixParams& matrix, int64_t row, int64_t token,
                                          float sum, float bias) {
    if (row >= matrix.m || token >= p.n_tokens) return;
    if (p.factors != nullptr) sum *= p.factors[token];
    if (matrix.bias != nullptr) sum += bias;
    float& to = matrix.y[token * matrix.y_stride + row];
    to = p.store == MatmulStoreForm::Add ? to + sum : sum;
}
__device__ __forceinline__ float bias_of(const MatrixParams& matrix, int64_t row) {
    return matrix.bias != nullptr && row < matrix.m ? matrix.bias[row] : 0.0F;
}

/// Where part `part` of K begins, in units; of part n_parts: the end. 32 bits, since a division of 64 is a hundred
/// instructions; K has fewer than 2^28 units.
__device__ __forceinline__ int64_t part_begin(const MatmulParams& p, int part) {
    return static_cast<uint32_t>(part) * static_cast<uint32_t>(p.n_units) / static_cast<uint32_t>(p.n_parts);
}

/// Group `index`, or the last one where there is none: what is computed of it is not stored.
__device__ __forceinline__ const char* group_at(const MatmulParams& p, const MatrixParams& matrix, int64_t index) {
    const int64_t last = groups_of(matrix) - 1;
    return matrix.weights + (index < last ? index : last) * p.group_bytes;
}

/// What a warp holds of R groups ahead of its multiplications: slabs of A units, each loaded anew as soon
/// as it is used up, and the heads of this unit and the next.
template <class W, int R, int A>
struct WeightsAhead {
    typename W::Slab slabs[A][W::kSlabs][R];
    typename W::Head head[R];
    typename W::Head next[R];
    typename W::Units units[R];
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
            units[r] = W::units_of(head[r], lane);
        }
    }
};

/// What a warp has under way of R groups: slabs in a ring of kSlots in shared memory, each lane's 16 bytes at a time. A
/// lane reads only what it copied itself, so waiting for its own copies is enough; the slot that is filled is the one
/// that was read a slab ago. Whole units only. Heads come by registers, a unit ahead.
template <class W, int R>
struct WeightsInRing {
    // Where a slot has one piece there are twice as many, or too little would be under way.
    static constexpr int kSlots = W::kPieces * R == 1 ? 2 * W::kSlots : W::kSlots;
    static constexpr int kSlotBytes = W::kPieces * R * kPieceBytes;
    static constexpr int kBytes = kSlots * kSlotBytes;  // of a warp

    typename W::Head head[R];
    typename W::Head next[R];
    typename W::Units units[R];
    typename W::Kept kept[R];
    const char* groups[R];
    const char* codes[R];       // the lane's, of the unit that was turned to
    gpu::SharedPtr<char> ring;  // the lane's
    int64_t k;
    int64_t end;  // unit behind the last
    int lane;

    /// Of the unit `units_on` behind the one turned to.
    __device__ __forceinline__ void copy_slab(int slot, int units_on, int number, bool there) {
        if (there) {
#pragma unroll
            for (int r = 0; r < R; ++r)
                W::copy_slab(ring + (slot * kSlotBytes + r * W::kPieces * kPieceBytes),
                             codes[r] + units_on * W::kUnitBytes, number);
        }
        gpu::copy_async_commit();
    }
    __device__ __forceinline__ void start(int64_t begin) {
#pragma unroll
        for (int r = 0; r < R; ++r) {
            W::load_head(next[r], groups[r], k, begin, lane);
            codes[r] = groups[r] + begin * W::kUnitBytes + lane * 16;
        }
#pragma unroll
        for (int s = 0; s < kSlots - 1; ++s) copy_slab(s, s / W::kSlabs, s % W::kSlabs, begin + s / W::kSlabs < end);
#pragma unroll
        for (int r = 0; r < R; ++r) codes[r] -= W::kUnitBytes;
    }
    /// `head` becomes that of `unit`, the one behind the last that was turned to.
    __device__ __forceinline__ void turn_to(int64_t unit) {
#pragma unroll
        for (int r = 0; r < R; ++r) {
            codes[r] += W::kUnitBytes;
            head[r] = next[r];
            if (unit + 1 < end) load_next(r, unit + 1);
            units[r] = W::units_of(head[r], lane);
        }
    }
    /// The head of the unit behind the one that was turned to. Where it lies there, no second address is kept.
    __device__ __forceinline__ void load_next(int r, int64_t unit) {
        if constexpr (W::kUnitsWhole) {
            W::load_head(next[r], codes[r] + (W::kUnitBytes - lane * 16), k, 0, lane);
        } else {
            W::load_head(next[r], groups[r], k, unit, lane);
        }
    }
    /// Slab `number` of `unit`, which lies in slot `slot`; the copy that takes the place of the slab before is begun.
    __device__ __forceinline__ void take(typename W::Slab (&slab)[R], int64_t unit, int slot, int number) {
        gpu::copy_async_wait<kSlots - 2>();
        const int later = number + kSlots - 1;
        copy_slab((slot + kSlots - 1) % kSlots, later / W::kSlabs, later % W::kSlabs, unit + later / W::kSlabs < end);
#pragma unroll
        for (int r = 0; r < R; ++r)
            W::read_slab(slab[r], ring + (slot * kSlotBytes + r * W::kPieces * kPieceBytes), number, kept[r]);
    }
};

/// Operands B of the split kernels: where there are few, those of a slab are loaded while the one before is multiplied.
template <class W, int NT, bool kAhead>
struct TokensAhead {
    TokensInMemory<NT == 1, NT> memory;
    gpu::U32x2 next[kSlabSteps][NT];
    gpu::U32x2 next_sums[kSlabSteps / 2][NT];
    gpu::U32x2 now[kSlabSteps][NT];
    gpu::U32x2 now_sums[kSlabSteps / 2][NT];

    __device__ __forceinline__ void load() {
#pragma unroll
        for (int j = 0; j < NT; ++j) {
#pragma unroll
            for (int s = 0; s < kSlabSteps; ++s) next[s][j] = memory.fragment(s, j);
            if constexpr (W::kOffsets)
#pragma unroll
                for (int i = 0; i < kSlabSteps / 2; ++i) next_sums[i][j] = memory.sum(i, j);
        }
    }
    __device__ __forceinline__ void start(const MatmulParams& p, int64_t tile, int lane, int64_t slab) {
        memory = tokens_in_memory<NT == 1, NT>(p, tile, lane);
        memory.turn_to(slab);
        load();
    }
    /// To the first slab, later to the one behind; `more`: another one follows.
    __device__ __forceinline__ void turn(bool more) {
#pragma unroll
        for (int j = 0; j < NT; ++j) {
#pragma unroll
            for (int s = 0; s < kSlabSteps; ++s) now[s][j] = next[s][j];
            if constexpr (W::kOffsets)
#pragma unroll
                for (int i = 0; i < kSlabSteps / 2; ++i) now_sums[i][j] = next_sums[i][j];
        }
        memory.step_on();
        if (more) load();
    }
    __device__ __forceinline__ gpu::U32x2 fragment(int s, int j) const {
        return now[s][j];
    }
    __device__ __forceinline__ gpu::U32x2 sum(int i, int j) const {
        return now_sums[i][j];
    }
};
template <class W, int NT>
struct TokensAhead<W, NT, false> {
    TokensInMemory<false> memory;

    __device__ __forceinline__ void start(const MatmulParams& p, int64_t tile, int lane, int64_t slab) {
        memory = tokens_in_memory<false>(p, tile, lane);
        memory.turn_to(slab - 1);
    }
    __device__ __forceinline__ void turn(bool) { memory.step_on(); }
    __device__ __forceinline__ gpu::U32x2 fragment(int s, int j) const { return memory.fragment(s, j); }
    __device__ __forceinline__ gpu::U32x2 sum(int i, int j) const { return memory.sum(i, j); }
};

/// Parts of K are added in ascending order through shared memory [n_parts][NT][4][32], a group at a time, and stored.
template <int R, int NT>
__device__ __forceinline__ void add_parts(const MatmulParams& p, const BlockRows& rows, const float (&acc)[R][NT][4],
                                          int part, int lane, int64_t tile) {
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
            const int64_t out = (rows.group + r) * kGroupRows + row;
            store_sum(p, rows.matrix, out, tile * 8 + column, sum, bias_of(rows.matrix, out));
        }
    }
}

/// Blocks on a processor that matmul_split is compiled for: of types whose runs are a step, or have no scale,
/// W::kMinBlocks is for 8 tokens alone (0 or 1 decides whether ptxas spills 8 to 56 bytes to fit two; read off
/// nvcc 13.0).
template <class W, int NT>
inline constexpr int kSplitBlocks = NT == 1 || W::kRunSteps == 2 ? W::kMinBlocks : 0;

// Block: 32 * n_parts threads; grid: n_tiles / NT, ceil(groups / R): blocks of the same rows follow one
// another; shared: [n_parts][NT][4][32] floats.
template <class W, int R, int NT, class Params>
__global__ void __launch_bounds__(kSplitWarps* kWarp, kSplitBlocks<W, NT>) matmul_split(Params params) {
    const MatmulParams& p = common_of(params);
    constexpr int A = NT < 4 ? W::kUnitsAhead : W::kUnitsAheadOfMany;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int part = static_cast<int>(threadIdx.x) / kWarp;
    const BlockRows rows = block_rows(params, R);
    const int64_t tile = static_cast<int64_t>(blockIdx.x) * NT;
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

    add_parts<R, NT>(p, block_rows(params, R), acc, part, lane, tile);
}

/// The same with weights through shared memory, of the block's rows in whichever matrix of `params`; `p` is what the
/// matrices of this type have in common. Shared: rings [n_parts], then the same bytes as above.
template <class W, int R, int NT>
__device__ __forceinline__ void multiply_by_ring(const MatmulParams& p, const JointParams& params) {
    constexpr int A = WeightsInRing<W, R>::kSlots / W::kSlabs;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int part = static_cast<int>(threadIdx.x) / kWarp;
    const BlockRows rows = block_rows(params, R);
    const int64_t tile = static_cast<int64_t>(blockIdx.x) * NT;
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
    TokensAhead<W, NT, (NT <= 2)> tokens;
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
    add_parts<R, NT>(p, block_rows(params, R), acc, part, lane, tile);
}

template <class W, int R, int NT>
__global__ void __launch_bounds__(kSplitWarps* kWarp, NT == 1 || (NT == 2 && !W::kScaled) ? 2 : 1)
    matmul_ring(JointParams params) {
    multiply_by_ring<W, R, NT>(params.all, params);
}

/// 8 tokens, the last matrix of another type, with units as long.
template <class W, class WOfLast>
__global__ void __launch_bounds__(kSplitWarps* kWarp, 2) matmul_ring_mixed(JointParams params) {
    static_assert(W::kSlabs == WOfLast::kSlabs);
    if (static_cast<int>(blockIdx.y) < params.first_block[params.n_more - 1])
        return multiply_by_ring<W, 1, 1>(params.all, params);
    MatmulParams of_last = params.all;
    of_last.group_bytes = params.last_group_bytes;
    multiply_by_ring<WOfLast, 1, 1>(of_last, params);
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
                gpu::sync_threads();  // the slab is there, and nobody still reads the one before it
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

/// Rows of blocks of `groups_a_block` groups for all matrices; where each begins goes to `p`.
inline int64_t deal_blocks(JointParams& p, int groups_a_block) {
    const auto blocks_of = [&](const MatrixParams& matrix) {
        return (groups_of(matrix) + groups_a_block - 1) / groups_a_block;
    };
    int64_t n_blocks = blocks_of(p.all.matrix);
    for (int i = 0; i < kMostMatrices - 1; ++i) {
        p.first_block[i] = i < p.n_more ? static_cast<int32_t>(n_blocks) : INT32_MAX;
        if (i < p.n_more) n_blocks += blocks_of(p.more[i]);
    }
    return n_blocks;
}

template <class W, int R, int NT, bool kRing>
inline void start_split(JointParams params, void* stream) {
    MatmulParams& p = params.all;
    const auto grid = [&](int64_t n_blocks) {
        return dim3(static_cast<unsigned>(p.n_tiles / NT), static_cast<unsigned>(n_blocks));
    };
    const auto n_parts = static_cast<unsigned>(p.n_parts);
    const size_t sum_bytes = size_t{n_parts} * NT * 512;
    if constexpr (kRing) {
        const size_t ring_bytes = size_t{n_parts} * WeightsInRing<W, R>::kBytes;
        gpu::launch(matmul_ring<W, R, NT>, grid(deal_blocks(params, R)), dim3(n_parts * kWarp),
                    ring_bytes > sum_bytes ? ring_bytes : sum_bytes, stream, params);
    } else if constexpr (W::kPieces == 0 && NT == 1 && R == 1) {
        gpu::launch(matmul_split<W, R, NT, JointParams>, grid(deal_blocks(params, R)), dim3(n_parts * kWarp), sum_bytes,
                    stream, params);
    } else {  // a matrix a launch: for several there is no register to spare
        for (int i = 0; i <= params.n_more; ++i) {
            if (i > 0) p.matrix = params.more[i - 1];
            if (p.matrix.m == 0) continue;
            gpu::launch(matmul_split<W, R, NT, MatmulParams>, grid((groups_of(p.matrix) + R - 1) / R),
                        dim3(n_parts * kWarp), sum_bytes, stream, p);
        }
    }
}

template <class W, class WOfLast>
inline void start_mixed(JointParams params, void* stream) {
    const MatmulParams& p = params.all;
    constexpr int kMostBytes = WeightsInRing<W, 1>::kBytes > WeightsInRing<WOfLast, 1>::kBytes
                                   ? WeightsInRing<W, 1>::kBytes
                                   : WeightsInRing<WOfLast, 1>::kBytes;
    static_assert(kMostBytes >= 512);  // what parts of K are added in
    const auto n_parts = static_cast<unsigned>(p.n_parts);
    const dim3 grid(static_cast<unsigned>(p.n_tiles), static_cast<unsigned>(deal_blocks(params, 1)));
    gpu::launch(matmul_ring_mixed<W, WOfLast>, grid, dim3(n_parts * kWarp), size_t{n_parts} * kMostBytes, stream,
                params);
}

/// Few tokens. Few rows: more blocks of one group each, so that more of the card is busy.
template <class W, bool kRing>
inline void start_few(const JointParams& p, void* stream) {
    if (p.all.n_tiles == 1) {
        int64_t n_groups = groups_of(p.all.matrix);
        for (int i = 0; i < p.n_more; ++i) n_groups += groups_of(p.more[i]);
        // Estimated: two groups a block where there are two blocks for each processor all the same.
        if constexpr (kRing ? W::kRingGroups == 2 : true)
            if (n_groups >= 2 * static_cast<int64_t>(p.n_multiprocessors) && (W::kPieces > 0 || p.n_more == 0))
                return start_split<W, 2, 1, kRing>(p, stream);
        return start_split<W, 1, 1, kRing>(p, stream);
    }
    if (p.all.n_tiles == 2) return start_split<W, 2, 2, kRing>(p, stream);
    // Eight tiles beside scales take more registers than there are; two blocks of four read the weights from L2 once
    // more.
    constexpr int kMost = W::kScaled ? 4 : 8;
    // Units of 256 beside four tiles and a ring spill on sm_120; with one group a block tokens would be read twice as
    // often from L2.
    constexpr bool kRingOfMany = kRing && W::kSlabs < 4;
    if (p.all.n_tiles == 4) return start_split<W, 2, 4, kRingOfMany>(p, stream);
    return start_split<W, 2, kMost, kRingOfMany>(p, stream);
}

/// Any choice here gives the same bits.
template <class W>
inline void start_weights(JointParams p, void* stream) {
    const int64_t n_tiles = p.all.n_tiles;
    const int64_t row_blocks = deal_blocks(p, kTileWarps);
    const int64_t token_blocks = (n_tiles + kTileTokens - 1) / kTileTokens;
    const bool whole = n_tiles % kTileTokens == 0;
    // Estimated: blocks of matmul_tiles on three quarters of the card's processors outweigh fewer reads of tokens.
    const bool many =
        n_tiles > kTileTokens && 4 * row_blocks * token_blocks >= 3 * static_cast<int64_t>(p.n_multiprocessors);
    if (whole && (p.form == MatmulForm::Tiles || (p.form == MatmulForm::Chosen && many))) {
        const dim3 grid(static_cast<unsigned>(token_blocks), static_cast<unsigned>(row_blocks));
        gpu::launch(matmul_tiles<W>, grid, dim3(kTileWarps * kWarp), size_t{kStages} * kSlabBytes, stream, p);
        return;
    }
    if constexpr (W::kPieces > 0)  // a ring holds whole units
        if (p.form != MatmulForm::SplitRegisters && p.all.k == p.all.n_units * (W::kSlabs * kSlabSteps * kStepK))
            return start_few<W, true>(p, stream);
    start_few<W, false>(p, stream);
}

}  // namespace slipstream::cuda
