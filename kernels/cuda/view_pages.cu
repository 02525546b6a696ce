// View pages: rows rounded to 4 bits, and attention over them.
//
// Attention: a thread block takes a chunk of four pages of a kv head, and up to eight queries. Order of a query's
// arithmetic: in scores, lane l of a page's warp has word l % 8 of the dimensions l / 8, l / 8 + 4, ...; it adds (q *
// scale) * code for eight slots, and q * minimum, by fused multiply-adds, ascending; lanes are added (xor 8, 16), then
// the sum of the minimums. Maximum, weights and l of the chunk's 256 slots: a lane has slots l, l + 32, ..., ascending,
// then lanes (xor 16, 8, 4, 2, 1); so too the sum of weight * minimum of the values. An element of o begins with that
// sum, and takes (weight * scale) * code of the slots by fused multiply-adds, ascending. join_chunks() folds the
// chunks. So the bits of a query do not depend on the other queries.
#include <type_traits>

#include "gpu.cuh"
#include "kernels/cuda/attention/attention_parts.h"
#include "kernels/cuda/attention/attention_warp.cuh"
#include "kernels/cuda/page_code.cuh"
#include "kernels/cuda/q8_rows.cuh"
#include "kernels/cuda/softcap.cuh"
#include "kernels/cuda/view_pages_launch.h"
#include "kernels/cuda/widen.cuh"

