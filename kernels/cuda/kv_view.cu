// Scores of slot groups of eight slots, and copies of slot groups to other places.
//
// A warp scores one slot group at a time. Lane l has slot l / 4, and of its key the pieces of 16 bytes number l % 4, l
// % 4 + 4, ...; products are added by fused multiply-adds, elements ascending, then over lanes (xor 1, 2). Maximum and
// sum over the slots go over lanes (xor 4, 8, 16). Of Q8 a piece's products are summed from 0 and added times its
// scale. So the bits of a score depend on its slot group and its query alone.
#include <type_traits>

#include "gpu.cuh"
#include "kernels/cuda/kv_view_launch.h"
#include "kernels/cuda/q8_rows.cuh"
#include "kernels/cuda/softcap.cuh"
#include "kernels/cuda/widen.cuh"

namespace slipstream::cuda {

namespace {

constexpr int kThreads = 128;
constexpr int kChunkSlots = 256;
constexpr int kStepSlots = 64;
constexpr int kGroupSlots = 8;
constexpr int kChunkGroups = kChunkSlots / kGroupSlots;
// Slot groups that a thread block scores: half of a KV chunk.
constexpr int kBlockGroups = 16;
// Lanes of a warp that share a slot: 4, since a warp scores the 8 slots of a slot group at once.
constexpr int kSlotLanes = 32 / kGroupSlots;

// Elements of type Kv in a piece of 16 bytes of a row.
template <class Kv>
constexpr int kPieceElements = 16 / static_cast<int>(sizeof(Kv));
// A piece of 16 bytes of a row; elements past the end of the row are 0.
template <class Kv>
struct alignas(16) Piece {
    Kv x[kPieceElements<Kv>];
};
template <class Kv>
__device__ __forceinline__ Piece<Kv> load_piece(const Kv* row, int at, int d, bool wide) {
    if (wide) return __builtin_bit_cast(Piece<Kv>, gpu::load_16(row + at));
    Piece<Kv> piece{};
    for (int e = 0; e < kPieceElements<Kv>; ++e)
        if (at + e < d) piece.x[e] = row[at + e];
    return piece;
}

// Returns the pitch of query rows in shared memory, in floats: `d`, the head_dim, rounded up to a multiple of
// kPieceElements<Kv>. A row has zeros past head_dim.
template <class Kv>
__host__ __device__ constexpr int query_pitch(int d) {
    return (d + kPieceElements<Kv> - 1) / kPieceElements<Kv> * kPieceElements<Kv>;
}

// Computes q . k of a lane's slot for Batch queries, in each of the slot's four lanes. Whole warps only.
template <class Kv, int Batch>
__device__ __forceinline__ void multiply(const KvScoreLaunch& a, const Kv* row, gpu::SharedPtr<float> q,
                                         float (&sum)[Batch]) {
    constexpr int kElements = kPieceElements<Kv>;
    const int pitch = query_pitch<Kv>(a.head_dim);
#pragma unroll
    for (int i = 0; i < Batch; ++i) sum[i] = 0.0F;
    for (int at = static_cast<int>(threadIdx.x % kSlotLanes) * kElements; at < pitch; at += kSlotLanes * kElements) {
        const Piece<Kv> key = load_piece(row, at, a.head_dim, a.on_16_bytes);
#pragma unroll
        for (int e = 0; e < kElements; e += 4) {
#pragma unroll
            for (int i = 0; i < Batch; ++i) {
                const gpu::U32x4 four = gpu::load_shared_16(q + (i * pitch + at + e));
#pragma unroll
                for (int j = 0; j < 4; ++j)
                    sum[i] = gpu::fma(__builtin_bit_cast(float, four.x[j]), widen(key.x[e + j]), sum[i]);
            }
        }
    }
#pragma unroll
    for (int i = 0; i < Batch; ++i) {
        sum[i] = sum[i] + gpu::shfl_xor(sum[i], 1);
        sum[i] = sum[i] + gpu::shfl_xor(sum[i], 2);
    }
}

// Computes q . k of a lane's slot for Batch queries, like multiply(), over a row of Q8 codes: a piece of 16 codes has
// one scale, which multiplies its products' sum. Whole warps only.
template <int Batch>
__device__ __forceinline__ void multiply_codes(const KvScoreLaunch& a, const int8_t* row, const gpu::Bf16* scales,
                                               gpu::SharedPtr<float> q, float (&sum)[Batch]) {
    constexpr int kElements = kPieceElements<int8_t>;
    static_assert(kQ8BlockElements % kElements == 0);
    const int pitch = query_pitch<int8_t>(a.head_dim);
#pragma unroll
    for (int i = 0; i < Batch; ++i) sum[i] = 0.0F;
    for (int at = static_cast<int>(threadIdx.x % kSlotLanes) * kElements; at < pitch; at += kSlotLanes * kElements) {
        const Piece<int8_t> key = load_piece(row, at, a.head_dim, a.on_16_bytes);
        const float scale = widen(scales[at / kQ8BlockElements]);
#pragma unroll
        for (int i = 0; i < Batch; ++i) {
            float products = 0.0F;
#pragma unroll
            for (int e = 0; e < kElements; e += 4) {
                const gpu::U32x4 four = gpu::load_shared_16(q + (i * pitch + at + e));
#pragma unroll
                for (int j = 0; j < 4; ++j)
                    products =
                        gpu::fma(__builtin_bit_cast(float, four.x[j]), static_cast<float>(key.x[e + j]), products);
            }
            sum[i] = gpu::fma(products, scale, sum[i]);
        }
    }
#pragma unroll
    for (int i = 0; i < Batch; ++i) {
        sum[i] = sum[i] + gpu::shfl_xor(sum[i], 1);
        sum[i] = sum[i] + gpu::shfl_xor(sum[i], 2);
    }
}

// Returns the score of a slot group from those of its slots, of which the first n are committed, in every lane. Whole
// warps only.
__device__ __forceinline__ float reduce_group(float score, bool mass, int slot, int n) {
    if (!mass) {
        float sum = slot < n ? score : 0.0F;
        for (int mask = kSlotLanes; mask < 32; mask *= 2) sum = sum + gpu::shfl_xor(sum, mask);
        return sum / static_cast<float>(n);
    }
    score = slot < n ? score : -INFINITY;
    float best = score;
    for (int mask = kSlotLanes; mask < 32; mask *= 2) best = fmaxf(best, gpu::shfl_xor(best, mask));
    float sum = gpu::exp_approx(score - best);
    for (int mask = kSlotLanes; mask < 32; mask *= 2) sum = sum + gpu::shfl_xor(sum, mask);
    return best + logf(sum);
}

// Scores slot groups (KvScoreLaunch). Grid: (blocks of kBlockGroups slot groups, kv heads, batches of query heads of
// one kv head). Shared memory: [Batch][pitch] floats.
template <class Kv, int Batch, bool kSoftcap>
__global__ void __launch_bounds__(kThreads) score_groups(const KvScoreLaunch a) {
    const int d = a.head_dim;
    const int pitch = query_pitch<Kv>(d);
    const int group = a.n_q_heads / a.n_kv_heads;
    const int kv_head = static_cast<int>(blockIdx.y);
    const int first_query = static_cast<int>(blockIdx.z) * Batch;
    const int64_t first_head = int64_t{kv_head} * group + first_query;
    const auto q = gpu::dynamic_shared<float>();
    for (int at = static_cast<int>(threadIdx.x); at < Batch * pitch; at += kThreads) {
        const int query = at / pitch;
        const int e = at % pitch;
        q[at] = first_query + query < group && e < d ? a.q[(first_head + query) * d + e] : 0.0F;
    }
    gpu::sync_threads();

    constexpr int kChunkBlocks = kChunkGroups / kBlockGroups;
    const int chunk = static_cast<int>(blockIdx.x) / kChunkBlocks;
    const auto* keys = reinterpret_cast<const Kv*>(a.chunks[chunk]) + int64_t{kv_head} * 2 * kChunkSlots * d;
    const int lane = static_cast<int>(threadIdx.x % 32);
    const int slot = lane / kSlotLanes;
    for (int i = static_cast<int>(threadIdx.x / 32); i < kBlockGroups; i += kThreads / 32) {
        const int in_chunk = static_cast<int>(blockIdx.x) % kChunkBlocks * kBlockGroups + i;
        const int64_t number = (int64_t{a.first_chunk} + chunk) * kChunkGroups + in_chunk;
        const int64_t left = a.n_committed - number * kGroupSlots;
        if (left <= 0) return;
        const int n = left < kGroupSlots ? static_cast<int>(left) : kGroupSlots;
        float sum[Batch];
        if constexpr (std::is_same_v<Kv, int8_t>) {
            const int slot_in_chunk = in_chunk * kGroupSlots + slot;
            const std::byte* step =
                a.chunks[chunk] +
                (int64_t{kv_head} * 2 * kChunkSlots + slot_in_chunk / kStepSlots * kStepSlots) * q8_row_bytes(d);
            const int in_step = slot_in_chunk % kStepSlots;
            multiply_codes<Batch>(
                a, reinterpret_cast<const int8_t*>(step + in_step * q8_code_bytes(d)),
                reinterpret_cast<const gpu::Bf16*>(step + kStepSlots * q8_code_bytes(d) + in_step * q8_scale_bytes(d)),
                q, sum);
        } else {
            multiply<Kv, Batch>(a, keys + (int64_t{in_chunk} * kGroupSlots + slot) * d, q, sum);
        }
#pragma unroll
        for (int query = 0; query < Batch; ++query) {
            float of_slot = sum[query] * a.scale;
            if constexpr (kSoftcap) of_slot = softcapped(of_slot, a.softcap);
            const float score = reduce_group(of_slot, a.mass, slot, n);
            if (lane == 0 && first_query + query < group) a.out[(first_head + query) * a.n_groups + number] = score;
        }
    }
}

// Copies slot groups, keys and values. Grid: moves.
__global__ void __launch_bounds__(kThreads) move_groups(const KvGatherLaunch a) {
    const KvGroupMove move = a.moves[blockIdx.x];
    for (int at = static_cast<int>(threadIdx.x); at < 2 * a.group_pieces; at += kThreads) {
        const bool value = at >= a.group_pieces;
        const int64_t byte = value ? a.part_bytes + int64_t{at - a.group_pieces} * 16 : int64_t{at} * 16;
        gpu::store_16(move.to + byte, gpu::load_16(move.from + byte));
    }
}

// Launches the kernel that scores for Batch query heads at a time. Kernels without a softcap are compiled apart, so
// that they have no instruction more.
template <class Kv, int Batch>
void start_score(const KvScoreLaunch& a, void* stream) {
    const int group = a.n_q_heads / a.n_kv_heads;
    gpu::launch(a.softcap == 0.0F ? score_groups<Kv, Batch, false> : score_groups<Kv, Batch, true>,
                dim3(static_cast<unsigned>(a.n_chunks * (kChunkGroups / kBlockGroups)),
                     static_cast<unsigned>(a.n_kv_heads), static_cast<unsigned>((group + Batch - 1) / Batch)),
                dim3(kThreads), Batch * static_cast<size_t>(query_pitch<Kv>(a.head_dim)) * sizeof(float), stream, a);
}
template <class Kv>
void start_score(const KvScoreLaunch& a, void* stream) {
    const int group = a.n_q_heads / a.n_kv_heads;
    if (group == 1) return start_score<Kv, 1>(a, stream);
    if (group <= 4) return start_score<Kv, 4>(a, stream);
    start_score<Kv, 8>(a, stream);
}

}  // namespace

void launch_kv_score(const KvScoreLaunch& a, void* stream) {
    switch (a.type) {
        case KvType::F32:
            return start_score<float>(a, stream);
        case KvType::F16:
            return start_score<gpu::Half>(a, stream);
        case KvType::BF16:
            return start_score<gpu::Bf16>(a, stream);
        case KvType::Q8:
            return start_score<int8_t>(a, stream);
    }
}

void launch_kv_gather(const KvGatherLaunch& a, void* stream) {
    gpu::launch(move_groups, dim3(static_cast<unsigned>(a.n_moves)), dim3(kThreads), 0, stream, a);
}

}  // namespace slipstream::cuda
