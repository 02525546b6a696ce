// What the warps of the matmul kernels have under way ahead of their multiplications: weights in registers or through a
// ring in shared memory, tokens a slab ahead.
#pragma once

#include "kernels/cuda/matmul/matmul_operands.cuh"

namespace slipstream::cuda {

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

}  // namespace slipstream::cuda
