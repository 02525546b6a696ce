// Delta nets, in two kernels: the convolution, norms and gates of all tokens; then the recurrence.
//
// The columns of a state do not depend on each other. A warp takes 16 columns of a value head through all steps: lane l
// has columns 2 (l % 8) and the next, rows l / 8, l / 8 + 4, ...: so a load of a warp is 256 bytes in a row, and a lane
// has one of the four parts of a sum. Parts are added by shuffles, in the order of DeltaNetArgs. The state stays in
// registers; if key heads are too large for that, in shared memory, which changes no bit. No warp waits for another.
//
// Queries and keys of a step pass through shared memory, where those of a lane lie together. They are loaded two steps
// ahead.
#include "gpu.cuh"
#include "kernels/cuda/delta_net_launch.h"

namespace slipstream::cuda {

namespace {

constexpr int kWarp = 32;
constexpr int kMostTaps = 8;
constexpr int kBlockColumns = 16;
constexpr int kParts = 4;
constexpr int kConvWarps = 8;  // warps of a block of the first kernel: steps that follow each other
constexpr int kGatherThreads = 256;
constexpr int kMostGatherRows = 4096;  // rows of the grid; with more, thread blocks take several in turn

struct alignas(16) Float4 {
    float x[4];
};
struct alignas(8) Float2 {
    float x[2];
};

__host__ __device__ __forceinline__ int64_t convolved_cols(const DeltaNetLaunch& a) {
    return 2 * int64_t{a.n_key_heads} * a.key_dim + int64_t{a.n_value_heads} * a.value_dim;
}
__device__ __forceinline__ int64_t row_cols(const DeltaNetLaunch& a) {
    return convolved_cols(a) + 2 * int64_t{a.n_value_heads};
}
__host__ __device__ __forceinline__ int column_blocks(const DeltaNetLaunch& a) {
    return (a.value_dim + kBlockColumns - 1) / kBlockColumns;
}

// Returns the inputs of the token of a row (DeltaNetStep::row).
__device__ __forceinline__ const float* inputs_of(const DeltaNetLaunch& a, int row) {
    return row >= 0 ? a.rows + row * a.rows_stride : a.stored + (-1 - int64_t{row}) * row_cols(a);
}

// -v is limited to 88, so that exp does not overflow.
__device__ __forceinline__ float sigmoid(float v) {
    const float negative = -v > 88.0F ? 88.0F : -v;
    return 1.0F / (1.0F + expf(negative));
}

// Returns log(1 + exp(v)).
__device__ __forceinline__ float softplus(float v) {
    return (v > 0.0F ? v : 0.0F) + log1pf(expf(v > 0.0F ? -v : v));
}

// Fills part blockIdx.x of the rows of `convolved`: a query or key head, normed; or the values of a head, its decay and
// beta. Grid: (2 n_key_heads + n_value_heads, steps / kConvWarps). A warp has a step. A lane has every 32nd column: at
// most Each of them, which it keeps in registers; with Each = 0 any number.
template <int Each>
__global__ void __launch_bounds__(kConvWarps* kWarp) convolve(const DeltaNetLaunch a) {
    const int lane = static_cast<int>(threadIdx.x % kWarp);
    const int step = static_cast<int>(blockIdx.y * kConvWarps + threadIdx.x / kWarp);
    if (step >= a.n_steps) return;  // whole warps return, and no barrier follows
    const int part = static_cast<int>(blockIdx.x);
    const int head = part - 2 * a.n_key_heads;  // value head; below 0: a query or a key
    const int dim = head < 0 ? a.key_dim : a.value_dim;
    const int64_t cols = convolved_cols(a);
    const int64_t first =
        head < 0 ? int64_t{part} * a.key_dim : 2 * int64_t{a.n_key_heads} * a.key_dim + int64_t{head} * a.value_dim;
    float* const row = a.convolved + step * row_cols(a);
    float* const y = row + first;

    // Inputs of the token and of those before it.
    const float* x[kMostTaps];
    int at = step;
    int before = 0;  // tokens that are in the taps
#pragma unroll
    for (int back = 0; back < kMostTaps; ++back) {
        x[back] = nullptr;
        if (back >= a.conv_width) continue;
        if (at >= 0) {
            const DeltaNetStep of = a.steps[at];
            x[back] = inputs_of(a, of.row) + first;
            at = of.parent;
        } else {
            x[back] = a.taps + (a.conv_width - 2 - before) * cols + first;
            ++before;
        }
    }
    const auto convolved = [&](int i) {
        float sum = 0.0F;
#pragma unroll
        for (int back = kMostTaps - 1; back >= 0; --back)
            if (back < a.conv_width) sum = sum + a.conv[(a.conv_width - 1 - back) * cols + first + i] * x[back][i];
        return sum * sigmoid(sum);
    };
    float c[Each > 0 ? Each : 1];
    float squares = 0.0F;
    if constexpr (Each > 0) {
#pragma unroll
        for (int j = 0; j < Each; ++j) {
            const int i = lane + j * kWarp;
            c[j] = i < dim ? convolved(i) : 0.0F;
            squares = gpu::fma(c[j], c[j], squares);
        }
    } else {
#pragma unroll 1
        for (int i = lane; i < dim; i += kWarp) {
            y[i] = convolved(i);
            squares = gpu::fma(y[i], y[i], squares);
        }
    }
    float factor = 1.0F;
    if (head < 0) {
        for (int mask = kWarp / 2; mask > 0; mask /= 2) squares = squares + gpu::shfl_xor(squares, mask);
        factor = 1.0F / sqrtf(squares + a.eps) * (part < a.n_key_heads ? a.query_scale : 1.0F);
    } else if (lane == 0) {
        const float* gates = x[0] - first + cols;
        row[cols + head] = expf(a.decay_rates[head] * softplus(gates[head] + a.decay_bias[head]));
        row[cols + a.n_value_heads + head] = sigmoid(gates[a.n_value_heads + head]);
    }
    if constexpr (Each > 0) {
#pragma unroll
        for (int j = 0; j < Each; ++j)
            if (lane + j * kWarp < dim) y[lane + j * kWarp] = c[j] * factor;
    } else {
        for (int i = lane; i < dim; i += kWarp) y[i] = y[i] * factor;
    }
}

// What a lane has of a state: elements of rows l / 8, l / 8 + 4, ..., two columns each. Rows past key_dim are 0.
// In registers, for key heads of up to 4 Each elements.
template <int Each>
struct RegisterState {
    static constexpr bool kInShared = false;
    static constexpr int kLoads = (kParts * Each + kWarp - 1) / kWarp;  // elements of a key that a lane loads
    Float2 x[Each];
    __device__ __forceinline__ RegisterState(int, gpu::SharedPtr<float>, int) {}
    __host__ __device__ static constexpr int rows_for(int) { return Each; }
    __device__ __forceinline__ static constexpr int rows() { return Each; }
    __device__ __forceinline__ Float2& operator[](int i) { return x[i]; }
};
// In shared memory, for the largest key heads.
struct SharedState {
    static constexpr bool kInShared = true;
    static constexpr int kLoads = 2;  // the other elements are loaded when the step begins
    int n;
    gpu::SharedPtr<Float2> x;  // [n][32 lanes]
    __device__ __forceinline__ SharedState(int key_dim, gpu::SharedPtr<float> at, int lane)
        : n(rows_for(key_dim)), x(at.as<Float2>() + lane) {}
    __host__ __device__ static constexpr int rows_for(int key_dim) { return (key_dim + 15) / 16 * 4; }
    __device__ __forceinline__ int rows() const { return n; }
    __device__ __forceinline__ Float2& operator[](int i) const { return x[i * kWarp]; }
};

// Floats of shared memory from the elements of a part of a key, or query, to those of the next: so that the loads of
// the four parts meet in no bank.
__host__ __device__ constexpr int part_pitch(int rows) {
    return rows + 4;
}

// Returns the query of a value head in a step; its key is n_key_heads * key_dim floats further on.
__device__ __forceinline__ const float* query_of(const DeltaNetLaunch& a, int step, int head) {
    const int key_head = a.tiled ? head % a.n_key_heads : head / (a.n_value_heads / a.n_key_heads);
    return a.convolved + step * row_cols(a) + int64_t{key_head} * a.key_dim;
}

// What a step reads beside the state; a lane loads some of it, two steps ahead.
template <class State>
struct StepInputs {
    DeltaNetStep step{};
    float q[State::kLoads];
    float k[State::kLoads];
    float v[2];
    float decay;
    float beta;
};

template <class State>
__device__ __forceinline__ void load_inputs(const DeltaNetLaunch& a, int step, int head, int column, int lane,
                                            StepInputs<State>& in) {
    in.step = a.steps[step];
    const float* y = a.convolved + step * row_cols(a);
    const float* q = query_of(a, step, head);
    const float* k = q + int64_t{a.n_key_heads} * a.key_dim;
    const float* v = y + 2 * int64_t{a.n_key_heads} * a.key_dim + int64_t{head} * a.value_dim;
#pragma unroll
    for (int j = 0; j < State::kLoads; ++j) {
        const int i = lane + j * kWarp;
        in.q[j] = i < a.key_dim ? q[i] : 0.0F;
        in.k[j] = i < a.key_dim ? k[i] : 0.0F;
    }
    for (int c = 0; c < 2; ++c) in.v[c] = column + c < a.value_dim ? v[column + c] : 0.0F;
    const float* gates = y + convolved_cols(a);
    in.decay = gates[head];
    in.beta = gates[a.n_value_heads + head];
}

// Adds the four parts of a sum: all lanes of a pair of columns get it.
__device__ __forceinline__ void add_parts(Float2& sum) {
    for (int c = 0; c < 2; ++c) {
        sum.x[c] = sum.x[c] + gpu::shfl_xor(sum.x[c], 8);
        sum.x[c] = sum.x[c] + gpu::shfl_xor(sum.x[c], 16);
    }
}

// Copies columns of the convolution's inputs that are kept; kept_taps may be taps: a later one is read before it is
// overwritten.
__device__ __forceinline__ void keep_taps(const DeltaNetLaunch& a, int64_t column) {
    const int64_t cols = convolved_cols(a);
    if (column >= cols) return;
    const int n_taps = a.conv_width - 1;
    for (int tap = 0; tap < n_taps; ++tap) {
        const int step = a.n_kept - n_taps + tap;  // the kept steps are a chain
        a.kept_taps[tap * cols + column] =
            step >= 0 ? inputs_of(a, a.steps[step].row)[column] : a.taps[(n_taps + step) * cols + column];
    }
}

// Grid: 16 columns of a value head each; then, if something is kept, 32 columns of taps each. Thread block: a warp.
template <class State>
__global__ void __launch_bounds__(kWarp) recur(const DeltaNetLaunch a) {
    const int lane = static_cast<int>(threadIdx.x);
    const int n_blocks = a.n_value_heads * column_blocks(a);
    const int block = static_cast<int>(blockIdx.x);
    if (block >= n_blocks) return keep_taps(a, int64_t{block - n_blocks} * kWarp + lane);
    const int head = block / column_blocks(a);
    const int part = lane / 8;
    const int column = block % column_blocks(a) * kBlockColumns + lane % 8 * 2;
    const int64_t block_floats = int64_t{a.key_dim} * kBlockColumns;
    const int64_t offset = block * block_floats + lane * 2;  // of the lane's element 0 in a state

    // [2][queries | keys][kParts][pitch], then the state if it is in shared memory. Elements past key_dim stay 0.
    const int pitch = part_pitch(State::rows_for(a.key_dim));
    const int side = kParts * pitch;
    const auto shared = gpu::dynamic_shared<float>();
    State s(a.key_dim, shared + 4 * side, lane);
    for (int i = lane; i < 4 * side; i += kWarp) shared[i] = 0.0F;
    gpu::sync_warp();
    const auto load = [&](const float* from) {
#pragma unroll
        for (int i = 0; i < s.rows(); ++i)
            s[i] = part + kParts * i < a.key_dim
                       ? *reinterpret_cast<const Float2*>(from + offset + i * kParts * kBlockColumns)
                       : Float2{};
    };
    const auto store = [&](float* to) {
#pragma unroll
        for (int i = 0; i < s.rows(); ++i)
            if (part + kParts * i < a.key_dim)
                *reinterpret_cast<Float2*>(to + offset + i * kParts * kBlockColumns) = s[i];
    };

    // Takes the state through step `at`, whose inputs are `in`; then `in` are those of the step after the next.
    const auto advance = [&](int at, StepInputs<State>& in) {
        // A lane that is a step ahead writes the other half: no lane is two ahead.
        const auto query = shared + at % 2 * 2 * side;
        const auto key = query + side;
#pragma unroll
        for (int j = 0; j < State::kLoads; ++j) {
            const int i = lane + j * kWarp;
            if (i >= a.key_dim) continue;
            query[i % kParts * pitch + i / kParts] = in.q[j];
            key[i % kParts * pitch + i / kParts] = in.k[j];
        }
        if constexpr (State::kInShared) {
            const float* q = query_of(a, at, head);
            const float* k = q + int64_t{a.n_key_heads} * a.key_dim;
            for (int i = lane + State::kLoads * kWarp; i < a.key_dim; i += kWarp) {
                query[i % kParts * pitch + i / kParts] = q[i];
                key[i % kParts * pitch + i / kParts] = k[i];
            }
        }
        const DeltaNetStep step = in.step;
        const float v[2] = {in.v[0], in.v[1]};
        const float decay = in.decay;
        const float beta = in.beta;
        gpu::sync_warp();
        if (at + 2 < a.n_steps) load_inputs(a, at + 2, head, column, lane, in);
        if (step.from != kHeldState)
            load(step.from == kStateBefore ? a.state
                 : step.from == kKeptState ? a.kept_state
                                           : a.working + step.from * n_blocks * block_floats);

        const auto of_query = (query + part * pitch).template as<Float4>();
        const auto of_key = (key + part * pitch).template as<Float4>();
        Float2 sum{};
#pragma unroll
        for (int i = 0; i < s.rows(); i += 4) {
            const Float4 k = of_key[i / 4];
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                Float2 x = s[i + e];
                for (int c = 0; c < 2; ++c) {
                    x.x[c] = x.x[c] * decay;
                    sum.x[c] = gpu::fma(x.x[c], k.x[e], sum.x[c]);
                }
                s[i + e] = x;
            }
        }
        add_parts(sum);
        const float update[2] = {beta * (v[0] - sum.x[0]), beta * (v[1] - sum.x[1])};
        Float2 result{};
#pragma unroll
        for (int i = 0; i < s.rows(); i += 4) {
            const Float4 k = of_key[i / 4];
            const Float4 q = of_query[i / 4];
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                Float2 x = s[i + e];
                for (int c = 0; c < 2; ++c) {
                    x.x[c] = gpu::fma(k.x[e], update[c], x.x[c]);
                    result.x[c] = gpu::fma(x.x[c], q.x[e], result.x[c]);
                }
                s[i + e] = x;
            }
        }
        add_parts(result);
        if (step.row >= 0 && part == 0) {
            float* y = a.out + step.row * a.out_stride + int64_t{head} * a.value_dim + column;
            for (int c = 0; c < 2; ++c)
                if (column + c < a.value_dim) y[c] = result.x[c];
        }
        if (step.save != kNotSaved) store(a.working + step.save * n_blocks * block_floats);
        if (at + 1 == a.n_kept) store(a.kept_state);
    };

