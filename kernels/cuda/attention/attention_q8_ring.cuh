// The ring of attention_steps.cuh for Q8 rows: sub-tiles arrive as codes and scales, and one at a time is turned into
// rows of half floats, which the warps multiply as they do those of an F16 cache.
//
// An element is code * scale in float, limited to the range of a half float and rounded to one. That is the value of
// this element for every query, whichever way the row came here.
//
// A sub-tile in the ring: [Slots][D] codes, then [Slots][kScaleWords] words of scales. Rows of KV chunks are copied
// asynchronously, 16 bytes a thread. Rows of scratch begin at multiples of 4 bytes only, so sub-tiles with rows from
// scratch are copied by words. Two barriers per sub-tile: after the first, the sub-tile has arrived and no warp reads
// the rows of the previous one any more; after the second, the rows of this one are complete.
#pragma once

#include "gpu.cuh"
#include "kernels/cuda/attention/attention_launch.h"
#include "kernels/cuda/attention/attention_steps.cuh"
#include "kernels/cuda/q8_rows.cuh"

namespace slipstream::cuda {

/// The ring of a thread block for Q8 rows, with the interface of StepRing. All threads of the thread block must make it
/// and call its functions together.
template <int D, int Slots, int Stages>
class Q8StepRing {
public:
    using Element = gpu::Half;
    static constexpr int kPitch = D + 8;  // elements from one row of half floats to the next
    static constexpr int kParts = kStepSlots / Slots;
    static constexpr int kScaleWords = q8_scale_bytes(D) / 4;
    static constexpr int kRawBytes = Slots * q8_row_bytes(D);  // bytes of a sub-tile in the ring
    static constexpr size_t kRowsBytes = size_t{Slots} * kPitch * sizeof(Element);
    static constexpr size_t kBytes = kRowsBytes + size_t{Stages} * kRawBytes;
    static_assert(D % 16 == 0 && q8_code_bytes(D) == D && kRawBytes % 16 == 0 && kRowsBytes % 16 == 0);

    /// Begins to copy the steps of the list. Uses the first kBytes of dynamic shared memory. `head`: kv head.
    __device__ __forceinline__ Q8StepRing(const AttentionLaunch& a, const StepList& steps, int head)
        : a_(a), steps_(steps), head_(head) {
        for (int i = 0; i < Stages - 1; ++i) issue();
    }

    __device__ __forceinline__ gpu::SharedPtr<Element> next() {
        gpu::copy_async_wait<Stages - 2>();
        gpu::sync_threads();
        issue();
        decode();
        gpu::sync_threads();
        return gpu::dynamic_shared<Element>(0);
    }

    __device__ __forceinline__ void end() { gpu::copy_async_wait<0>(); }

private:
    __device__ __forceinline__ gpu::SharedPtr<uint32_t> raw(int slot) const {
        return gpu::dynamic_shared<uint32_t>(kRowsBytes) + slot * (kRawBytes / 4);
    }

    __device__ __forceinline__ void enter_step() {
        const AttentionPlace place = place_of(a_);
        at_ = slots_of_step(a_, place, steps_, issued_);
        const int chunk_number = at_.step / kChunkSteps - place.table_first;
        step_k_ = at_.chunk_slots > 0 ? a_.chunks[chunk_number] : a_.scratch_k;
        if (at_.chunk_slots > 0)
            step_k_ += (int64_t{head_} * 2 * kChunkSlots + at_.step % kChunkSteps * kStepSlots) * q8_row_bytes(D);
    }

    __device__ __forceinline__ void issue() {
        if (issued_ < steps_.n) {
            if (part_ == 0) enter_step();
            const bool values = part_ >= kParts;
            const int first_slot = part_ % kParts * Slots;
            const auto dst = raw(write_);
            const std::byte* step = step_k_ + (values ? int64_t{kChunkSlots} * q8_row_bytes(D) : 0);
            if (first_slot + Slots <= at_.chunk_slots) {
                copy_rows(dst, step, first_slot);
            } else {
                gather_rows(dst, step, values ? a_.scratch_v : a_.scratch_k, first_slot);
            }
            if (++part_ == 2 * kParts) {
                part_ = 0;
                ++issued_;
            }
        }
        gpu::copy_async_commit();
        write_ = write_ + 1 == Stages ? 0 : write_ + 1;
    }