namespace slipstream::cuda {

namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;
constexpr int kChunkPages = 4;
constexpr int kChunkSlots = kChunkPages * kPageSlotCount;
// A warp scores a page.
static_assert(kWarps == kChunkPages && kStepSlots == kPageSlotCount);

// Returns element `e` of slot `slot` of a step's rows of type Kv (int8_t: Q8).
template <class Kv>
__device__ __forceinline__ float element_at(const std::byte* rows, int d, int slot, int e) {
    if constexpr (std::is_same_v<Kv, int8_t>) {
        const auto* scales =
            reinterpret_cast<const gpu::Bf16*>(rows + kPageSlotCount * q8_code_bytes(d) + slot * q8_scale_bytes(d));
        return page_limited(static_cast<float>(reinterpret_cast<const int8_t*>(rows)[slot * q8_code_bytes(d) + e]) *
                            widen(scales[e / kQ8BlockElements]));
    } else {
        return page_limited(widen(reinterpret_cast<const Kv*>(rows)[slot * d + e]));
    }
}

__device__ __forceinline__ void store_half(std::byte* at, int index, uint16_t bits) {
    reinterpret_cast<uint16_t*>(at)[index] = bits;
}

// Rounds keys: a thread takes a dimension.
template <class Kv>
__device__ __forceinline__ void write_keys(const PagePlace& fill, int d, std::byte* page) {
    for (int e = static_cast<int>(threadIdx.x); e < d; e += kThreads) {
        float least = element_at<Kv>(fill.k, d, 0, e);
        float largest = least;
        for (int slot = 1; slot < fill.n_slots; ++slot) {
            const float x = element_at<Kv>(fill.k, d, slot, e);
            least = fminf(least, x);
            largest = fmaxf(largest, x);
        }
        const uint16_t minimum = page_minimum_bits(least);
        const uint16_t scale = page_scale_bits(largest, minimum);
        store_half(page + page_scales_at(d), e, scale);
        store_half(page + page_minimums_at(d), e, minimum);
        const float factor = page_inverse(scale);
        for (int i = 0; i < kWordCodes; ++i) {
            uint32_t word = 0;
            for (int n = 0; n < kWordCodes; ++n) {
                const int slot = i + kWordCodes * n;
                if (slot < fill.n_slots)
                    word |= page_code_bits(element_at<Kv>(fill.k, d, slot, e), half_of(minimum), factor) << (4 * n);
            }
            reinterpret_cast<uint32_t*>(page)[e * kWordCodes + i] = word;
        }
    }
}

// Rounds values: scales and minimums of a slot by a warp, then the words of codes. Shared memory: factors and minimums,
// [64] each.
template <class Kv>
__device__ __forceinline__ void write_values(const PagePlace& fill, int d, std::byte* page) {
    const auto factors = gpu::dynamic_shared<float>();
    const auto minimums = factors + kPageSlotCount;
    const int lane = static_cast<int>(threadIdx.x % 32);
    for (int slot = static_cast<int>(threadIdx.x / 32); slot < kPageSlotCount; slot += kWarps) {
        uint16_t minimum = 0;
        uint16_t scale = 0;
        if (slot < fill.n_slots) {  // the same for the whole warp
            float least = INFINITY;
            float largest = -INFINITY;
            for (int e = lane; e < d; e += 32) {
                const float x = element_at<Kv>(fill.v, d, slot, e);
                least = fminf(least, x);
                largest = fmaxf(largest, x);
            }
            for (int mask = 16; mask > 0; mask /= 2) {
                least = fminf(least, gpu::shfl_xor(least, mask));
                largest = fmaxf(largest, gpu::shfl_xor(largest, mask));
            }
            minimum = page_minimum_bits(least);
            scale = page_scale_bits(largest, minimum);
        }
        if (lane == 0) {
            store_half(page + page_value_scales_at(d), slot, scale);
            store_half(page + page_value_minimums_at(d), slot, minimum);
            factors[slot] = page_inverse(scale);
            minimums[slot] = half_of(minimum);
        }
    }
    gpu::sync_threads();
    auto* words = reinterpret_cast<uint32_t*>(page + page_values_at(d));
    for (int at = static_cast<int>(threadIdx.x); at < kWordCodes * d; at += kThreads) {
        const int first = at / d * kWordCodes;
        uint32_t word = 0;
        for (int n = 0; n < kWordCodes; ++n)
            if (first + n < fill.n_slots)
                word |= page_code_bits(element_at<Kv>(fill.v, d, first + n, at % d), minimums[first + n],
                                       factors[first + n])
                        << (4 * n);
        words[at] = word;
    }
    if (d % 2 != 0 && threadIdx.x < kWordCodes) words[kWordCodes * d + static_cast<int>(threadIdx.x)] = 0;
}

// Rounds rows to pages. Grid: fills.
template <class Kv>
__global__ void __launch_bounds__(kThreads) write_pages(const PagesWriteLaunch a) {
    const PagePlace fill = a.fills[blockIdx.x];
    std::byte* page = a.pages + fill.page * page_bytes(a.head_dim);
    write_keys<Kv>(fill, a.head_dim, page);
    write_values<Kv>(fill, a.head_dim, page);
}

// Adds q . k of the slots of a page for Batch queries: sum[i][n] is query i, slot lane % 8 + 8 n, in all lanes that
// have it. `q`: [Batch][pitch]. Whole warps only.
template <int Batch>
__device__ __forceinline__ void score_page(const std::byte* page, int d, gpu::SharedPtr<float> q, int pitch,
                                           float (&sum)[Batch][kWordCodes]) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    float of_minimums[Batch];
#pragma unroll
    for (int i = 0; i < Batch; ++i) {
        of_minimums[i] = 0.0F;
#pragma unroll
        for (int n = 0; n < kWordCodes; ++n) sum[i][n] = 0.0F;
    }
    const std::byte* words = page + lane % 8 * 4;
    const std::byte* scales = page + page_scales_at(d);
    const std::byte* minimums = page + page_minimums_at(d);
#pragma unroll 4
    for (int e = lane / 8; e < d; e += 4) {
        const uint32_t word = gpu::load_4(words + e * (kWordCodes * 4));
        const float scale = half_of(gpu::load_2(scales + 2 * e));
        const float minimum = half_of(gpu::load_2(minimums + 2 * e));
        float scaled[Batch];
#pragma unroll
        for (int i = 0; i < Batch; ++i) {
            const float query = q[i * pitch + e];
            scaled[i] = query * scale;
            of_minimums[i] = gpu::fma(query, minimum, of_minimums[i]);
        }
#pragma unroll
        for (int n = 0; n < kWordCodes; ++n) {
            const float code = code_of(word, n);
#pragma unroll
            for (int i = 0; i < Batch; ++i) sum[i][n] = gpu::fma(scaled[i], code, sum[i][n]);
        }
    }
#pragma unroll
    for (int i = 0; i < Batch; ++i) {
        of_minimums[i] = of_minimums[i] + gpu::shfl_xor(of_minimums[i], 8);
        of_minimums[i] = of_minimums[i] + gpu::shfl_xor(of_minimums[i], 16);
#pragma unroll
        for (int n = 0; n < kWordCodes; ++n) {
            sum[i][n] = sum[i][n] + gpu::shfl_xor(sum[i][n], 8);
            sum[i][n] = sum[i][n] + gpu::shfl_xor(sum[i][n], 16);
            sum[i][n] = sum[i][n] + of_minimums[i];
        }
    }
}

// m and l of a query over a chunk, and the sum of weight * minimum of its values; in all lanes.
struct ChunkSums {
    float m;
    float l;
    float of_minimums;
};
// Replaces the scores of the first n slots of a chunk by weights times the scales of their values, those of the other
// slots of its pages by 0. Whole warps only.
template <bool kSoftcap>
__device__ __forceinline__ ChunkSums weigh_chunk(const AttentionLaunch& a, const std::byte* pages, int n,
                                                 gpu::SharedPtr<float> scores) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    const int d = a.head_dim;
    float t[kChunkSlots / 32];
    float best = kNothingSeen;
