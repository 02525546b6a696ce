// Attention in plain float arithmetic: for F32 caches and for head sizes that the tensor core kernels do not support.
// An element of a Q8 row is code * scale. One warp per query; the query heads of a query group share nothing. Not made
// for speed.
//
// Order, per step of 64 slots: lane i scores slots i and i + 32, q . k by fused multiply-adds, ascending; then softcap,
// maximum, weights and factors as in attention_warp.cuh; a lane adds its two weights to its part of l, in slot order;
// each element of o takes the visible slots by fused multiply-adds, ascending. At the end of a KV chunk l is summed
// over the lanes (xor 16, 8, 4, 2, 1). Masked slots are not read.
#include "gpu.cuh"
#include "kernels/cuda/attention/attention_launch.h"
#include "kernels/cuda/attention/attention_parts.h"
#include "kernels/cuda/attention/attention_steps.cuh"
#include "kernels/cuda/attention/attention_warp.cuh"
#include "kernels/cuda/q8_rows.cuh"
#include "kernels/cuda/widen.cuh"

namespace slipstream::cuda {

namespace {

// Where one query finds its keys and values.
template <class Kv>
struct Rows {
    const AttentionLaunch& a;
    int token;
    int kv_head;
    AttentionPlace place;

    // Returns the row of a position: of the keys (part 0) or of the values (part 1).
    __device__ __forceinline__ const Kv* at(int position, int part) const {
        const int d = a.head_dim;
        if (position < place.n_committed) {
            const auto* chunk = reinterpret_cast<const Kv*>(a.chunks[position / kChunkSlots - place.table_first]);
            return chunk + ((int64_t{kv_head} * 2 + part) * kChunkSlots + position % kChunkSlots) * d;
        }
        const int row = a.path_rows[a.path_begin[token] + position - place.n_committed];
        const auto* scratch = reinterpret_cast<const Kv*>(part == 0 ? a.scratch_k : a.scratch_v);
        return scratch + (int64_t{row} * a.n_kv_heads + kv_head) * d;
    }
};

/// A row of codes, read as floats.
struct Q8Row {
    const std::byte* codes;
    const gpu::Bf16* scales;
    __device__ __forceinline__ float operator[](int i) const {
        return static_cast<float>(static_cast<int8_t>(codes[i])) * widen(scales[i / kQ8BlockElements]);
    }
};
template <>
struct Rows<Q8> {
    const AttentionLaunch& a;
    int token;
    int kv_head;
    AttentionPlace place;

    __device__ __forceinline__ Q8Row at(int position, int part) const {
        const int code_bytes = q8_code_bytes(a.head_dim);
        const int row_bytes = q8_row_bytes(a.head_dim);
        const std::byte* codes;
        const std::byte* scales;
        if (position < place.n_committed) {
            const int slot = position % kChunkSlots;
            const std::byte* step =
                a.chunks[position / kChunkSlots - place.table_first] +
                ((int64_t{kv_head} * 2 + part) * kChunkSlots + slot / kStepSlots * kStepSlots) * row_bytes;
            codes = step + slot % kStepSlots * code_bytes;
            scales = step + kStepSlots * code_bytes + slot % kStepSlots * (row_bytes - code_bytes);
        } else {
            const int64_t row = a.path_rows[a.path_begin[token] + position - place.n_committed];
            codes = (part == 0 ? a.scratch_k : a.scratch_v) + (row * a.n_kv_heads + kv_head) * row_bytes;
            scales = codes + code_bytes;
        }
        return {codes, reinterpret_cast<const gpu::Bf16*>(scales)};
    }
};

// A warp's shared memory: the query, the sums of a KV chunk and of all KV chunks, [head_dim] each, and the 64 weights
// of a step. Each begins at a multiple of 16 bytes: the compiler may read 16 bytes at the end of one at once, and must
// not meet what other lanes write to the next.
struct PlainPlaces {
    gpu::SharedPtr<float> q;
    gpu::SharedPtr<float> chunk_o;
    gpu::SharedPtr<float> o;
    gpu::SharedPtr<float> weights;

    __device__ explicit PlainPlaces(int d)
        : q(gpu::dynamic_shared<float>(0)),
          chunk_o(q + padded_floats(d)),
          o(chunk_o + padded_floats(d)),
          weights(o + padded_floats(d)) {}

