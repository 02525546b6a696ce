// Chooses the matmul kernel of a launch and its grid. No choice here changes a bit.
#pragma once

#include "kernels/cuda/matmul/matmul_kernels.cuh"

namespace slipstream::cuda {

/// Returns the number of thread blocks along the rows of all matrices, each with `groups_a_block` row groups of 16
/// rows, and stores the first thread block of each matrix in `p`.
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
    } else {  // one launch per matrix: for several there are not enough registers
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
    constexpr int kBytesOfLast = WeightsInRing<WOfLast, 1>::kBytes;
    constexpr int kMostBytes = [] {
        if constexpr (W::kPieces > 0)
            return WeightsInRing<W, 1>::kBytes > kBytesOfLast ? WeightsInRing<W, 1>::kBytes : kBytesOfLast;
        return kBytesOfLast;
    }();
    // The parts of K are added in this shared memory, in 512 bytes per warp.
    static_assert(kMostBytes >= 512);
    const auto n_parts = static_cast<unsigned>(p.n_parts);
    const dim3 grid(static_cast<unsigned>(p.n_tiles), static_cast<unsigned>(deal_blocks(params, 1)));
    gpu::launch(matmul_mixed<W, WOfLast>, grid, dim3(n_parts * kWarp), size_t{n_parts} * kMostBytes, stream, params);
}

/// Launches the kernel for few tokens. If there are few rows, thread blocks have one row group each, so that more of
/// the GPU is busy.
template <class W, bool kRing>
inline void start_few(const JointParams& p, void* stream) {
    if (p.all.n_tiles == 1) {
        int64_t n_groups = groups_of(p.all.matrix);
        for (int i = 0; i < p.n_more; ++i) n_groups += groups_of(p.more[i]);
        // Estimated: two row groups per thread block if there are at least two row groups for each multiprocessor.
        if constexpr (kRing ? W::kRingGroups == 2 : true)
            if (n_groups >= 2 * static_cast<int64_t>(p.n_multiprocessors) && (W::kPieces > 0 || p.n_more == 0))
                return start_split<W, 2, 1, kRing>(p, stream);
        return start_split<W, 1, 1, kRing>(p, stream);
    }
    if (p.all.n_tiles == 2) return start_split<W, 2, 2, kRing>(p, stream);
    // Most tiles of 8 tokens in a thread block. Eight tiles take more registers than there are if the type has scales;
    // then two thread blocks of four tiles read the weights once more, from L2.
    constexpr int kMost = W::kScaled ? 4 : 8;
    // Whether four and more tiles of tokens use a ring. With units of 256 they would spill registers on sm_120; with
    // one row group per thread block, tokens would be read twice as often from L2.
    constexpr bool kRingOfMany = kRing && W::kSlabs < 4;
    if (p.all.n_tiles == 4) return start_split<W, 2, 4, kRingOfMany>(p, stream);
    return start_split<W, 2, kMost, kRingOfMany>(p, stream);
}

/// Launches the matmul kernels for weights of reader W on `stream`. Any choice of kernel gives the same bits.
template <class W>
inline void start_weights(JointParams p, void* stream) {
    const int64_t n_tiles = p.all.n_tiles;
    const int64_t row_blocks = deal_blocks(p, kTileWarps);
    const int64_t token_blocks = (n_tiles + kTileTokens - 1) / kTileTokens;
    const bool whole = n_tiles % kTileTokens == 0;
    // matmul_tiles reads tokens less often, but has fewer thread blocks. Estimated: it pays if they fill at least three
    // quarters of the GPU's multiprocessors.
    const bool many =
        n_tiles > kTileTokens && 4 * row_blocks * token_blocks >= 3 * static_cast<int64_t>(p.n_multiprocessors);
    if (whole && (p.form == MatmulForm::Tiles || (p.form == MatmulForm::Chosen && many))) {
        const dim3 grid(static_cast<unsigned>(token_blocks), static_cast<unsigned>(row_blocks));
        gpu::launch(matmul_tiles<W>, grid, dim3(kTileWarps * kWarp), size_t{kStages} * kSlabBytes, stream, p);
        return;
    }
    if constexpr (W::kPieces > 0)  // a ring holds whole units only
        if (p.form != MatmulForm::SplitRegisters && p.all.k == p.all.n_units * (W::kSlabs * kSlabSteps * kStepK))
            return start_few<W, true>(p, stream);
    start_few<W, false>(p, stream);
}

/// Launches the kernel of tiles of tokens for weights of reader W on `stream`.
template <class W>
inline void start_weights(const GroupParams& params, void* stream) {
    const MatmulParams& p = params.all;
    int64_t most_groups = 0;
    for (int i = 0; i < params.n_tiles; ++i) {
        const int64_t n_groups = (int64_t{params.tiles[i].m} + kGroupRows - 1) / kGroupRows;
        most_groups = n_groups > most_groups ? n_groups : most_groups;
    }
    const auto n_parts = static_cast<unsigned>(p.n_parts);
    const size_t sum_bytes = size_t{n_parts} * 512;
    const auto grid = [&](int groups_a_block) {
        return dim3(static_cast<unsigned>((most_groups + groups_a_block - 1) / groups_a_block),
                    static_cast<unsigned>(params.n_tiles));
    };
    if constexpr (W::kPieces > 0) {
        if (params.form != MatmulForm::SplitRegisters && p.k == p.n_units * (W::kSlabs * kSlabSteps * kStepK)) {
            const size_t ring_bytes = size_t{n_parts} * WeightsInRing<W, W::kRingGroups>::kBytes;
            gpu::launch(matmul_ring_tiles<W, W::kRingGroups>, grid(W::kRingGroups), dim3(n_parts * kWarp),
                        ring_bytes > sum_bytes ? ring_bytes : sum_bytes, stream, params);
            return;
        }
    }
    gpu::launch(matmul_split_tiles<W>, grid(1), dim3(n_parts * kWarp), sum_bytes, stream, params);
}

}  // namespace slipstream::cuda