#pragma unroll
    for (int i = 0; i < kChunkSlots / 32; ++i) {
        const int slot = lane + 32 * i;
        t[i] = kNothingSeen;
        if (slot < n) {
            t[i] = scores[slot] * a.scale_log2;
            if constexpr (kSoftcap) t[i] = softcapped(t[i], a.softcap_log2);
        }
        best = fmaxf(best, t[i]);
    }
    for (int mask = 16; mask > 0; mask /= 2) best = fmaxf(best, gpu::shfl_xor(best, mask));
    const float from = best == kNothingSeen ? 0.0F : best;
    float l = 0.0F;
    float of_minimums = 0.0F;
#pragma unroll
    for (int i = 0; i < kChunkSlots / 32; ++i) {
        const int slot = lane + 32 * i;
        const float weight = gpu::exp2_approx(t[i] - from);
        float scaled = 0.0F;
        if (slot < n) {
            const std::byte* page = pages + slot / kPageSlotCount * page_bytes(d);
            const int in_page = slot % kPageSlotCount;
            l = l + weight;
            scaled = weight * half_of(gpu::load_2(page + page_value_scales_at(d) + 2 * in_page));
            of_minimums =
                gpu::fma(weight, half_of(gpu::load_2(page + page_value_minimums_at(d) + 2 * in_page)), of_minimums);
        }
        scores[slot] = scaled;
    }
    for (int mask = 16; mask > 0; mask /= 2) {
        l = l + gpu::shfl_xor(l, mask);
        of_minimums = of_minimums + gpu::shfl_xor(of_minimums, mask);
    }
    return {best, l, of_minimums};
}

// Returns the pitch of queries in shared memory, in floats.
__host__ __device__ constexpr int query_pitch(int d) {
    return (d + 3) / 4 * 4;
}

// Computes the states of a wave of chunks. Grid: (chunks of the wave, kv heads, batches of queries of a kv head).
// Shared memory: weights [Batch][256], queries [Batch][pitch], sums of minimums [Batch].
template <int Batch, bool kSoftcap>
__global__ void __launch_bounds__(kThreads, 4) attend_pages(const PagesAttentionLaunch launch, const int first_chunk) {
    const AttentionLaunch& a = launch.fold;
    const int d = a.head_dim;
    const int pitch = query_pitch(d);
    const int thread = static_cast<int>(threadIdx.x);
    const int warp = thread / 32;
    const int lane = thread % 32;
    const int slice = static_cast<int>(blockIdx.x);
    const int kv_head = static_cast<int>(blockIdx.y);
    const int group = a.n_q_heads / a.n_kv_heads;
    const int first = static_cast<int>(blockIdx.z) * Batch;
    const int n_here = gpu::min(Batch, a.n_tokens * group - first);
    const int64_t n_queries = int64_t{a.n_tokens} * a.n_q_heads;
    // Query i of the batch, among all of the call.
    const auto query_of = [&](int i) {
        return int64_t{(first + i) / group} * a.n_q_heads + kv_head * group + (first + i) % group;
    };
    const int chunk = first_chunk + slice;
    const int n = gpu::min(kChunkSlots, launch.ranges[2 * kv_head + 1] - chunk * kChunkSlots);
    if (n <= 0) {
        if (thread < n_here) {
            a.wave_m[query_of(thread) * a.wave_chunks + slice] = kNothingSeen;
            a.wave_l[query_of(thread) * a.wave_chunks + slice] = 0.0F;
        }
        return;
    }
    const std::byte* pages =
        launch.pages + (int64_t{launch.ranges[2 * kv_head]} + int64_t{chunk} * kChunkPages) * page_bytes(d);
    const auto weights = gpu::dynamic_shared<float>();
    const auto q = weights + Batch * kChunkSlots;
    const auto minimums = q + Batch * pitch;
    for (int at = thread; at < Batch * d; at += kThreads) {
        const int i = at / d;
        const int e = at % d;
        float query = 0.0F;
        if (i < n_here)
            query = a.q[(first + i) / group * a.q_stride + int64_t{kv_head * group + (first + i) % group} * d + e];
        q[i * pitch + e] = query;
    }
    gpu::sync_threads();
    if (warp * kPageSlotCount < n) {  // the same for the whole warp
        float sum[Batch][kWordCodes];
        score_page<Batch>(pages + warp * page_bytes(d), d, q, pitch, sum);
#pragma unroll
        for (int i = 0; i < Batch; ++i)
#pragma unroll
            for (int at = 0; at < kWordCodes; ++at)
                if (at / 2 == lane / 8)
                    weights[i * kChunkSlots + warp * kPageSlotCount + kWordCodes * at + lane % 8] = sum[i][at];
    }
    gpu::sync_threads();
    for (int i = warp; i < Batch; i += kWarps) {
        const ChunkSums sums = weigh_chunk<kSoftcap>(a, pages, n, weights + i * kChunkSlots);
        if (lane == 0) {
            minimums[i] = sums.of_minimums;
            if (i < n_here) {
                a.wave_m[query_of(i) * a.wave_chunks + slice] = sums.m;
                a.wave_l[query_of(i) * a.wave_chunks + slice] = sums.l;
            }
        }
    }
    gpu::sync_threads();
    const int n_rows = (n + kWordCodes - 1) / kWordCodes;  // rows of words of values that have a slot
    for (int e = thread; e < d; e += kThreads) {
        float o[Batch];
#pragma unroll
        for (int i = 0; i < Batch; ++i) o[i] = minimums[i];
#pragma unroll 4
        for (int row = 0; row < n_rows; ++row) {
            const std::byte* page = pages + row / kWordCodes * page_bytes(d);
            const uint32_t word = gpu::load_4(page + page_values_at(d) + (int64_t{row % kWordCodes} * d + e) * 4);
#pragma unroll
            for (int half = 0; half < kWordCodes; half += 4) {
                float codes[4];
#pragma unroll
                for (int at = 0; at < 4; ++at) codes[at] = code_of(word, half + at);
#pragma unroll
                for (int i = 0; i < Batch; ++i) {
                    const gpu::U32x4 four = gpu::load_shared_16(weights + (i * kChunkSlots + row * kWordCodes + half));
#pragma unroll
                    for (int at = 0; at < 4; ++at)
                        o[i] = gpu::fma(__builtin_bit_cast(float, four.x[at]), codes[at], o[i]);
                }
            }
        }
#pragma unroll
        for (int i = 0; i < Batch; ++i)
            if (i < n_here) a.wave_o[(slice * n_queries + query_of(i)) * d + e] = o[i];
    }
}

