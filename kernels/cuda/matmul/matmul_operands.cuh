// The parts of a multiplication by a slab of 64 k: operands B from global or shared memory, products by tensor cores,
// the rows of a thread block, and where its sums go.
#pragma once

#include "gpu.cuh"
#include "kernels/cuda/matmul/matmul_params.h"
#include "kernels/cuda/matmul/matmul_weights_k.cuh"

namespace slipstream::cuda {

inline constexpr int kWarp = 32;
/// Most warps of a thread block of the split kernels, one for each part of K. Must be kMaxParts.
inline constexpr int kSplitWarps = 8;
/// Warps of a thread block of matmul_tiles, one for each of its row groups.
inline constexpr int kTileWarps = 8;
/// Tiles of 8 tokens of a thread block of matmul_tiles: 64 tokens.
inline constexpr int kTileTokens = 8;
/// Slabs of tokens that matmul_tiles has in shared memory: one in use, the others being copied.
inline constexpr int kStages = 4;
/// Steps of 16 k in a slab of 64 k.
inline constexpr int kSlabSteps = 4;
/// Bytes of the operands B of a step of 16 k for a tile of 8 tokens, two bytes each.
inline constexpr int kFragmentBytes = 256;
/// Bytes of the sums of a block of 32 k for a tile of 8 tokens: a float each.
inline constexpr int kSumBytes = 32;
inline constexpr int kSlabBytes = kSlabSteps * kTileTokens * kFragmentBytes;

/// Operands B (tokens) of a lane, from global memory. kFew: there is one tile with few tokens, and columns past the
/// last token are not read. kTiles: number of tiles of the whole call, if the compiler knows it; else 0.
template <bool kFew, int kTiles = 0>
struct TokensInMemory {
    const char* fragments;  // operands B of the thread block's first tile, at the lane's bytes
    const char* sums;       // sums of the thread block's first tile, at tokens 2 (lane % 4) and the next
    int n_tiles;            // tiles of 8 tokens in the whole call
    bool there;             // whether the lane's column of the first tile is a token
    const char* slab;       // start of the fragments of the current slab
    const char* slab_sums;  // start of the sums of the current slab

    __device__ __forceinline__ int tiles() const { return kTiles > 0 ? kTiles : n_tiles; }
    /// Makes slab `number` of the tokens (64 k, counted from 0) the current one.
    __device__ __forceinline__ void turn_to(int64_t number) {
        slab = fragments + number * (kSlabSteps * kFragmentBytes) * tiles();
        slab_sums = sums + number * (kSlabSteps / 2 * kSumBytes) * tiles();
    }
    /// Makes the next slab of the tokens the current one.
    __device__ __forceinline__ void step_on() {
        slab += kSlabSteps * kFragmentBytes * tiles();
        slab_sums += kSlabSteps / 2 * kSumBytes * tiles();
    }
    /// Returns operand B of step `s` of the current slab for tile `j` of the thread block.
    __device__ __forceinline__ gpu::U32x2 fragment(int s, int j) const {
        if constexpr (kFew)
            if (!there) return gpu::U32x2{};
        return gpu::load_8(slab + s * tiles() * kFragmentBytes + j * kFragmentBytes);
    }
    /// Returns the sums of block i of 32 k of the current slab for tile `j`: two tokens.
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

/// Operands B of a lane, with fragments from shared memory.
struct TokensInShared {
    TokensInMemory<false> memory;  // reads the sums
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

/// Multiplies slab `number` (64 k) of a unit, of R row groups of 16 rows, with NT tiles of 8 tokens, and adds the
/// products to `acc`. The whole warp must call it.
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

/// The matrix that the rows of a thread block belong to, and the first of its row groups in it.
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
__device__ __forceinline__ BlockRows block_rows(const GroupParams& p, int groups_a_block) {
    const MatmulGroupTile& tile = p.tiles[gpu::block_y()];
    return {{static_cast<const char*>(tile.weights), tile.m, tile.y, tile.y_stride, tile.bias},
            static_cast<int64_t>(blockIdx.x) * groups_a_block};
}

/// Returns the first of the NT tiles of 8 tokens of the thread block.
template <int NT, class Params>
__device__ __forceinline__ int64_t first_tile(const Params& /*params*/) {
    return static_cast<int64_t>(blockIdx.x) * NT;
}
template <int NT>
__device__ __forceinline__ int64_t first_tile(const GroupParams& p) {
    static_assert(NT == 1);
    return p.tiles[blockIdx.y].first_token / 8;
}

/// The tokens whose outputs a thread block stores.
struct AllTokens {
    __device__ __forceinline__ bool has(int64_t /*token*/) const { return true; }
};
struct SomeTokens {
    int32_t first;
    int32_t n;
    __device__ __forceinline__ bool has(int64_t token) const { return token >= first && token < first + n; }
};
template <class Params>
__device__ __forceinline__ AllTokens stored_tokens(const Params& /*params*/) {
    return {};
}
__device__ __forceinline__ SomeTokens stored_tokens(const GroupParams& p) {
    const MatmulGroupTile& tile = p.tiles[gpu::block_y()];
    return {tile.first_token, tile.n_tokens};
}

__device__ __forceinline__ const MatmulParams& common_of(const MatmulParams& p) {
    return p;
}
__device__ __forceinline__ const MatmulParams& common_of(const JointParams& p) {
    return p.all;
}
__device__ __forceinline__ const MatmulParams& common_of(const GroupParams& p) {
    return p.all;
}

/// Stores a reduced sum as the output of `row` and `token`, if both exist; `bias` is added if the matrix has one.
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

/// Returns the first unit of part `part` of K; for part n_parts: the end. 32-bit arithmetic, since a 64-bit division
/// takes a hundred instructions; K has fewer than 2^28 units.
__device__ __forceinline__ int64_t part_begin(const MatmulParams& p, int part) {
    return static_cast<uint32_t>(part) * static_cast<uint32_t>(p.n_units) / static_cast<uint32_t>(p.n_parts);
}

/// Returns the address of row group `index`, or of the last one if there is no such group: what is computed for it must
/// not be stored.
__device__ __forceinline__ const char* group_at(const MatmulParams& p, const MatrixParams& matrix, int64_t index) {
    const int64_t last = groups_of(matrix) - 1;
    return matrix.weights + (index < last ? index : last) * p.group_bytes;
}

}  // namespace slipstream::cuda
