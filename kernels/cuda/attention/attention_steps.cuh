// Copies the steps of 64 slots that a thread block takes, one after another, through a ring in shared memory.
//
// A step is read as sub-tiles of `Slots` rows, keys first, then values; `Stages` sub-tiles are being copied or in use.
// All threads of the thread block copy 16 bytes each, wait for the oldest sub-tile, meet at one barrier, and fill the
// ring slot from which the previous sub-tile was read. So one barrier per sub-tile is enough. Rows are padded by 16
// bytes, which spreads the eight rows of an ldmatrix over all banks.
#pragma once

#include "gpu.cuh"
#include "kernels/cuda/attention/attention_launch.h"
#include "kernels/cuda/attention/attention_warp.cuh"

namespace slipstream::cuda {

inline constexpr int kChunkSlots = kStepSlots * kChunkSteps;

/// Returns *a.place, or the fields of `a` with the same names if it is null.
__device__ __forceinline__ AttentionPlace place_of(const AttentionLaunch& a) {
    if (a.place == nullptr) return {a.n_committed, a.first_chunk, a.table_first};
    return *a.place;
}

/// A step, and the rows [first_row, end_row) of the tile that take it.
struct StepRows {
    int step;
    int first_row;
    int end_row;
};

/// The steps of a tile in KV chunks [first_chunk, end_chunk), numbered: shared ones first, then gathers.
struct StepList {
    int first_shared;  // number of the first shared step
    int n_shared;
    int first_gather;  // index in AttentionLaunch::gathers
    int n;             // shared steps and gathers together

    __device__ __forceinline__ StepRows at(const AttentionLaunch& a, const AttentionTile& tile, int i) const {
        if (i < n_shared) return {first_shared + i, 0, tile.n_rows};
        const AttentionGather& gather = a.gathers[first_gather + i - n_shared];
        return {gather.step, gather.first_row, gather.end_row};
    }
};

__device__ __forceinline__ StepList steps_within(const AttentionLaunch& a, const AttentionTile& tile, int first_chunk,
                                                 int end_chunk) {
    const int first = gpu::max(tile.first_step, first_chunk * kChunkSteps);
    const int end = gpu::min(tile.end_step, end_chunk * kChunkSteps);
    int gather = tile.first_gather;
    while (gather < tile.end_gather && a.gathers[gather].step < first_chunk * kChunkSteps) ++gather;
    int end_gather = gather;
    while (end_gather < tile.end_gather && a.gathers[end_gather].step < end_chunk * kChunkSteps) ++end_gather;
    const int n_shared = gpu::max(0, end - first);
    return {first, n_shared, gather, n_shared + end_gather - gather};
}

/// Where the KV rows of a step's slots are.
struct StepSlots {
    int step = 0;
    int chunk_slots = kStepSlots;  // number of slots that are in the step's KV chunk; the others are in scratch
    int end_slot = kStepSlots;     // number of slots that have a row; the others are zeros
    int rows_at = 0;               // the scratch row of slot s is AttentionLaunch::rows[rows_at + s]
};

/// Returns where the KV rows of the `i`-th step of the list are: in its KV chunk, or in KV chunk and scratch.
__device__ __forceinline__ StepSlots slots_of_step(const AttentionLaunch& a, const AttentionPlace& place,
                                                   const StepList& steps, int i) {
    StepSlots slots;
    slots.step = steps.first_shared + i;
    if (i >= steps.n_shared) {
        const AttentionGather& gather = a.gathers[steps.first_gather + i - steps.n_shared];
        slots.step = gather.step;
        slots.chunk_slots = place.n_committed - gather.step * kStepSlots;
        slots.end_slot = gather.end_slot;
        slots.rows_at = gather.rows_at;
    }
    return slots;
}

/// The ring in shared memory through which the KV rows of a thread block's steps pass. All threads of the thread block
/// must make it and call its functions together.
template <class Kv, int D, int Slots, int Stages>
class StepRing {
public:
    using Element = Kv;  // element of the rows that next() returns
    // Elements from one row to the next in shared memory: 16 bytes more than a row, against bank conflicts.
    static constexpr int kPitch = D + 8;
    // Sub-tiles of keys in a step; a step has as many of values.
    static constexpr int kParts = kStepSlots / Slots;
    // Pieces of 16 bytes in a row, which a thread copies at once.
    static constexpr int kPieces = D / 8;
    static constexpr int kElements = Slots * kPitch;  // elements of a sub-tile
    static constexpr size_t kBytes = size_t{Stages} * kElements * sizeof(Kv);