template <int Batch>
void start_batches(const PagesAttentionLaunch& launch, int n_per_head, int first_chunk, int n_chunks, void* stream) {
    const AttentionLaunch& a = launch.fold;
    const size_t floats = static_cast<size_t>(Batch) * static_cast<size_t>(kChunkSlots + query_pitch(a.head_dim) + 1);
    gpu::launch(a.softcap_log2 == 0.0F ? attend_pages<Batch, false> : attend_pages<Batch, true>,
                dim3(static_cast<unsigned>(n_chunks), static_cast<unsigned>(a.n_kv_heads),
                     static_cast<unsigned>((n_per_head + Batch - 1) / Batch)),
                dim3(kThreads), floats * sizeof(float), stream, launch, first_chunk);
}

// Launches the kernel for batches of as many queries as leave the fewest places empty.
void start_pages(const PagesAttentionLaunch& launch, int first_chunk, int n_chunks, void* stream) {
    const int n = launch.fold.n_tokens * (launch.fold.n_q_heads / launch.fold.n_kv_heads);
    int batch = 1;
    for (const int other : {2, 3, 4, 6, 8})
        if ((n + other - 1) / other * other <= (n + batch - 1) / batch * batch + batch - 1) batch = other;
    switch (batch) {
        case 1:
            return start_batches<1>(launch, n, first_chunk, n_chunks, stream);
        case 2:
            return start_batches<2>(launch, n, first_chunk, n_chunks, stream);
        case 3:
            return start_batches<3>(launch, n, first_chunk, n_chunks, stream);
        case 4:
            return start_batches<4>(launch, n, first_chunk, n_chunks, stream);
        case 6:
            return start_batches<6>(launch, n, first_chunk, n_chunks, stream);
        default:
            return start_batches<8>(launch, n, first_chunk, n_chunks, stream);
    }
}

template <class Kv>
void start_write(const PagesWriteLaunch& a, void* stream) {
    gpu::launch(write_pages<Kv>, dim3(static_cast<unsigned>(a.n_fills)), dim3(kThreads),
                2 * kPageSlotCount * sizeof(float), stream, a);
}

}  // namespace

void launch_pages_write(const PagesWriteLaunch& a, void* stream) {
    switch (a.type) {
        case KvType::F32:
            return start_write<float>(a, stream);
        case KvType::F16:
            return start_write<gpu::Half>(a, stream);
        case KvType::BF16:
            return start_write<gpu::Bf16>(a, stream);
        case KvType::Q8:
            return start_write<int8_t>(a, stream);
    }
}

void launch_pages_attention(const PagesAttentionLaunch& launch, void* stream) {
    launch_waves(
        launch.fold, [&](int first_chunk, int n_chunks) { start_pages(launch, first_chunk, n_chunks, stream); },
        stream);
}

}  // namespace slipstream::cuda
