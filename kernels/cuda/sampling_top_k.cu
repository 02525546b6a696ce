// The k largest logits of each row, by selection. Values become integers that sort alike; the k-th largest is found bit
// by bit, by counting; then all above it are kept, and the first of those equal to it; at the end the few that are left
// are sorted.
//
// A thread block selects k of up to 4096 entries, 16 per thread in registers, in ascending order of their places. Its
// output is in ascending order of the places too, so "first" means "lowest id" however often selections are selected
// from.
#include "gpu.cuh"
#include "kernels/cuda/sampling_launch.h"

namespace slipstream::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kEach = kTopKPiece / kThreads;  // entries per thread
// Key of an entry that is never chosen: NaN, -infinity, or past the end. All other keys are greater.
constexpr uint32_t kNone = 0;

// Returns a key that sorts like `value`: larger floats have larger keys, -0 has the key of 0, NaN and -infinity have
// kNone.
__device__ __forceinline__ uint32_t key_of(float value) {
    if (!(value > -INFINITY)) return kNone;
    const uint32_t bits = __builtin_bit_cast(uint32_t, value + 0.0F);
    return bits & 0x80000000U ? ~bits : bits | 0x80000000U;
}
__device__ __forceinline__ float value_of(uint32_t key) {
    if (key == kNone) return -INFINITY;
    return __builtin_bit_cast(float, key & 0x80000000U ? key & 0x7fffffffU : ~key);
}

// Entries to choose from, n per row, [n_rows, n]. If ids is null, an entry's id is its place in the row.
struct Entries {
    const float* values;
    int64_t stride;  // floats from one row of values to the next
    const int32_t* ids;
    int n;
};
// Chosen entries: k of each range, [n_rows, ranges, k], values and ids.
struct Chosen {
    float* values;
    int32_t* ids;
};

// Returns the sum of `value` over the thread block, in every thread. `sums` has 2 * kWarps entries, whose halves are
// used alternately by `turn`, so that one barrier per sum is enough. All threads must call it.
__device__ __forceinline__ int block_sum(int value, gpu::SharedPtr<int> sums, int turn) {
    for (int mask = 16; mask > 0; mask /= 2) value += gpu::shfl_xor(value, mask);
    const auto mine = sums + turn % 2 * kWarps;
    if (threadIdx.x % 32 == 0) mine[threadIdx.x / 32] = value;
    gpu::sync_threads();
    int sum = 0;
    for (int warp = 0; warp < kWarps; ++warp) sum += mine[warp];
    return sum;
}

// Returns the sum of `value` over the threads before this one. `sums`: kWarps entries. All threads of the thread block
// must call it.
__device__ __forceinline__ int block_sum_before(int value, gpu::SharedPtr<int> sums) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    int up_to = value;
    for (int step = 1; step < 32; step *= 2) {
        const int before = gpu::shfl(up_to, lane >= step ? lane - step : lane);
        if (lane >= step) up_to += before;
    }
    gpu::sync_threads();
    if (lane == 31) sums[threadIdx.x / 32] = up_to;
    gpu::sync_threads();
    int sum = up_to - value;
    for (int warp = 0; warp < static_cast<int>(threadIdx.x / 32); ++warp) sum += sums[warp];
    return sum;
}

