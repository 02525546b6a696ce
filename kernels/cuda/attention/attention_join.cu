// Joins the states of KV chunks that thread blocks have computed in parallel: the fold that attention_warp.cuh does in
// registers, in the same order.
//
// A thread block computes one query. Maxima do not depend on their order, so the running maxima come from a scan over
// the KV chunks, and all factors follow at once. Only a product and a fused multiply-add per KV chunk are left to do in
// order.
#include "gpu.cuh"
#include "kernels/cuda/attention/attention_launch.h"
#include "kernels/cuda/attention/attention_parts.h"
#include "kernels/cuda/attention/attention_warp.cuh"
#include "kernels/cuda/matmul/activation_fragments.cuh"

namespace slipstream::cuda {

namespace {

// The factor `take` of a KV chunk of which the query saw nothing; real factors are not negative.
constexpr float kSkipped = -1.0F;
// KV chunks whose sums a thread loads at once, to overlap the loads. Must divide 32: rounded up to it, a segment must
// not exceed the threads.
constexpr int kBatch = 16;

// Returns the maximum of this thread's value and those of the threads before it. `totals`: [n_warps]. All threads of
// the thread block must call it.
__device__ __forceinline__ float prefix_maximum(float value, gpu::SharedPtr<float> totals) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    const int warp = static_cast<int>(threadIdx.x / 32);
    for (int step = 1; step < 32; step *= 2) {
        const float before = gpu::shfl(value, lane >= step ? lane - step : lane);
        value = fmaxf(value, before);
    }
    if (lane == 31) totals[warp] = value;
    gpu::sync_threads();
    for (int i = 0; i < warp; ++i) value = fmaxf(value, totals[i]);
    return value;
}

// Prepares 32 columns for the following matmul, a block of k, one column per lane. Gives the bits of
// store_bf16_block(), which takes four lanes with eight values each. Whole warps only.
__device__ __forceinline__ void prepare_columns(const ActivationDestination& to, int64_t block, int64_t token,
                                                float value) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    const float next = gpu::shfl(value, lane | 1);
    // The values of this column and the next one; only even lanes get the right pair.
    const uint32_t pair = gpu::pack_bf16(value, next);
    if (lane % 2 == 0)
        reinterpret_cast<uint32_t*>(
            fragment_at(to.fragments, to.n_tiles, block * 2 + lane / 16, token, lane % 8 / 2))[lane / 8 % 2] = pair;
    if (to.sums == nullptr) return;
    float sum = 0.0F;
    for (int i = 0; i < kLaneValues; i += 2) add_rounded(sum, gpu::shfl(pair, lane_k(lane % 4, i)));
    store_sum_of_block(to.sums, to.n_tiles, block, token, lane == lane % 4 ? lane : 1, sum);
}
__device__ __forceinline__ void prepare_zeros(const ActivationDestination& to, int64_t first_block, int64_t token) {
    const int n_threads = static_cast<int>(blockDim.x);
    for (int64_t i = first_block * 8 + threadIdx.x; i < to.n_blocks * 8;
         i += n_threads) {  // a block of 32 k has two steps of four lanes each
        gpu::store_8(fragment_at(to.fragments, to.n_tiles, i / 4, token, static_cast<int>(i % 4)), {});
        if (to.sums != nullptr && i % 8 == 0) to.sums[(i / 8 * to.n_tiles + token / 8) * 8 + token % 8] = 0.0F;
    }
}