    // Copies codes, then scales, of consecutive slots of a step.
    __device__ __forceinline__ void copy_rows(gpu::SharedPtr<uint32_t> dst, const std::byte* step, int first_slot) {
        constexpr int kCodePieces = Slots * D / 16;
        constexpr int kPieces = kRawBytes / 16;
        const std::byte* codes = step + first_slot * D;
        const std::byte* scales = step + kStepSlots * D + first_slot * kScaleWords * 4;
        for (int i = static_cast<int>(threadIdx.x); i < kPieces; i += static_cast<int>(blockDim.x))
            gpu::copy_async_16(dst + 4 * i, i < kCodePieces ? codes + 16 * i : scales + 16 * (i - kCodePieces));
    }

    // Copies rows word by word: codes, then scales. Slots without a row become zeros.
    __device__ __forceinline__ void gather_rows(gpu::SharedPtr<uint32_t> dst, const std::byte* step,
                                                const std::byte* scratch, int first_slot) {
        constexpr int kCodeWords = D / 4;
        constexpr int kWords = kCodeWords + kScaleWords;
        for (int i = static_cast<int>(threadIdx.x); i < Slots * kWords; i += static_cast<int>(blockDim.x)) {
            const int row = i / kWords;
            const int word = i % kWords;
            const int slot = first_slot + row;
            uint32_t value = 0;
            if (slot < at_.chunk_slots) {
                value = gpu::load_4(step + (word < kCodeWords
                                                ? slot * D + 4 * word
                                                : kStepSlots * D + slot * kScaleWords * 4 + 4 * (word - kCodeWords)));
            } else if (slot < at_.end_slot) {
                const int64_t number = a_.rows[at_.rows_at + slot];
                value = gpu::load_4(scratch + (number * a_.n_kv_heads + head_) * q8_row_bytes(D) + 4 * word);
            }
            dst[word < kCodeWords ? row * kCodeWords + word
                                  : Slots * kCodeWords + row * kScaleWords + word - kCodeWords] = value;
        }
    }

    static __device__ __forceinline__ float decoded(uint32_t codes, int at, float scale) {
        const float value = static_cast<float>(static_cast<int8_t>(codes >> (8 * at))) * scale;
        return fmaxf(fminf(value, 65504.0F), -65504.0F);
    }

    // Turns the oldest sub-tile into rows of half floats, eight elements a thread.
    __device__ __forceinline__ void decode() {
        const auto codes = raw(read_);
        const auto scales = codes + Slots * D / 4;
        const auto rows = gpu::dynamic_shared<Element>(0);
        for (int i = static_cast<int>(threadIdx.x); i < Slots * D / 8; i += static_cast<int>(blockDim.x)) {
            const int row = i / (D / 8);
            const int block = i % (D / 8) * 8 / kQ8BlockElements;
            const uint32_t two = scales[row * kScaleWords + block / 2];
            const float scale = gpu::bf16_to_float({static_cast<uint16_t>(two >> (block % 2 * 16))});
            const gpu::U32x2 eight = gpu::load_shared_8(codes + 2 * i);
            gpu::U32x4 halves;
#pragma unroll
            for (int j = 0; j < 4; ++j)
                halves.x[j] = gpu::pack_f16(decoded(eight.x[j / 2], j % 2 * 2, scale),
                                            decoded(eight.x[j / 2], j % 2 * 2 + 1, scale));
            gpu::store_shared_16(rows + row * kPitch + i % (D / 8) * 8, halves);
        }
        read_ = read_ + 1 == Stages ? 0 : read_ + 1;
    }

    const AttentionLaunch& a_;
    StepList steps_;
    int head_;
    int issued_ = 0;  // steps whose copies have begun
    int part_ = 0;    // sub-tile of step number issued_
    int write_ = 0;   // slot of the ring to fill next
    int read_ = 0;
    StepSlots at_;                       // slots of step number issued_
    const std::byte* step_k_ = nullptr;  // the keys of step number issued_, in its KV chunk
};

template <int D, int Slots, int Stages>
struct RingFor<Q8, D, Slots, Stages> {
    using Type = Q8StepRing<D, Slots, Stages>;
};

}  // namespace slipstream::cuda
