// The small kernels between matmuls. Rows of floats; a load takes 16 bytes if rows are aligned to 16 bytes, which
// changes no bit.
//
// rms_norm: element i of a row belongs to thread i / 4 mod T, T = 32 for rows of at most 1024 elements, else 256. A
// thread sums the squares of its elements in ascending order by fused multiply-adds, then lanes are added (xor 16, 8,
// 4, 2, 1), then warps in ascending order. So the bits depend on the row's length and values alone.
//
// Outputs that matmuls read next are also laid out for them (activation_fragments.cuh): the same products, computed by
// lanes in that order.
#include "gpu.cuh"
#include "kernels/cuda/elementwise_launch.h"
#include "kernels/cuda/matmul/activation_fragments.cuh"

namespace slipstream::cuda {

namespace {

constexpr int kThreads = 256;
// Longest row, in elements, that a warp norms; a longer row gets a thread block. The order of the sum, so the bits,
// depends on it.
constexpr int64_t kLongestWarpRow = 1024;

struct alignas(16) Float4 {
    float x[4];
};
struct alignas(8) Float2 {
    float x[2];
};

// Loads elements [at, at + 4) of a row of d, with zeros past its end. `wide`: all four exist and are 16-byte aligned.
__device__ __forceinline__ Float4 load_four(const float* row, int64_t at, int64_t d, bool wide) {
    if (wide) return *reinterpret_cast<const Float4*>(row + at);
    Float4 v{};
    for (int e = 0; e < 4; ++e)
        if (at + e < d) v.x[e] = row[at + e];
    return v;
}
__device__ __forceinline__ void store_four(float* row, int64_t at, int64_t d, bool wide, const Float4& v) {
    if (wide) {
        *reinterpret_cast<Float4*>(row + at) = v;
        return;
    }
    for (int e = 0; e < 4; ++e)
        if (at + e < d) row[at + e] = v.x[e];
}

bool on_16_bytes(const float* data, int64_t stride) {
    return reinterpret_cast<uintptr_t>(data) % 16 == 0 && stride % 4 == 0;
}
// Returns the number of thread blocks for n rows, at most 4096; with more rows, thread blocks take several in turn.
unsigned grid_rows(int64_t n) {
    constexpr int64_t kMost = 4096;
    return static_cast<unsigned>(n < kMost ? n : kMost);
}
unsigned blocks_of(int64_t n, int64_t each) {
    return static_cast<unsigned>((n + each - 1) / each);
}

// Loads two elements of a row from `at` on, with zeros past its end. `wide`: both exist and are 8-byte aligned, or
// neither exists.
__device__ __forceinline__ void load_two(const float* row, int64_t at, int64_t d, bool wide, float& a, float& b) {
    if (wide) {
        const Float2 both = at < d ? *reinterpret_cast<const Float2*>(row + at) : Float2{};
        a = both.x[0];
        b = both.x[1];
        return;
    }
    a = at < d ? row[at] : 0.0F;
    b = at + 1 < d ? row[at + 1] : 0.0F;
}
__device__ __forceinline__ void store_two(float* row, int64_t at, int64_t d, bool wide, float a, float b) {
    if (wide) {
        if (at < d) *reinterpret_cast<Float2*>(row + at) = {a, b};
        return;
    }
    if (at < d) row[at] = a;
    if (at + 1 < d) row[at + 1] = b;
}

// y = norm(x) * weight (RmsNormLaunch). Thread block: 256 threads, for 256 / RowThreads rows.
template <int RowThreads, bool kPrepare>
__global__ void __launch_bounds__(kThreads) norm_rows(const RmsNormLaunch a, const bool wide) {
    constexpr int kRows = kThreads / RowThreads;
    const int thread = static_cast<int>(threadIdx.x % RowThreads);
    const int64_t row = int64_t{blockIdx.x} * kRows + threadIdx.x / RowThreads;
    const bool there = row < a.n_rows;
    const float* x = a.x + row * a.x_stride;
    float* total = a.add == nullptr ? nullptr : a.sum + row * a.sum_stride;
    float squares = 0.0F;
    if (there) {
        for (int64_t at = 4 * thread; at < a.d; at += 4 * RowThreads) {
            Float4 v = load_four(x, at, a.d, wide);
            if (total != nullptr) {
                const Float4 other = load_four(a.add + row * a.add_stride, at, a.d, wide);
                for (int e = 0; e < 4; ++e) v.x[e] = v.x[e] + other.x[e];
                store_four(total, at, a.d, wide, v);
            }
            for (int e = 0; e < 4; ++e) squares = gpu::fma(v.x[e], v.x[e], squares);
        }
    }
    for (int mask = 16; mask > 0; mask /= 2) squares = squares + gpu::shfl_xor(squares, mask);
    if constexpr (RowThreads > 32) {
        const auto sums = gpu::dynamic_shared<float>();
        if (thread % 32 == 0) sums[thread / 32] = squares;
        gpu::sync_threads();
        squares = sums[0];
        for (int i = 1; i < RowThreads / 32; ++i) squares = squares + sums[i];
    }
    if (!there) return;
    const float scale = 1.0F / sqrtf(squares / static_cast<float>(a.d) + a.eps);
    if constexpr (kPrepare) {
        float* y = a.y + row * a.y_stride;
        for (int64_t i = thread; i < a.prepare.n_blocks * 4; i += RowThreads) {  // whole warps
            const int quarter = static_cast<int>(i % 4);
            float v[kLaneValues];
#pragma unroll
            for (int j = 0; j < kLaneValues; j += 2) {
                const int64_t at = i / 4 * 32 + lane_k(quarter, j);
                float weight[2] = {1.0F, 1.0F};
                load_two(x, at, a.d, wide, v[j], v[j + 1]);
                if (a.weight != nullptr) load_two(a.weight, at, a.d, wide, weight[0], weight[1]);
                v[j] = v[j] * scale * weight[0];
                v[j + 1] = v[j + 1] * scale * weight[1];
                store_two(y, at, a.d, wide, v[j], v[j + 1]);
            }
            store_bf16_block(a.prepare, i / 4, row, quarter, v);
        }
    } else {
        for (int64_t at = 4 * thread; at < a.d; at += 4 * RowThreads) {
            Float4 v = load_four(total == nullptr ? x : total, at, a.d, wide);
            Float4 weight{{1.0F, 1.0F, 1.0F, 1.0F}};
            if (a.weight != nullptr) weight = load_four(a.weight, at, a.d, wide);
            for (int e = 0; e < 4; ++e) v.x[e] = v.x[e] * scale * weight.x[e];
            store_four(a.y + row * a.y_stride, at, a.d, wide, v);
        }
    }
}

// Rotates pairs of elements in place (RopeLaunch), a pair of a token per thread. Grid: (ranges of kThreads pairs of a
// token, tokens).
__global__ void __launch_bounds__(kThreads) turn_pairs(const RopeLaunch a) {
    const int half = a.n_rotated / 2;
    const int pair = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
    if (pair >= a.n_heads * half) return;
    const int i = pair % half;
    const bool halves = a.pairs == RopePairs::Half;
    const int first = pair / half * a.head_dim + (halves ? i : 2 * i);
    const int second = first + (halves ? half : 1);
    for (int64_t token = blockIdx.y; token < a.n_tokens; token += gridDim.y) {
        const float cosine = a.cos_sin[token * a.cos_sin_stride + i];
        const float sine = a.cos_sin[token * a.cos_sin_stride + half + i];
        float* x = a.x + token * a.x_stride;
        const float u = x[first];
        const float v = x[second];
        x[first] = u * cosine - v * sine;
        x[second] = u * sine + v * cosine;
    }
}

// Returns v / (1 + exp(-v)). -v is limited to 88, so that exp does not overflow; below v = -88 the result is v /
// 1.7e38.
__device__ __forceinline__ float silu(float v) {
    const float negative = -v > 88.0F ? 88.0F : -v;
    return v / (1.0F + gpu::exp_approx(negative));
}

// Returns v / 2 * (1 + tanh(u)), u = sqrt(2 / pi) * (v + 0.044715 v^3), as v / (1 + exp(-2 u)). Below -10 the result is
// that of -10, -1.2e-37. Above, v^3 may be infinite: the exponential is then 0 and the result v.
__device__ __forceinline__ float gelu_tanh(float gate) {
    constexpr float kFirst = 1.59576912F;    // GeluTanh: factor of v in 2 u, 2 sqrt(2 / pi)
    constexpr float kThird = 0.0713548163F;  // GeluTanh: factor of v^3 in 2 u, 2 sqrt(2 / pi) * 0.044715
    const float v = gate < -10.0F ? -10.0F : gate;
    return v / (1.0F + gpu::exp_approx(-v * (kThird * (v * v) + kFirst)));
}

__device__ __forceinline__ float sigmoid(float v) {
    const float negative = -v > 88.0F ? 88.0F : -v;
    return 1.0F / (1.0F + gpu::exp_approx(negative));
}

// The gated feed-forward of gpt-oss (GatedActivation::ClampedSilu), limited like silu().
__device__ __forceinline__ float clamped_silu(float gate, float up, float limit) {
    constexpr float kAlpha = 1.702F;
    const float v = gate > limit ? limit : gate;
    const float most = up > limit ? limit : up;
    const float u = most < -limit ? -limit : most;
    const float negative = v * -kAlpha > 88.0F ? 88.0F : v * -kAlpha;
    return v / (1.0F + gpu::exp_approx(negative)) * (u + 1.0F);
}

template <GateKind kKind>
__device__ __forceinline__ float gated(float gate, float up, float limit) {
    if constexpr (kKind == GateKind::Silu) return silu(gate) * up;
    if constexpr (kKind == GateKind::GeluTanh) return gelu_tanh(gate) * up;
    if constexpr (kKind == GateKind::Sigmoid) return sigmoid(gate) * up;
    return clamped_silu(gate, up, limit);
}

// y = kind(gate) * up (GatedActivationLaunch). Grid: (fours of a row, rows).
template <GateKind kKind>
__global__ void __launch_bounds__(kThreads) gate_rows(const GatedActivationLaunch a, const bool wide) {
    const int64_t at = 4 * (int64_t{blockIdx.x} * kThreads + threadIdx.x);
    if (at >= a.d) return;
    for (int64_t row = blockIdx.y; row < a.n_rows; row += gridDim.y) {
        const Float4 gate = load_four(a.gate + row * a.gate_stride, at, a.d, wide);
        Float4 v = load_four(a.up + row * a.up_stride, at, a.d, wide);
        for (int e = 0; e < 4; ++e) v.x[e] = gated<kKind>(gate.x[e], v.x[e], a.limit);
        store_four(a.y + row * a.y_stride, at, a.d, wide, v);
    }
}

// Computes y = kind(gate) * up like gate_rows(), and lays y out for matmuls: a warp has 32 elements of 8 rows. Grid:
// (blocks of 32 elements / 8, tiles of 8 rows).
template <GateKind kKind>
__global__ void __launch_bounds__(kThreads) gate_and_prepare(const GatedActivationLaunch a, const bool wide) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    const int64_t block = int64_t{blockIdx.x} * (kThreads / 32) + threadIdx.x / 32;
    if (block >= a.prepare.n_blocks) return;  // whole warps return, and no barrier follows
    const int64_t row = int64_t{blockIdx.y} * 8 + lane / 4;
    const bool there = row < a.n_rows;
    float v[kLaneValues] = {};
    if (there) {
#pragma unroll
        for (int j = 0; j < kLaneValues; j += 2) {
            const int64_t at = block * 32 + lane_k(lane % 4, j);
            float gate[2];
            load_two(a.gate + row * a.gate_stride, at, a.d, wide, gate[0], gate[1]);
            load_two(a.up + row * a.up_stride, at, a.d, wide, v[j], v[j + 1]);
            v[j] = gated<kKind>(gate[0], v[j], a.limit);
            v[j + 1] = gated<kKind>(gate[1], v[j + 1], a.limit);
            store_two(a.y + row * a.y_stride, at, a.d, wide, v[j], v[j + 1]);
        }
    }
    store_bf16_block(a.prepare, block, row, lane % 4, v);
}

// y = (y + scale * x) * factor (AddLaunch). Grid: (fours of a row, rows).
__global__ void __launch_bounds__(kThreads) add_rows(const AddLaunch a, const bool wide) {
    const int64_t at = 4 * (int64_t{blockIdx.x} * kThreads + threadIdx.x);
    if (at >= a.d) return;
    const float factor = a.factor == nullptr ? 1.0F : *a.factor;
    for (int64_t row = blockIdx.y; row < a.n_rows; row += gridDim.y) {
        const Float4 x = load_four(a.x + row * a.x_stride, at, a.d, wide);
        Float4 y = load_four(a.y + row * a.y_stride, at, a.d, wide);
        for (int e = 0; e < 4; ++e) y.x[e] = (y.x[e] + a.scale * x.x[e]) * factor;
        store_four(a.y + row * a.y_stride, at, a.d, wide, y);
    }
}

// y = cap * tanh(y / cap) (SoftcapLaunch). Grid: (fours of a row, rows).
__global__ void __launch_bounds__(kThreads) softcap_rows(const SoftcapLaunch a, const bool wide) {
    const int64_t at = 4 * (int64_t{blockIdx.x} * kThreads + threadIdx.x);
    if (at >= a.d) return;
    for (int64_t row = blockIdx.y; row < a.n_rows; row += gridDim.y) {
        Float4 y = load_four(a.y + row * a.y_stride, at, a.d, wide);
        for (int e = 0; e < 4; ++e) y.x[e] = a.cap * tanhf(y.x[e] / a.cap);
        store_four(a.y + row * a.y_stride, at, a.d, wide, y);
    }
}

template <bool kPrepare>
void start_norm(const RmsNormLaunch& a, bool wide, void* stream) {
    if (a.d <= kLongestWarpRow) {
        gpu::launch(norm_rows<32, kPrepare>, dim3(blocks_of(a.n_rows, kThreads / 32)), dim3(kThreads), 0, stream, a,
                    wide);
        return;
    }
    gpu::launch(norm_rows<kThreads, kPrepare>, dim3(static_cast<unsigned>(a.n_rows)), dim3(kThreads),
                kThreads / 32 * sizeof(float), stream, a, wide);
}

template <GateKind kKind>
void start_gate(const GatedActivationLaunch& a, void* stream) {
    const bool wide = a.d % 4 == 0 && on_16_bytes(a.gate, a.gate_stride) && on_16_bytes(a.up, a.up_stride) &&
                      on_16_bytes(a.y, a.y_stride);
    if (a.prepare.fragments != nullptr) {
        gpu::launch(gate_and_prepare<kKind>,
                    dim3(blocks_of(a.prepare.n_blocks, kThreads / 32), static_cast<unsigned>(a.prepare.n_tiles)),
                    dim3(kThreads), 0, stream, a, wide);
        return;
    }
    gpu::launch(gate_rows<kKind>, dim3(blocks_of(a.d, 4 * kThreads), grid_rows(a.n_rows)), dim3(kThreads), 0, stream, a,
                wide);
}

}  // namespace

