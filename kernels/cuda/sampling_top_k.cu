// The k best logits of each row, by selection: values as integers that sort alike, the k-th greatest found bit by bit
// by counting, then those above it and the first of those equal to it, and at last the few put in order.
//
// A block selects k of up to 4096 entries, 16 a thread in registers, in ascending places; what it leaves is in
// ascending places too, so "first" is "lowest id" however often selections are selected from.
#include "gpu.cuh"
#include "kernels/cuda/sampling_launch.h"

namespace slipstream::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kEach = kTopKPiece / kThreads;  // entries of a thread
constexpr uint32_t kNone = 0;                 // key of what is never chosen

// Greater floats have greater keys, -0 as 0; NaN and -inf have kNone.
__device__ __forceinline__ uint32_t key_of(float value) {
    if (!(value > -INFINITY)) return kNone;
    const uint32_t bits = __builtin_bit_cast(uint32_t, value + 0.0F);
    return bits & 0x80000000U ? ~bits : bits | 0x80000000U;
}
__device__ __forceinline__ float value_of(uint32_t key) {
    if (key == kNone) return -INFINITY;
    return __builtin_bit_cast(float, key & 0x80000000U ? key & 0x7fffffffU : ~key);
}

// Entries to choose from: n of each row, [n_rows, n]; ids null: an entry's id is its place.
struct Entries {
    const float* values;
    int64_t stride;  // of rows of values
    const int32_t* ids;
    int n;
};
// What is chosen: k of each piece, [n_rows, pieces, k], values and ids.
struct Chosen {
    float* values;
    int32_t* ids;
};

// Sum over the block. `sums`: 2 * kWarps, used in turn, so that one barrier a sum is enough.
__device__ __forceinline__ int block_sum(int value, gpu::SharedPtr<int> sums, int turn) {
    for (int mask = 16; mask > 0; mask /= 2) value += gpu::shfl_xor(value, mask);
    const auto mine = sums + turn % 2 * kWarps;
    if (threadIdx.x % 32 == 0) mine[threadIdx.x / 32] = value;
    gpu::sync_threads();
    int sum = 0;
    for (int warp = 0; warp < kWarps; ++warp) sum += mine[warp];
    return sum;
}

// Sum over the threads before this one.
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

// grid (pieces, rows). Shared: 2 * kWarps ints.
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
    // The greatest key that at least k entries reach; where there are fewer, all are chosen.
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
    const int n_equal = gpu::min(n_all, k) - block_sum(above, sums, turn);  // how many of those equal are chosen
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

// grid (rows), kMaxTopK threads: entry i goes where as many are better. Shared: kMaxTopK values.
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
    // Two halves of scratch take turns.
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