    __host__ __device__ static constexpr int padded_floats(int d) { return (d + 3) / 4 * 4; }
    static size_t bytes(int d) { return (3 * static_cast<size_t>(padded_floats(d)) + kStepSlots) * sizeof(float); }
};

struct PlainState {
    float m = kNothingSeen;
    float l = 0.0F;
};

// Folds slots [low, end) of the step at position `base` into the KV chunk's state; `state.l` is the lane's part. The
// whole warp must call it.
template <bool kSoftcap, class Kv>
__device__ __forceinline__ void take_plain_step(const Rows<Kv>& rows, const PlainPlaces& places, int base, int low,
                                                int end, PlainState& state) {
    const int lane = static_cast<int>(threadIdx.x);
    const int d = rows.a.head_dim;
    float scores[2];
    for (int h = 0; h < 2; ++h) {
        const int slot = lane + 32 * h;
        scores[h] = kNothingSeen;
        if (slot < low || slot >= end) continue;
        const auto k = rows.at(base + slot, 0);
        float sum = 0.0F;
        for (int i = 0; i < d; ++i) sum = gpu::fma(places.q[i], widen(k[i]), sum);
        scores[h] = sum * rows.a.scale_log2;
        if constexpr (kSoftcap) scores[h] = softcapped(scores[h], rows.a.softcap_log2);
    }
    float best = fmaxf(scores[0], scores[1]);
    for (int mask = 16; mask > 0; mask /= 2) best = fmaxf(best, gpu::shfl_xor(best, mask));
    best = fmaxf(best, state.m);
    const float from = best == kNothingSeen ? 0.0F : best;
    const float keep = gpu::exp2_approx(state.m - from);
    state.m = best;
    state.l = state.l * keep;
    for (int h = 0; h < 2; ++h) {
        const float weight = gpu::exp2_approx(scores[h] - from);
        places.weights[lane + 32 * h] = weight;
        state.l = state.l + weight;
    }
    gpu::sync_warp();
    for (int i = lane; i < d; i += 32) {
        float sum = places.chunk_o[i] * keep;
        for (int slot = low; slot < end; ++slot)
            sum = gpu::fma(places.weights[slot], widen(rows.at(base + slot, 1)[i]), sum);
        places.chunk_o[i] = sum;
    }
    gpu::sync_warp();  // all lanes have read the weights before the next step overwrites them
}

// Reduces KV chunk `chunk` from a fresh state into places.chunk_o, and returns its m and l.
template <bool kSoftcap, class Kv>
__device__ __forceinline__ PlainState reduce_plain_chunk(const Rows<Kv>& rows, const PlainPlaces& places, int chunk) {
    const int lane = static_cast<int>(threadIdx.x);
    const int position = rows.a.positions[rows.token];
    const int lowest = rows.a.window == 0 ? 0 : gpu::max(0, position - rows.a.window + 1);
    for (int i = lane; i < rows.a.head_dim; i += 32) places.chunk_o[i] = 0.0F;
    PlainState state;
    for (int step = 0; step < kChunkSteps; ++step) {
        const int base = chunk * kChunkSlots + step * kStepSlots;
        const int low = gpu::max(0, lowest - base);
        const int end = gpu::min(kStepSlots, position + 1 - base);
        if (low < end) take_plain_step<kSoftcap>(rows, places, base, low, end, state);
    }
    for (int mask = 16; mask > 0; mask /= 2) state.l = state.l + gpu::shfl_xor(state.l, mask);
    return state;
}

template <class Kv>
__device__ __forceinline__ Rows<Kv> begin_query(const AttentionLaunch& a, const PlainPlaces& places) {
    const int token = static_cast<int>(blockIdx.x) / a.n_q_heads;
    const int head = static_cast<int>(blockIdx.x) % a.n_q_heads;
    for (int i = static_cast<int>(threadIdx.x); i < a.head_dim; i += 32)
        places.q[i] = a.q[token * a.q_stride + int64_t{head} * a.head_dim + i];
    gpu::sync_warp();
    return {a, token, head / (a.n_q_heads / a.n_kv_heads), place_of(a)};
}

// Computes the states of a wave of KV chunks. Grid: (n_queries, KV chunks of a wave), one warp per thread block.
template <bool kSoftcap, class Kv>
__global__ void __launch_bounds__(32, 16) plain_parallel(const AttentionLaunch a, const int first_chunk) {
    const PlainPlaces places(a.head_dim);
    const Rows<Kv> rows = begin_query<Kv>(a, places);
    const int slice = static_cast<int>(blockIdx.y);
    const int64_t query = blockIdx.x;
    const int64_t n_queries = int64_t{a.n_tokens} * a.n_q_heads;
    const PlainState state = reduce_plain_chunk<kSoftcap>(rows, places, rows.place.first_chunk + first_chunk + slice);
    for (int i = static_cast<int>(threadIdx.x); i < a.head_dim; i += 32)
        a.wave_o[(slice * n_queries + query) * a.head_dim + i] = places.chunk_o[i];
    if (threadIdx.x == 0) {
        a.wave_m[query * a.wave_chunks + slice] = state.m;
        a.wave_l[query * a.wave_chunks + slice] = state.l;
    }
}

// Computes the whole fold of a query. Grid: n_queries, one warp per thread block.
template <bool kSoftcap, class Kv>
__global__ void __launch_bounds__(32, 16) plain_folded(const AttentionLaunch a) {
    const PlainPlaces places(a.head_dim);
    const Rows<Kv> rows = begin_query<Kv>(a, places);
    const int lane = static_cast<int>(threadIdx.x);
    const int d = a.head_dim;
    const int64_t query = blockIdx.x;
    const int64_t n_queries = int64_t{a.n_tokens} * a.n_q_heads;
    const StateStart fresh(a.sinks, query % a.n_q_heads);
    PlainState total{fresh.m, fresh.l};
    if (a.start != nullptr) {
        total.m = a.start[n_queries * d + query];
        total.l = a.start[n_queries * (d + 1) + query];
    }
    for (int i = lane; i < d; i += 32) places.o[i] = a.start != nullptr ? a.start[query * d + i] : 0.0F;
    const int first_chunk = rows.place.first_chunk;
    for (int chunk = first_chunk; chunk < first_chunk + a.end_chunk - a.first_chunk; ++chunk) {
        const PlainState state = reduce_plain_chunk<kSoftcap>(rows, places, chunk);
        if (state.m == kNothingSeen) continue;
        const FoldFactors f = fold_factors(total.m, state.m);
        total.m = f.m;
        total.l = fold_sum(total.l, state.l, f.keep, f.take);
        for (int i = lane; i < d; i += 32) places.o[i] = fold_sum(places.o[i], places.chunk_o[i], f.keep, f.take);
    }
    if (a.out != nullptr) {
        float* out = a.out + query / a.n_q_heads * a.out_stride + query % a.n_q_heads * d;
        for (int i = lane; i < d; i += 32) out[i] = places.o[i] / total.l;
        return;
    }
    for (int i = lane; i < d; i += 32) a.state[query * d + i] = places.o[i];
    gpu::sync_warp();  // so that every lane has read m and l: `state` may be `start`
    if (lane == 0) {
        a.state[n_queries * d + query] = total.m;
        a.state[n_queries * (d + 1) + query] = total.l;
    }
}

// Launches the kernel for a wave: `n_chunks` KV chunks, beginning `first_chunk` KV chunks after the call's first one.
// Kernels without a softcap are compiled apart, so that they have no instruction more.
template <class Kv>
void start_plain(const AttentionLaunch& a, int first_chunk, int n_chunks, void* stream) {
    gpu::launch(a.softcap_log2 == 0.0F ? plain_parallel<false, Kv> : plain_parallel<true, Kv>,
                dim3(static_cast<unsigned>(a.n_queries()), static_cast<unsigned>(n_chunks)), dim3(32),
                PlainPlaces::bytes(a.head_dim), stream, a, first_chunk);
}
template <class Kv>
void start_plain(const AttentionLaunch& a, void* stream) {
    gpu::launch(a.softcap_log2 == 0.0F ? plain_folded<false, Kv> : plain_folded<true, Kv>,
                dim3(static_cast<unsigned>(a.n_queries())), dim3(32), PlainPlaces::bytes(a.head_dim), stream, a);
}

}  // namespace

void parallel_plain(const AttentionLaunch& a, int first_chunk, int n_chunks, void* stream) {
    switch (a.type) {
        case KvType::F32:
            return start_plain<float>(a, first_chunk, n_chunks, stream);
        case KvType::F16:
            return start_plain<gpu::Half>(a, first_chunk, n_chunks, stream);
        case KvType::BF16:
            return start_plain<gpu::Bf16>(a, first_chunk, n_chunks, stream);
        case KvType::Q8:
            return start_plain<Q8>(a, first_chunk, n_chunks, stream);
    }
}

void folded_plain(const AttentionLaunch& a, void* stream) {
    switch (a.type) {
        case KvType::F32:
            return start_plain<float>(a, stream);
        case KvType::F16:
            return start_plain<gpu::Half>(a, stream);
        case KvType::BF16:
            return start_plain<gpu::Bf16>(a, stream);
        case KvType::Q8:
            return start_plain<Q8>(a, stream);
    }
}

}  // namespace slipstream::cuda