void launch_rms_norm(const RmsNormLaunch& a, void* stream) {
    const bool wide = a.d % 4 == 0 && on_16_bytes(a.x, a.x_stride) && on_16_bytes(a.weight, 0) &&
                      on_16_bytes(a.y, a.y_stride) &&
                      (a.add == nullptr || (on_16_bytes(a.add, a.add_stride) && on_16_bytes(a.sum, a.sum_stride)));
    if (a.prepare.fragments != nullptr) return start_norm<true>(a, wide, stream);
    start_norm<false>(a, wide, stream);
}

void launch_rope(const RopeLaunch& a, void* stream) {
    const int64_t pairs = int64_t{a.n_heads} * (a.n_rotated / 2);
    gpu::launch(turn_pairs, dim3(blocks_of(pairs, kThreads), grid_rows(a.n_tokens)), dim3(kThreads), 0, stream, a);
}

void launch_gated_activation(const GatedActivationLaunch& a, void* stream) {
    switch (a.kind) {
        case GateKind::Silu:
            return start_gate<GateKind::Silu>(a, stream);
        case GateKind::GeluTanh:
            return start_gate<GateKind::GeluTanh>(a, stream);
        case GateKind::Sigmoid:
            return start_gate<GateKind::Sigmoid>(a, stream);
        case GateKind::ClampedSilu:
            return start_gate<GateKind::ClampedSilu>(a, stream);
    }
}

void launch_add(const AddLaunch& a, void* stream) {
    const bool wide = a.d % 4 == 0 && on_16_bytes(a.x, a.x_stride) && on_16_bytes(a.y, a.y_stride);
    gpu::launch(add_rows, dim3(blocks_of(a.d, 4 * kThreads), grid_rows(a.n_rows)), dim3(kThreads), 0, stream, a, wide);
}

void launch_softcap(const SoftcapLaunch& a, void* stream) {
    const bool wide = a.d % 4 == 0 && on_16_bytes(a.y, a.y_stride);
    gpu::launch(softcap_rows, dim3(blocks_of(a.d, 4 * kThreads), grid_rows(a.n_rows)), dim3(kThreads), 0, stream, a,
                wide);
}

}  // namespace slipstream::cuda
