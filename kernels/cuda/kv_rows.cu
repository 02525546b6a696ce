// Writes KV rows to scratch, rounded to the KV type (to nearest even), with or without RoPE before it; copies them from
// scratch to committed positions; copies rows from place to place.
//
// 16-bit rows hold finite numbers only: what the type cannot hold becomes its largest number, and so does NaN.
// Attention multiplies rows that a query does not see by a weight of 0, which must give 0. So a damaged token cannot
// change the results of another; its own result is still damaged, through its query.
#include <type_traits>

#include "gpu.cuh"
#include "kernels/cuda/kv_launch.h"
#include "kernels/cuda/q8_rows.cuh"

namespace slipstream::cuda {

namespace {

constexpr int kThreads = 128;
constexpr int kChunkRows = 256;
constexpr int kStepRows = 64;

__device__ __forceinline__ void put(float* dst, float value) {
    *dst = value;
}
// Returns `value` limited to [-most, most]; NaN becomes `most`: fminf and fmaxf of a number and a NaN return the
// number.
__device__ __forceinline__ float within(float value, float most) {
    return fmaxf(fminf(value, most), -most);
}
__device__ __forceinline__ void put(gpu::Half* dst, float value) {
    dst->bits = static_cast<uint16_t>(gpu::pack_f16(within(value, 65504.0F), 0.0F));
}
__device__ __forceinline__ void put(gpu::Bf16* dst, float value) {
    dst->bits = static_cast<uint16_t>(gpu::pack_bf16(within(value, 0x1.fep127F), 0.0F));
}

// Rounds rows of K and V and stores them in scratch. Grid: (ranges of a row, tokens, keys and values).
template <class Kv>
__global__ void __launch_bounds__(kThreads) write_rows(const KvWriteLaunch a) {
    const int at = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
    if (at >= a.row_elements) return;
    const int64_t token = blockIdx.y;
    const bool values = blockIdx.z != 0;
    const float* src = values ? a.v + token * a.v_stride : a.k + token * a.k_stride;
    auto* dst = reinterpret_cast<Kv*>(values ? a.scratch_v : a.scratch_k);
    put(dst + int64_t{a.scratch_rows[token]} * a.row_elements + at, src[at]);
}

// The two elements of a head that are rotated together. Products and sums are those of turn_pairs (elementwise.cu).
struct Pair {
    int first;
    int second;
};
__device__ __forceinline__ Pair pair_of(const RotateWriteLaunch& a, int i) {
    const int half = a.n_rotated / 2;
    return a.pairs == RopePairs::Half ? Pair{i, i + half} : Pair{2 * i, 2 * i + 1};
}
__device__ __forceinline__ const float* angles_of(const RotateWriteLaunch& a, int64_t token, bool queries) {
    return queries ? a.q_cos_sin + token * a.q_cos_sin_stride : a.cos_sin + token * a.cos_sin_stride;
}
struct Turned {
    float first;
    float second;
};
__device__ __forceinline__ Turned turned(const RotateWriteLaunch& a, const float* angles, int i, float u, float v) {
    const float cosine = angles[i];
    const float sine = angles[a.n_rotated / 2 + i];
    return {u * cosine - v * sine, u * sine + v * cosine};
}

// Rotates q in place and k on its way to scratch, and stores v. Thread block: exactly kThreads threads. Grid: (ranges
// of kThreads places of a row, tokens, queries / keys / values). A thread has a pair, or an element that is not
// rotated.
template <class Kv>
__global__ void __launch_bounds__(kThreads) rotate_write_rows(const RotateWriteLaunch a) {
    const int at = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
    const int64_t token = blockIdx.y;
    const int half = a.n_rotated / 2;
    const float* angles = angles_of(a, token, blockIdx.z == 0);
    if (blockIdx.z == 0) {
        if (at >= a.n_q_heads * half) return;
        float* head = a.q + token * a.q_stride + at / half * a.write.head_dim;
        const Pair pair = pair_of(a, at % half);
        const Turned to = turned(a, angles, at % half, head[pair.first], head[pair.second]);
        head[pair.first] = to.first;
        head[pair.second] = to.second;
        return;
    }
    const int64_t row = int64_t{a.write.scratch_rows[token]} * a.write.row_elements;
    if (blockIdx.z == 2) {
        if (at >= a.write.row_elements) return;
        put(reinterpret_cast<Kv*>(a.write.scratch_v) + row + at, a.write.v[token * a.write.v_stride + at]);
        return;
    }
    const int places = a.write.head_dim - half;  // threads that a head needs
    if (at >= a.write.row_elements / a.write.head_dim * places) return;
    const int64_t first = at / places * a.write.head_dim;
    const float* head = a.write.k + token * a.write.k_stride + first;
    Kv* to = reinterpret_cast<Kv*>(a.write.scratch_k) + row + first;
    const int place = at % places;
    if (place >= half) {
        put(to + half + place, head[half + place]);
        return;
    }
    const Pair pair = pair_of(a, place);
    const Turned key = turned(a, angles, place, head[pair.first], head[pair.second]);
    put(to + pair.first, key.first);
    put(to + pair.second, key.second);
}

// Returns the factor of a head's norm, computed as by norm_rows<32> (elementwise.cu): element i belongs to lane i / 4
// mod 32. Whole warps only.
__device__ __forceinline__ float norm_factor(const float* head, int d, float eps) {
    float squares = 0.0F;
    for (int at = 4 * static_cast<int>(threadIdx.x % 32); at < d; at += 128)
        for (int e = 0; e < 4 && at + e < d; ++e) squares = gpu::fma(head[at + e], head[at + e], squares);
    for (int mask = 16; mask > 0; mask /= 2) squares = squares + gpu::shfl_xor(squares, mask);
    return 1.0F / sqrtf(squares / static_cast<float>(d) + eps);
}

// Stores rows of elements of Kv in scratch, an element at a time.
template <class Kv>
class HeadRow {
public:
    // `row`: the scratch row; `head`: kv head.
    __device__ __forceinline__ HeadRow(const KvWriteLaunch& a, std::byte* scratch, int64_t row, int head)
        : to_(reinterpret_cast<Kv*>(scratch) + row * a.row_elements + int64_t{head} * a.head_dim) {}
    // Calls each(store), which calls store(i, value) for the elements that the lane has. Whole warps only.
    template <class Each>
    __device__ __forceinline__ void fill(const Each& each) {
        each([this](int i, float value) { put(to_ + i, value); });
    }

private:
    Kv* to_;
};

// Stores a row of Q8 in scratch. The elements of a block may belong to any lanes, so they pass through shared memory:
// [warps of the thread block][head_dim] floats.
template <>
class HeadRow<Q8> {
public:
    __device__ __forceinline__ HeadRow(const KvWriteLaunch& a, std::byte* scratch, int64_t row, int head)
        : d_(a.head_dim), to_(scratch + (row * (a.row_elements / a.head_dim) + head) * q8_row_bytes(a.head_dim)) {}
    template <class Each>
    __device__ __forceinline__ void fill(const Each& each) {
        const auto values = gpu::dynamic_shared<float>() + static_cast<int>(threadIdx.x / 32) * d_;
        each([&](int i, float value) { values[i] = q8_limited(value); });
        gpu::sync_warp();
        const int lane = static_cast<int>(threadIdx.x % 32);
        auto* scales = reinterpret_cast<uint16_t*>(to_ + q8_code_bytes(d_));
        for (int first = 0; first < d_; first += kQ8BlockElements) {
            const int i = first + lane;
            const float value = i < d_ ? values[i] : 0.0F;
            float most = fabsf(value);
            for (int mask = 16; mask > 0; mask /= 2) most = fmaxf(most, gpu::shfl_xor(most, mask));
            const uint32_t bits = q8_scale_bits(most);
            const float factor = q8_inverse(bits);
            if (i < q8_code_bytes(d_)) to_[i] = q8_code_bits(value, factor);
            if (lane == 0) scales[first / kQ8BlockElements] = static_cast<uint16_t>(bits);
        }
        const int n_scales = (d_ + kQ8BlockElements - 1) / kQ8BlockElements;
        if (lane == 0 && n_scales % 2 != 0) scales[n_scales] = 0;
    }

private:
    int d_;
    std::byte* to_;
};

// Stores rows in scratch, a warp per head. Grid: (heads / 4, tokens, keys / values).
template <class Kv>
__global__ void __launch_bounds__(kThreads) write_heads(const KvWriteLaunch a) {
    const int head = static_cast<int>(blockIdx.x * (kThreads / 32) + threadIdx.x / 32);
    if (head >= a.row_elements / a.head_dim) return;  // whole warps return, and no barrier follows
    const int64_t token = blockIdx.y;
    const bool values = blockIdx.z != 0;
    const float* from = (values ? a.v + token * a.v_stride : a.k + token * a.k_stride) + int64_t{head} * a.head_dim;
    HeadRow<Kv>(a, values ? a.scratch_v : a.scratch_k, a.scratch_rows[token], head).fill([&](const auto& store) {
        for (int i = static_cast<int>(threadIdx.x % 32); i < a.head_dim; i += 32) store(i, from[i]);
    });
}

// Norms the heads of q and k, if there are weights for it; then rotates q in place and k on its way to scratch, and
// stores v. A warp has a head of queries or keys, or a head of values. Grid: (heads / 4, tokens, queries / keys /
// values).
template <class Kv>
__global__ void __launch_bounds__(kThreads) norm_rotate_write_rows(const RotateWriteLaunch a) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    const int head = static_cast<int>(blockIdx.x * (kThreads / 32) + threadIdx.x / 32);
    const int64_t token = blockIdx.y;
    const bool queries = blockIdx.z == 0;
    const int d = a.write.head_dim;
    if (head >= (queries ? a.n_q_heads : a.write.row_elements / d)) return;  // whole warps return; no barrier follows
    const int64_t row = a.write.scratch_rows[token];
    if (blockIdx.z == 2) {
        const float* values = a.write.v + token * a.write.v_stride + int64_t{head} * d;
        HeadRow<Kv>(a.write, a.write.scratch_v, row, head).fill([&](const auto& store) {
            for (int i = lane; i < d; i += 32) store(i, values[i]);
        });
        return;
    }
    float* in_place = a.q + token * a.q_stride + int64_t{head} * d;  // a query's head; unused for keys
    const float* from = queries ? in_place : a.write.k + token * a.write.k_stride + int64_t{head} * d;
    const float* weight = queries ? a.q_norm : a.k_norm;
    const float factor = weight == nullptr ? 1.0F : norm_factor(from, d, a.eps);
    const auto normed = [&](int i) { return weight == nullptr ? from[i] : from[i] * factor * weight[i]; };
    const float* angles = angles_of(a, token, queries);
    const auto each = [&](const auto& store) {
        for (int i = lane; i < a.n_rotated / 2; i += 32) {
            const Pair pair = pair_of(a, i);
            const Turned to = turned(a, angles, i, normed(pair.first), normed(pair.second));
            store(pair.first, to.first);
            store(pair.second, to.second);
        }
        for (int i = a.n_rotated + lane; i < d; i += 32) store(i, normed(i));
    };
    if (queries) {
        each([&](int i, float value) { in_place[i] = value; });
    } else {
        HeadRow<Kv>(a.write, a.write.scratch_k, row, head).fill(each);
    }
}

// Copies scratch rows to committed positions, a word of four bytes per thread. Grid: (ranges of a row, rows, keys and
// values of each layer).
template <bool kScales>
__global__ void __launch_bounds__(kThreads) commit_rows(const KvCommitLaunch a) {
    const int at = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
    const int row_words = a.n_kv_heads * a.head_words;
    if (at >= row_words) return;
    const int64_t position = a.first_position + blockIdx.y;
    const int64_t chunk = position / kChunkRows - a.first_position / kChunkRows;
    const int part = static_cast<int>(blockIdx.z % 2);
    const int64_t layer = blockIdx.z / 2;
    const auto* src =
        reinterpret_cast<const uint32_t*>((part == 0 ? a.scratch_k : a.scratch_v) + layer * a.layer_bytes) +
        int64_t{a.scratch_rows[blockIdx.y]} * row_words;
    auto* dst = reinterpret_cast<uint32_t*>(a.chunks[layer * a.n_chunks + chunk]);
    const int64_t rows_before = (int64_t{at / a.head_words} * 2 + part) * kChunkRows;
    const int slot = static_cast<int>(position % kChunkRows);
    const int word = at % a.head_words;
    if constexpr (kScales) {
        const int code_words = a.head_words - a.scale_words;
        dst += (rows_before + slot / kStepRows * kStepRows) * a.head_words;
        dst[word < code_words ? slot % kStepRows * code_words + word
                              : kStepRows * code_words + slot % kStepRows * a.scale_words + word - code_words] =
            src[at];
    } else {
        dst[(rows_before + slot) * a.head_words + word] = src[at];
    }
}

// Copies rows between planes, a word of four bytes per thread. Grid: (ranges of a row, rows, planes).
__global__ void __launch_bounds__(kThreads) copy_rows(const MoveRowsLaunch a) {
    const int at = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
    if (at >= a.row_words) return;
    const int64_t from = blockIdx.z * a.src_plane_words + int64_t{a.src_rows[blockIdx.y]} * a.row_words + at;
    const int64_t to = blockIdx.z * a.dst_plane_words + int64_t{a.dst_rows[blockIdx.y]} * a.row_words + at;
    reinterpret_cast<uint32_t*>(a.dst)[to] = reinterpret_cast<const uint32_t*>(a.src)[from];
}

unsigned pieces(int n) {
    return static_cast<unsigned>((n + kThreads - 1) / kThreads);
}

template <class Kv>
void start_write(const KvWriteLaunch& a, void* stream) {
    gpu::launch(write_rows<Kv>, dim3(pieces(a.row_elements), static_cast<unsigned>(a.n_tokens), 2), dim3(kThreads), 0,
                stream, a);
}

// Returns the bytes of shared memory of a thread block that writes heads of `head_dim` elements: for Q8
// [warps][head_dim] floats, else none.
template <class Kv>
size_t head_shared_bytes(int head_dim) {
    return std::is_same_v<Kv, Q8> ? kThreads / 32 * static_cast<size_t>(head_dim) * sizeof(float) : 0;
}

template <>
void start_write<Q8>(const KvWriteLaunch& a, void* stream) {
    gpu::launch(write_heads<Q8>, dim3(pieces(a.row_elements / a.head_dim * 32), static_cast<unsigned>(a.n_tokens), 2),
                dim3(kThreads), head_shared_bytes<Q8>(a.head_dim), stream, a);
}

template <class Kv>
void start_norm_rotate_write(const RotateWriteLaunch& a, void* stream) {
    const int n_kv_heads = a.write.row_elements / a.write.head_dim;
    const int most = a.n_q_heads > n_kv_heads ? a.n_q_heads : n_kv_heads;
    gpu::launch(norm_rotate_write_rows<Kv>, dim3(pieces(most * 32), static_cast<unsigned>(a.write.n_tokens), 3),
                dim3(kThreads), head_shared_bytes<Kv>(a.write.head_dim), stream, a);
}

template <class Kv>
void start_rotate_write(const RotateWriteLaunch& a, void* stream) {
    if (a.q_norm != nullptr) return start_norm_rotate_write<Kv>(a, stream);
    const int n_pairs = a.n_q_heads * (a.n_rotated / 2);
    const int widest = n_pairs > a.write.row_elements ? n_pairs : a.write.row_elements;
    gpu::launch(rotate_write_rows<Kv>, dim3(pieces(widest), static_cast<unsigned>(a.write.n_tokens), 3), dim3(kThreads),
                0, stream, a);
}

}  // namespace