// Chooses the k largest of each range of kTopKPiece entries; fills up with -infinity and id -1. grid (ranges, rows).
// Shared memory: 2 * kWarps ints.
__global__ void __launch_bounds__(kThreads) choose(const Entries from, const int k, const Chosen to) {
    const auto sums = gpu::dynamic_shared<int>();
    const int64_t row = blockIdx.y;
    const int first = static_cast<int>(blockIdx.x) * kTopKPiece + static_cast<int>(threadIdx.x) * kEach;
    uint32_t keys[kEach];
    int n_there = 0;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
        keys[i] = first + i < from.n ? key_of(from.values[row * from.stride + first + i]) : kNone;
        n_there += keys[i] != kNone ? 1 : 0;
    }
    int turn = 0;
    const int n_all = block_sum(n_there, sums, turn++);
    // `least` is the largest key that at least k entries reach. If there are at most k entries, all are chosen.
    uint32_t least = 1;
    if (n_all > k) {
        least = 0;
        for (int bit = 31; bit >= 0; --bit) {
            const uint32_t higher = least | 1U << bit;
            int n = 0;
#pragma unroll
            for (int i = 0; i < kEach; ++i) n += keys[i] >= higher ? 1 : 0;
            if (block_sum(n, sums, turn++) >= k) least = higher;
        }
    }
    int above = 0;
    int equal = 0;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
        above += keys[i] > least ? 1 : 0;
        equal += keys[i] == least ? 1 : 0;
    }
    const int n_equal = gpu::min(n_all, k) - block_sum(above, sums, turn);  // how many of the entries equal to `least`
                                                                            // are chosen
    int equal_before = block_sum_before(equal, sums);
    int place = block_sum_before(above, sums) + gpu::min(equal_before, n_equal);
    const int64_t out = (row * gridDim.x + blockIdx.x) * k;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
        if (keys[i] < least || keys[i] == kNone) continue;
        if (keys[i] == least && equal_before++ >= n_equal) continue;
        to.values[out + place] = value_of(keys[i]);
        to.ids[out + place] = from.ids != nullptr ? from.ids[row * from.n + first + i] : first + i;
        ++place;
    }
    for (int i = n_all + static_cast<int>(threadIdx.x); i < k; i += kThreads) {
        to.values[out + i] = -INFINITY;
        to.ids[out + i] = -1;
    }
}

// Sorts the k chosen entries of each row: an entry's place is the number of entries that are better. grid (rows),
// kMaxTopK threads. Shared memory: kMaxTopK floats.
__global__ void __launch_bounds__(kMaxTopK)
    sort_chosen(const float* values, const int32_t* ids, const int k, float* sorted_values, int32_t* sorted_ids) {
    const auto all = gpu::dynamic_shared<float>();
    const int own = static_cast<int>(threadIdx.x);
    const int64_t row = int64_t{blockIdx.x} * k;
    if (own < k) all[own] = values[row + own];
    gpu::sync_threads();
    if (own >= k) return;
    int place = 0;
    for (int i = 0; i < k; ++i) place += all[i] > all[own] || (all[i] == all[own] && i < own) ? 1 : 0;
    sorted_values[row + place] = all[own];
    sorted_ids[row + place] = ids[row + own];
}

}  // namespace

void launch_top_k(const TopKLaunch& a, void* stream) {
    if (a.rows.n == 0) return;
    // Selections write to the two halves of scratch alternately.
    const auto n_rows = static_cast<unsigned>(a.rows.n);
    const size_t n_entries =
        size_t{n_rows} * static_cast<size_t>(sampling_pieces(a.rows.vocab, kTopKPiece)) * static_cast<size_t>(a.k);
    Entries from{a.rows.logits, a.rows.stride, nullptr, a.rows.vocab};
    for (int turn = 0;; turn ^= 1) {
        auto* values = reinterpret_cast<float*>(a.scratch) + static_cast<size_t>(turn) * 2 * n_entries;
        const Chosen to{values, reinterpret_cast<int32_t*>(values + n_entries)};
        const int pieces = sampling_pieces(from.n, kTopKPiece);
        gpu::launch(choose, dim3(static_cast<unsigned>(pieces), n_rows), dim3(kThreads), 2 * kWarps * sizeof(int),
                    stream, from, a.k, to);
        from = {to.values, int64_t{pieces} * a.k, to.ids, pieces * a.k};
        if (pieces == 1) break;
    }
    gpu::launch(sort_chosen, dim3(n_rows), dim3(kMaxTopK), kMaxTopK * sizeof(float), stream, from.values, from.ids, a.k,
                a.values, a.ids);
}

}  // namespace slipstream::cuda
