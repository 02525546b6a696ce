// What the warps of the matmul kernels load ahead of their multiplications: weights, in registers or through a ring in
// shared memory, and tokens, one slab (64 k) ahead.
#pragma once

#include "kernels/cuda/matmul/matmul_operands.cuh"

namespace slipstream::cuda {

/// Weights that a warp has in registers ahead of its multiplications, of R row groups (16 rows each): the slabs (64 k)
/// of A units (1, 2 or 4 slabs each), each slab loaded again as soon as it is used, and the heads (scales) of the
/// current unit and the next.
template <class W, int R, int A>
struct WeightsAhead {
    typename W::Slab slabs[A][W::kSlabs][R];
    typename W::Head head[R];
    typename W::Head next[R];
    typename W::Units units[R];
    const char* groups[R];
    int64_t k;
    int64_t end;  // unit past the last one of the warp's part of K
    int lane;

    /// Loads slab `number` of `unit` into place `ahead`; nothing past the last unit.
    __device__ __forceinline__ void load_slabs(int ahead, int64_t unit, int number) {
        if (unit >= end) return;
#pragma unroll
        for (int r = 0; r < R; ++r) W::load_slab(slabs[ahead][number][r], groups[r], k, unit, number, lane);
    }
    /// Loads the head of unit `begin` and the slabs of A units from there on. Call it once, before turn_to(begin).
    __device__ __forceinline__ void start(int64_t begin) {
#pragma unroll
        for (int r = 0; r < R; ++r) W::load_head(next[r], groups[r], k, begin, lane);
#pragma unroll
        for (int ahead = 0; ahead < A; ++ahead)
#pragma unroll
            for (int number = 0; number < W::kSlabs; ++number) load_slabs(ahead, begin + ahead, number);
    }
    /// Makes `unit` the current unit, whose head is in `head`, and loads the next unit's head. The whole warp must call
    /// it.
    __device__ __forceinline__ void turn_to(int64_t unit) {
#pragma unroll
        for (int r = 0; r < R; ++r) {
            head[r] = next[r];
            if (unit + 1 < end) W::load_head(next[r], groups[r], k, unit + 1, lane);
            units[r] = W::units_of(head[r], lane);
        }
    }
};

/// Weights that a warp has under way, of R row groups (16 rows each): slabs in a ring of kSlots slots in shared memory,
/// copied asynchronously, 16 bytes per lane at a time. A lane reads only what it copied itself, so it waits only for
/// its own copies. The slot that is being filled is the one that was read a slab ago. Only for K that is whole units.
/// Heads go through registers, a unit ahead.
template <class W, int R>
struct WeightsInRing {
    // Slots of a warp's ring; each holds a slab (64 k). If a slab is only one piece of 16 bytes per lane there are
    // twice as many slots, since too few bytes would be under way otherwise.
    static constexpr int kSlots = W::kPieces * R == 1 ? 2 * W::kSlots : W::kSlots;
    static constexpr int kSlotBytes = W::kPieces * R * kPieceBytes;
    // Bytes of a warp's ring in shared memory.
    static constexpr int kBytes = kSlots * kSlotBytes;

    typename W::Head head[R];
    typename W::Head next[R];
    typename W::Units units[R];
    typename W::Kept kept[R];
    const char* groups[R];
    const char* codes[R];       // address of the current unit's codes, at the lane's bytes
    gpu::SharedPtr<char> ring;  // the warp's ring in shared memory, at the lane's bytes
    int64_t k;
    int64_t end;  // unit past the last one of the warp's part of K
    int lane;

    /// Begins the copy of slab `number` (64 k) of the unit that is `units_on` units after the current one into ring
    /// slot `slot`; an empty copy if `there` is false (that unit does not exist).
    __device__ __forceinline__ void copy_slab(int slot, int units_on, int number, bool there) {
        if (there) {
#pragma unroll
            for (int r = 0; r < R; ++r)
                W::copy_slab(ring + (slot * kSlotBytes + r * W::kPieces * kPieceBytes),
                             codes[r] + units_on * W::kUnitBytes, number);
        }
        gpu::copy_async_commit();
    }
    /// Loads the head of unit `begin` and begins the copies that fill all slots but one. Call turn_to(begin) next.
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
    /// Makes `unit` the current unit; it must be the one after the last turn_to(), or begin. The whole warp must call
    /// it.
    __device__ __forceinline__ void turn_to(int64_t unit) {
#pragma unroll
        for (int r = 0; r < R; ++r) {
            codes[r] += W::kUnitBytes;
            head[r] = next[r];
            if (unit + 1 < end) load_next(r, unit + 1);
            units[r] = W::units_of(head[r], lane);
        }
    }
    /// Loads the head of `unit`, the one after the current unit. If a unit contains its head, the address follows from
    /// that of the codes, so that no second address takes a register.
    __device__ __forceinline__ void load_next(int r, int64_t unit) {
        if constexpr (W::kUnitsWhole) {
            W::load_head(next[r], codes[r] + (W::kUnitBytes - lane * 16), k, 0, lane);
        } else {
            W::load_head(next[r], groups[r], k, unit, lane);
        }
    }
    /// Reads slab `number` (64 k) of `unit` from ring slot `slot` into registers, after waiting for its copy, and
    /// begins the copy that overwrites the slot of the slab before. Call it for each slab in ascending order.
    __device__ __forceinline__ void take(typename W::Slab (&slab)[R], int64_t unit, int slot, int number) {
        gpu::copy_async_wait<kSlots - 2>();
        const int later = number + kSlots - 1;
        copy_slab((slot + kSlots - 1) % kSlots, later / W::kSlabs, later % W::kSlabs, unit + later / W::kSlabs < end);
#pragma unroll
        for (int r = 0; r < R; ++r)
            W::read_slab(slab[r], ring + (slot * kSlotBytes + r * W::kPieces * kPieceBytes), number, kept[r]);
    }
};

/// Tokens (operands B of mma) for matmul_ring. If kAhead (few tokens), those of a slab of 64 k are loaded while the
/// slab before is multiplied; else they are read when needed. kTiles: as of TokensInMemory.
template <class W, int NT, bool kAhead, int kTiles>
struct TokensAhead {
    TokensInMemory<NT == 1, kTiles> memory;
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
    /// Loads slab `slab` (64 k) of the tiles of tokens from `tile` on. Then call turn() before each slab, this one
    /// included.
    __device__ __forceinline__ void start(const MatmulParams& p, int64_t tile, int lane, int64_t slab) {
        memory = tokens_in_memory<NT == 1, kTiles>(p, tile, lane);
        memory.turn_to(slab);
        load();
    }
    /// Makes the slab that was loaded last the current one. `more`: another slab follows, which is loaded now.
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
template <class W, int NT, int kTiles>
struct TokensAhead<W, NT, false, kTiles> {
    TokensInMemory<false> memory;

    __device__ __forceinline__ void start(const MatmulParams& p, int64_t tile, int lane, int64_t slab) {
        memory = tokens_in_memory<false>(p, tile, lane);
        memory.turn_to(slab - 1);
    }
    __device__ __forceinline__ void turn(bool) { memory.step_on(); }
    __device__ __forceinline__ gpu::U32x2 fragment(int s, int j) const { return memory.fragment(s, j); }
    __device__ __forceinline__ gpu::U32x2 sum(int i, int j) const { return memory.sum(i, j); }
};

}  // namespace slipstream::cuda