// Joins the states of a wave of n_chunks KV chunks for one query per thread block (join_chunks()). Grid: n_queries.
// Thread block: head_dim rounded up to whole warps, at most 256. Shared memory: keep, take, l and running maximum,
// [threads] each, and 8 totals of warps.
__global__ void __launch_bounds__(256)
    join_states(const AttentionLaunch a, const int n_chunks, const float* start, float* state) {
    const int n_threads = static_cast<int>(blockDim.x);
    const int thread = static_cast<int>(threadIdx.x);
    const auto keeps = gpu::dynamic_shared<float>(0);
    const auto takes = keeps + n_threads;
    const auto sums = takes + n_threads;
    const auto maxima = sums + n_threads;
    const auto totals = maxima + n_threads;
    const int64_t n_queries = int64_t{a.n_tokens} * a.n_q_heads;
    const int64_t query = blockIdx.x;
    const int d = a.head_dim;
    const float* chunk_m = a.wave_m + query * a.wave_chunks;
    const float* chunk_l = a.wave_l + query * a.wave_chunks;

    for (int first_column = 0; first_column < d; first_column += n_threads) {
        const int column = first_column + thread;
        const bool there = column < d;
        const StateStart fresh(start == nullptr ? a.sinks : nullptr, query % a.n_q_heads);
        float m = start != nullptr ? start[n_queries * d + query] : fresh.m;
        float l = start != nullptr ? start[n_queries * (d + 1) + query] : fresh.l;
        float o = start != nullptr && there ? start[query * d + column] : 0.0F;
        for (int first = 0; first < n_chunks; first += n_threads) {
            gpu::sync_threads();  // all threads have read the previous segment before it is overwritten
            const int n = gpu::min(n_threads, n_chunks - first);
            const float own = thread < n ? chunk_m[first + thread] : kNothingSeen;
            maxima[thread] = fmaxf(m, prefix_maximum(own, totals));
            gpu::sync_threads();
            const float before = thread == 0 ? m : maxima[thread - 1];
            keeps[thread] = 1.0F;
            takes[thread] = kSkipped;
            if (own != kNothingSeen) {
                const FoldFactors f = fold_factors(before, own);
                keeps[thread] = f.keep;
                takes[thread] = f.take;
            }
            sums[thread] = thread < n ? chunk_l[first + thread] : 0.0F;
            gpu::sync_threads();
            const float* part = a.wave_o + (first * n_queries + query) * d + (there ? column : 0);
            const int64_t step = n_queries * d;
            for (int i = 0; i < n; i += kBatch) {
                float values[kBatch];  // loaded together
#pragma unroll
                for (int j = 0; j < kBatch; ++j) {
                    values[j] = i + j < n ? *part : 0.0F;
                    part += step;
                }
#pragma unroll
                for (int j = 0; j < kBatch; ++j) {  // entries from n on are no KV chunks: kSkipped
                    const float take = takes[i + j];
                    const float keep = keeps[i + j];
                    const float new_o = fold_sum(o, values[j], keep, take);
                    const float new_l = fold_sum(l, sums[i + j], keep, take);
                    o = take == kSkipped ? o : new_o;
                    l = take == kSkipped ? l : new_l;
                }
            }
            m = maxima[n - 1];
        }
        const int64_t token = query / a.n_q_heads;
        const int64_t k = query % a.n_q_heads * d + column;
        if (there && state == nullptr) a.out[token * a.out_stride + k] = o / l;
        if (state == nullptr && a.prepare.fragments != nullptr && first_column + thread / 32 * 32 < d)
            prepare_columns(a.prepare, k / 32, token, o / l);
        if (there && state != nullptr) state[query * d + column] = o;
        if (state != nullptr && first_column + n_threads >= d) {
            gpu::sync_threads();  // so that every thread has read m and l: `state` may be `start`
            if (thread == 0) {
                state[n_queries * d + query] = m;
                state[n_queries * (d + 1) + query] = l;
            }
        }
    }
    if (state == nullptr && a.prepare.fragments != nullptr && query % a.n_q_heads == a.n_q_heads - 1)
        prepare_zeros(a.prepare, int64_t{a.n_q_heads} * d / 32, query / a.n_q_heads);
}

}  // namespace

void join_chunks(const AttentionLaunch& a, int n_chunks, const float* start, float* out, void* stream) {
    const int rounded = (a.head_dim + 31) / 32 * 32;
    const int threads = rounded < 256 ? rounded : 256;
    gpu::launch(join_states, dim3(static_cast<unsigned>(a.n_queries())), dim3(static_cast<unsigned>(threads)),
                (4 * static_cast<size_t>(threads) + 8) * sizeof(float), stream, a, n_chunks, start, out);
}

}  // namespace slipstream::cuda