    /// Begins to copy the steps of the list. Uses the first kBytes of dynamic shared memory. `head`: kv head.
    __device__ __forceinline__ StepRing(const AttentionLaunch& a, const StepList& steps, int head)
        : a_(a), steps_(steps), head_(head), ring_(gpu::dynamic_shared<Kv>(0)) {
        for (int i = 0; i < Stages - 1; ++i) issue();
    }

    /// Returns the next sub-tile, [Slots] rows kPitch apart, valid until the next call. All threads of the thread block
    /// must call it.
    __device__ __forceinline__ gpu::SharedPtr<Kv> next() {
        gpu::copy_async_wait<Stages - 2>();
        gpu::sync_threads();
        issue();
        const auto tile = ring_ + read_ * kElements;
        read_ = read_ + 1 == Stages ? 0 : read_ + 1;
        return tile;
    }

    /// Waits for all copies; call it after the last sub-tile.
    __device__ __forceinline__ void end() { gpu::copy_async_wait<0>(); }

private:
    // Sets where step number issued_ is read.
    __device__ __forceinline__ void enter_step() {
        const AttentionPlace place = place_of(a_);
        at_ = slots_of_step(a_, place, steps_, issued_);
        const int chunk_number = at_.step / kChunkSteps - place.table_first;
        chunk_k_ = reinterpret_cast<const Kv*>(at_.chunk_slots > 0 ? a_.chunks[chunk_number] : a_.scratch_k);
        if (at_.chunk_slots > 0)
            chunk_k_ += (int64_t{head_} * 2 * kChunkSlots + at_.step % kChunkSteps * kStepSlots) * D;
    }

    __device__ __forceinline__ void issue() {
        if (issued_ < steps_.n) {
            if (part_ == 0) enter_step();
            const bool values = part_ >= kParts;
            const int first_slot = part_ % kParts * Slots;
            const auto dst = ring_ + write_ * kElements;
            const Kv* rows = chunk_k_ + (values ? int64_t{kChunkSlots} * D : 0);
            if (first_slot + Slots <= at_.chunk_slots) {
                copy_rows(dst, rows + first_slot * D);
            } else {
                gather_rows(dst, rows, reinterpret_cast<const Kv*>(values ? a_.scratch_v : a_.scratch_k), first_slot);
            }
            if (++part_ == 2 * kParts) {
                part_ = 0;
                ++issued_;
            }
        }
        gpu::copy_async_commit();
        write_ = write_ + 1 == Stages ? 0 : write_ + 1;
    }

    // Copies rows of a KV chunk, which are contiguous.
    __device__ __forceinline__ void copy_rows(gpu::SharedPtr<Kv> dst, const Kv* src) {
        for (int i = static_cast<int>(threadIdx.x); i < Slots * kPieces; i += static_cast<int>(blockDim.x))
            gpu::copy_async_16(dst + i / kPieces * kPitch + i % kPieces * 8, src + i * 8);
    }

    __device__ __forceinline__ void gather_rows(gpu::SharedPtr<Kv> dst, const Kv* chunk_rows, const Kv* scratch,
                                                int first_slot) {
        for (int i = static_cast<int>(threadIdx.x); i < Slots * kPieces; i += static_cast<int>(blockDim.x)) {
            const int slot = first_slot + i / kPieces;
            const int at = i % kPieces * 8;
            const Kv* row = chunk_rows + slot * D;
            if (slot >= at_.chunk_slots) {
                const int number = slot < at_.end_slot ? a_.rows[at_.rows_at + slot] : 0;
                row = scratch + (int64_t{number} * a_.n_kv_heads + head_) * D;
            }
            gpu::copy_async_16_or_zero(dst + i / kPieces * kPitch + at, row + at, slot < at_.end_slot ? 16 : 0);
        }
    }

    const AttentionLaunch& a_;
    StepList steps_;
    int head_;
    gpu::SharedPtr<Kv> ring_;
    int issued_ = 0;  // steps whose copies have begun
    int part_ = 0;    // sub-tile of step number issued_
    int write_ = 0;   // slot of the ring to fill next
    int read_ = 0;
    StepSlots at_;                 // slots of step number issued_
    const Kv* chunk_k_ = nullptr;  // slot 0 of the step's keys
};

/// Names the ring class for KV rows of type Kv.
template <class Kv, int D, int Slots, int Stages>
struct RingFor {
    using Type = StepRing<Kv, D, Slots, Stages>;
};

}  // namespace slipstream::cuda
