// Argmax of logits, and of logits with noise. A thread block takes a range of a row; a second kernel takes the best of
// the ranges. "Better" is one order throughout, higher value, then lower id, so the division of a row changes nothing.
//
// The argmax with noise first needs the row's greatest logit, from which scores count. Most logits cannot win with any
// noise: an upper bound of the score, from a few float operations, saves their logarithms and the quotient in double,
// which is slow on consumer GPUs.
#include "gpu.cuh"
#include "kernels/base/noise.h"
#include "kernels/cuda/sampling_launch.h"

namespace slipstream::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr float kImpossible = -INFINITY;

struct Best {
    float value = kImpossible;
    int id = -1;

    // Replaces this candidate by the other if the other is better: has an id, then has a higher value, then a lower id.
    __device__ __forceinline__ void meet(float other_value, int other_id) {
        if (other_id < 0) return;
        if (id >= 0 && (other_value < value || (other_value == value && other_id > id))) return;
        value = other_value;
        id = other_id;
    }
};

// Returns the best of the thread block, in thread 0. Shared memory: kWarps values and ids.
__device__ __forceinline__ Best best_of_block(Best best) {
    for (int mask = 16; mask > 0; mask /= 2) {
        const float value = gpu::shfl_xor(best.value, mask);
        const int id = gpu::shfl_xor(best.id, mask);
        best.meet(value, id);
    }
    const auto values = gpu::dynamic_shared<float>();
    const auto ids = gpu::dynamic_shared<int>(kWarps * sizeof(float));
    if (threadIdx.x % 32 == 0) {
        values[threadIdx.x / 32] = best.value;
        ids[threadIdx.x / 32] = best.id;
    }
    gpu::sync_threads();
    if (threadIdx.x == 0)
        for (int warp = 1; warp < kWarps; ++warp) best.meet(values[warp], ids[warp]);
    return best;
}
constexpr size_t kSharedBytes = kWarps * (sizeof(float) + sizeof(int));

// Finds the greatest logit of each range and its id; `values` and `ids`: [n, ranges]. Grid: (ranges, rows).
__global__ void __launch_bounds__(kThreads) best_of_pieces(const LogitRows rows, float* values, int32_t* ids) {
    const float* logits = rows.logits + blockIdx.y * rows.stride;
    const int first = static_cast<int>(blockIdx.x) * kArgmaxPiece;
    const int end = gpu::min(first + kArgmaxPiece, rows.vocab);
    Best best;
    for (int id = first + static_cast<int>(threadIdx.x); id < end; id += kThreads)
        if (logits[id] > best.value) {
            best.value = logits[id];
            best.id = id;
        }
    best = best_of_block(best);
    if (threadIdx.x != 0) return;
    values[blockIdx.y * gridDim.x + blockIdx.x] = best.value;
    ids[blockIdx.y * gridDim.x + blockIdx.x] = best.id;
}

// Finds the best value of each row and its id from the best of its ranges, [n, n_pieces]. Grid: rows.
__global__ void __launch_bounds__(kThreads)
    best_of_rows(const float* values, const int32_t* ids, const int n_pieces, float* value, int32_t* id) {
    Best best;
    for (int i = static_cast<int>(threadIdx.x); i < n_pieces; i += kThreads)
        best.meet(values[blockIdx.x * n_pieces + i], ids[blockIdx.x * n_pieces + i]);
    best = best_of_block(best);
    if (threadIdx.x != 0) return;
    value[blockIdx.x] = best.value;
    id[blockIdx.x] = best.id;
}