void launch_rotate_write(const RotateWriteLaunch& a, void* stream) {
    switch (a.write.type) {
        case KvType::F32:
            return start_rotate_write<float>(a, stream);
        case KvType::F16:
            return start_rotate_write<gpu::Half>(a, stream);
        case KvType::BF16:
            return start_rotate_write<gpu::Bf16>(a, stream);
        case KvType::Q8:
            return start_norm_rotate_write<Q8>(a, stream);
    }
}

void launch_kv_write(const KvWriteLaunch& a, void* stream) {
    switch (a.type) {
        case KvType::F32:
            return start_write<float>(a, stream);
        case KvType::F16:
            return start_write<gpu::Half>(a, stream);
        case KvType::BF16:
            return start_write<gpu::Bf16>(a, stream);
        case KvType::Q8:
            return start_write<Q8>(a, stream);
    }
}

void launch_kv_commit(const KvCommitLaunch& a, void* stream) {
    gpu::launch(a.scale_words == 0 ? commit_rows<false> : commit_rows<true>,
                dim3(pieces(a.n_kv_heads * a.head_words), static_cast<unsigned>(a.n_rows),
                     2 * static_cast<unsigned>(a.n_layers)),
                dim3(kThreads), 0, stream, a);
}

void launch_move_rows(const MoveRowsLaunch& a, void* stream) {
    gpu::launch(copy_rows,
                dim3(pieces(a.row_words), static_cast<unsigned>(a.n_rows), static_cast<unsigned>(a.n_planes)),
                dim3(kThreads), 0, stream, a);
}

}  // namespace slipstream::cuda