    load(a.state);
    // Two names, so that no register is copied before its load has ended.
    StepInputs<State> even;
    StepInputs<State> odd;
    load_inputs(a, 0, head, column, lane, even);
    if (a.n_steps > 1) load_inputs(a, 1, head, column, lane, odd);
    for (int at = 0; at < a.n_steps; at += 2) {
        advance(at, even);
        if (at + 1 < a.n_steps) advance(at + 1, odd);
    }
}

// Grid: (ranges of kGatherThreads columns of y, rows).
__global__ void __launch_bounds__(kGatherThreads) gather(const GatherColumnsLaunch a) {
    const int i = static_cast<int>(blockIdx.x * kGatherThreads + threadIdx.x);
    if (i >= a.n_cols) return;
    const int64_t from = a.first + int64_t{i / a.run} * a.stride + i % a.run;
    for (int64_t row = blockIdx.y; row < a.n_rows; row += gridDim.y)
        a.y[row * a.y_stride + i] = a.x[row * a.x_stride + from];
}

template <class State>
void start_recurrence(const DeltaNetLaunch& a, void* stream) {
    const int64_t cols = convolved_cols(a);
    const int64_t blocks =
        int64_t{a.n_value_heads} * column_blocks(a) + (a.n_kept > 0 ? (cols + kWarp - 1) / kWarp : 0);
    const int rows = State::rows_for(a.key_dim);
    const size_t floats = 4 * kParts * static_cast<size_t>(part_pitch(rows)) +
                          (State::kInShared ? 2 * kWarp * static_cast<size_t>(rows) : 0);
    gpu::launch(recur<State>, dim3(static_cast<unsigned>(blocks)), dim3(kWarp), floats * sizeof(float), stream, a);
}

}  // namespace

void launch_delta_net(const DeltaNetLaunch& a, void* stream) {
    const dim3 grid(static_cast<unsigned>(2 * a.n_key_heads + a.n_value_heads),
                    static_cast<unsigned>((a.n_steps + kConvWarps - 1) / kConvWarps));
    const int dim = a.key_dim > a.value_dim ? a.key_dim : a.value_dim;
    gpu::launch(dim <= 4 * kWarp ? convolve<4> : convolve<0>, grid, dim3(kConvWarps * kWarp), 0, stream, a);
    if (a.key_dim <= 8 * kParts) return start_recurrence<RegisterState<8>>(a, stream);
    if (a.key_dim <= 32 * kParts) return start_recurrence<RegisterState<32>>(a, stream);
    start_recurrence<SharedState>(a, stream);
}

void launch_gather_columns(const GatherColumnsLaunch& a, void* stream) {
    gpu::launch(gather,
                dim3(static_cast<unsigned>((a.n_cols + kGatherThreads - 1) / kGatherThreads),
                     static_cast<unsigned>(a.n_rows < kMostGatherRows ? a.n_rows : kMostGatherRows)),
                dim3(kGatherThreads), 0, stream, a);
}

}  // namespace slipstream::cuda