// Finds the best of each range of a row with noise, [n, ranges]. Grid: (ranges, rows). A thread takes groups of four
// ids, which share a block of noise.
__global__ void __launch_bounds__(kThreads)
    best_noisy_of_pieces(const GumbelLaunch a, const float* greatest_of_rows, float* values, int32_t* ids) {
    const float* logits = a.rows.logits + blockIdx.y * a.rows.stride;
    const float greatest = greatest_of_rows[blockIdx.y];
    const auto position = static_cast<uint64_t>(a.positions[blockIdx.y]);
    const int first = static_cast<int>(blockIdx.x) * kArgmaxPiece;
    const int end = gpu::min(first + kArgmaxPiece, a.rows.vocab);
    // The bound must be above the exact score, which is at most 0: `slack` makes it so, since four roundings of 2^-24
    // each are between approximate and exact scores.
    const float inverse = static_cast<float>(1.0 / a.temperature);
    constexpr float slack = 1.0F - 0x1p-20F;
    Best best;
    for (int group = first / 4 + static_cast<int>(threadIdx.x); 4 * group < end; group += kThreads) {
        const PhiloxBlock block = noise_block(a.seed, position, static_cast<uint32_t>(group), NoiseStream::Sampling);
        for (int i = 0; i < 4; ++i) {
            const int id = 4 * group + i;
            if (id >= end || !(logits[id] > kImpossible)) continue;
            const float logit = logits[id];
            const float below = logit == greatest ? 0.0F : (logit - greatest) * inverse * slack;
            if (below + gumbel_upper_bound(block.word[i]) < best.value) continue;
            const double exact = logit == greatest ? 0.0 : (double{logit} - greatest) / a.temperature;
            const auto scaled = static_cast<float>(exact);
            if (!(scaled > kImpossible)) continue;
            best.meet(scaled + gumbel_of(block.word[i]), id);
        }
    }
    best = best_of_block(best);
    if (threadIdx.x != 0) return;
    values[blockIdx.y * gridDim.x + blockIdx.x] = best.value;
    ids[blockIdx.y * gridDim.x + blockIdx.x] = best.id;
}

// Arrays in scratch with the best value and id of each range.
struct PieceBests {
    unsigned n_pieces;
    float* values;
    int32_t* ids;

    PieceBests(const LogitRows& rows, std::byte* scratch)
        : n_pieces(static_cast<unsigned>(sampling_pieces(rows.vocab, kArgmaxPiece))),
          values(reinterpret_cast<float*>(scratch)),
          ids(reinterpret_cast<int32_t*>(values + size_t{n_pieces} * static_cast<unsigned>(rows.n))) {}
};

void join_pieces(const LogitRows& rows, const PieceBests& pieces, float* values, int32_t* ids, void* stream) {
    gpu::launch(best_of_rows, dim3(static_cast<unsigned>(rows.n)), dim3(kThreads), kSharedBytes, stream,
                static_cast<const float*>(pieces.values), static_cast<const int32_t*>(pieces.ids),
                static_cast<int>(pieces.n_pieces), values, ids);
}

}  // namespace

void launch_argmax(const ArgmaxLaunch& a, void* stream) {
    if (a.rows.n == 0) return;
    const PieceBests pieces(a.rows, a.scratch);
    gpu::launch(best_of_pieces, dim3(pieces.n_pieces, static_cast<unsigned>(a.rows.n)), dim3(kThreads), kSharedBytes,
                stream, a.rows, pieces.values, pieces.ids);
    join_pieces(a.rows, pieces, a.values, a.ids, stream);
}

void launch_gumbel(const GumbelLaunch& a, void* stream) {
    if (a.rows.n == 0) return;
    auto* greatest = reinterpret_cast<float*>(a.scratch);
    auto* greatest_ids = reinterpret_cast<int32_t*>(greatest + a.rows.n);
    std::byte* rest = a.scratch + 8 * static_cast<size_t>(a.rows.n);
    launch_argmax({a.rows, greatest_ids, greatest, rest}, stream);
    const PieceBests pieces(a.rows, rest);
    gpu::launch(best_noisy_of_pieces, dim3(pieces.n_pieces, static_cast<unsigned>(a.rows.n)), dim3(kThreads),
                kSharedBytes, stream, a, static_cast<const float*>(greatest), pieces.values, pieces.ids);
    join_pieces(a.rows, pieces, a.scores, a.ids, stream);
}

}  // namespace slipstream::cuda
