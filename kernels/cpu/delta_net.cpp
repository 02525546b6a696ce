// Delta nets on the CPU, in two rounds over the threads: the convolution, norms and gates of each step; then the
// recurrence. The columns of a state do not depend on each other, so a thread takes 16 columns of a value head through
// all steps: its working states (8 KB each at a key size of 128) stay in its first-level cache, and the whole state is
// read and written once a pass.
//
// The first round is written once and compiled for each kernel variant, as in elementwise.cpp; the recurrence has a
// function for each.
#include "kernels/cpu/delta_net.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/base/checked_math.h"
#include "kernels/cpu/exp.h"
#include "kernels/cpu/target.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace slipstream::cpu {

namespace {

// Parts of the first round that a thread takes at a time, each about a microsecond of work.
constexpr std::int64_t kPartsAtOnce = 4;
// Floats of a loop that the compiler makes vectors of.
constexpr std::int64_t kLanes = 16;

CpuDevice& device_of(ExecRef exec) {
    return static_cast<CpuDevice&>(exec.device);
}

[[gnu::always_inline]] inline float sigmoid(float v) {
    const float negative = -v > 88.0F ? 88.0F : -v;
    return 1.0F / (1.0F + exp_float(negative));
}

// Returns log(1 + exp(v)) as max(v, 0) + log(1 + exp(-|v|)). The sum 1 + exp(-|v|) is rounded: the error is at most
// 2^-24, absolute.
[[gnu::always_inline]] inline float softplus(float v) {
    const float size = v < 0.0F ? -v : v;
    return (v > 0.0F ? v : 0.0F) + log_float(1.0F + exp_float(-size));
}

// Returns the inputs of the token of a step.
[[gnu::always_inline]] inline const float* inputs_of(const DeltaNetArgs& args, std::int64_t step) {
    const std::int32_t row = args.steps[step].row;
    return row >= 0 ? float_row(args.rows, row) : args.stored + (-1 - std::int64_t{row}) * args.shape.row_cols();
}

// Returns the inputs of the token `back` tokens before that of `step` (0: its own).
[[gnu::always_inline]] inline const float* inputs_before(const DeltaNetArgs& args, std::int64_t step,
                                                         std::int64_t back) {
    for (; back > 0 && step >= 0; --back) step = args.steps[step].parent;
    if (step >= 0) return inputs_of(args, step);
    // `back` more tokens before the last of the state: 0 is the last, at the end of the taps.
    return args.taps + (args.shape.conv_width - 2 - back) * args.shape.convolved_cols();
}

// Scales x, [key_dim], by scale / sqrt(sum of its squares + eps).
[[gnu::always_inline]] inline void norm_head(float* x, std::int64_t key_dim, float eps, float scale) {
    float lanes[kLanes] = {};
    std::int64_t i = 0;
    for (; i + kLanes <= key_dim; i += kLanes)
        for (std::int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += x[i + lane] * x[i + lane];
    for (std::int64_t lane = 0; i < key_dim; ++i, ++lane) lanes[lane] += x[i] * x[i];
    for (std::int64_t half = kLanes / 2; half > 0; half /= 2)
        for (std::int64_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
    const float factor = 1.0F / std::sqrt(lanes[0] + eps) * scale;
    for (std::int64_t j = 0; j < key_dim; ++j) x[j] *= factor;
}

// Convolves columns [first, first + n) of a step.
[[gnu::always_inline]] inline void convolve_columns(const DeltaNetArgs& args, std::int64_t step, std::int64_t first,
                                                    std::int64_t n) {
    const std::int64_t width = args.shape.conv_width;
    float* y = args.convolved + step * args.shape.row_cols() + first;
    std::fill_n(y, n, 0.0F);
    for (std::int64_t tap = 0; tap < width; ++tap) {
        const float* weights = args.conv + tap * args.shape.convolved_cols() + first;
        const float* x = inputs_before(args, step, width - 1 - tap) + first;
        for (std::int64_t i = 0; i < n; ++i) y[i] += weights[i] * x[i];
    }
    for (std::int64_t i = 0; i < n; ++i) y[i] *= sigmoid(y[i]);
}

// Parts of a step in which the first round is divided: a key head with its query, a value head with its gates.
std::int64_t parts_of_step(const DeltaNetShape& shape) {
    return shape.n_key_heads + shape.n_value_heads;
}

// Fills a part of row `step` of args.convolved: normed queries and keys; or values, decay and beta.
[[gnu::always_inline]] inline void convolve_part(const DeltaNetArgs& args, std::int64_t step, std::int64_t part) {
    const DeltaNetShape& shape = args.shape;
    float* y = args.convolved + step * shape.row_cols();
    if (part < shape.n_key_heads) {
        const std::int64_t query = part * shape.key_dim;
        const std::int64_t key = shape.key_cols() + query;
        convolve_columns(args, step, query, shape.key_dim);
        convolve_columns(args, step, key, shape.key_dim);
        norm_head(y + query, shape.key_dim, args.eps, 1.0F / std::sqrt(static_cast<float>(shape.key_dim)));
        norm_head(y + key, shape.key_dim, args.eps, 1.0F);
        return;
    }
    const std::int64_t head = part - shape.n_key_heads;
    convolve_columns(args, step, 2 * shape.key_cols() + head * shape.value_dim, shape.value_dim);
    const std::int64_t gates = shape.convolved_cols();
    const float* x = inputs_of(args, step) + gates;
    y[gates + head] = exp_float(args.decay_rates[head] * softplus(x[head] + args.decay_bias[head]));
    y[gates + shape.n_value_heads + head] = sigmoid(x[shape.n_value_heads + head]);
}

// A step of 16 columns of a value head. `s`: their state, [key_dim][16]; `v`: their values, 0 from the head's last
// column on, whose state is 0 as well.
struct ColumnStep {
    float* s;
    const float* q;
    const float* k;
    const float* v;  // [16]
    float decay;
    float beta;
    std::int64_t key_dim;
};

// Writes the results of a step to `out`, [16].
using RecurFn = void(const ColumnStep&, float* out);

void recur_scalar(const ColumnStep& step, float* out) {
    float sums[4][kStateColumns] = {};
    const auto sum_of = [&](std::int64_t c) { return (sums[0][c] + sums[1][c]) + (sums[2][c] + sums[3][c]); };
    for (std::int64_t i = 0; i < step.key_dim; ++i) {
        float* row = step.s + i * kStateColumns;
        for (std::int64_t c = 0; c < kStateColumns; ++c) {
            row[c] *= step.decay;
            sums[i % 4][c] = __builtin_fmaf(row[c], step.k[i], sums[i % 4][c]);
        }
    }
    float update[kStateColumns];
    for (std::int64_t c = 0; c < kStateColumns; ++c) update[c] = step.beta * (step.v[c] - sum_of(c));
    for (auto& sum : sums) std::fill_n(sum, kStateColumns, 0.0F);
    for (std::int64_t i = 0; i < step.key_dim; ++i) {
        float* row = step.s + i * kStateColumns;
        for (std::int64_t c = 0; c < kStateColumns; ++c) {
            row[c] = __builtin_fmaf(step.k[i], update[c], row[c]);
            sums[i % 4][c] = __builtin_fmaf(row[c], step.q[i], sums[i % 4][c]);
        }
    }
    for (std::int64_t c = 0; c < kStateColumns; ++c) out[c] = sum_of(c);
}

#if defined(__x86_64__)

// Calls fn(row, part) for each row of a state, where part is row mod 4: a constant after unrolling, so that the four
// sums stay in registers.
template <typename Fn>
[[gnu::always_inline]] inline void for_rows(std::int64_t key_dim, const Fn& fn) {
    std::int64_t i = 0;
    for (; i + 4 <= key_dim; i += 4) {
        fn(i, 0);
        fn(i + 1, 1);
        fn(i + 2, 2);
        fn(i + 3, 3);
    }
    if (i < key_dim) fn(i, 0);
    if (i + 1 < key_dim) fn(i + 1, 1);
    if (i + 2 < key_dim) fn(i + 2, 2);
}

SLIPSTREAM_AVX2 void recur_avx2(const ColumnStep& step, float* out) {
    // Eight columns at a time: their four sums and what belongs to them fit the registers.
    for (std::int64_t half = 0; half < kStateColumns; half += 8) {
        float* const s = step.s + half;
        __m256 sums[4] = {};
        const __m256 decay = _mm256_set1_ps(step.decay);
        for_rows(step.key_dim, [&](std::int64_t i, int part) SLIPSTREAM_AVX2 {
            const __m256 row = _mm256_mul_ps(_mm256_loadu_ps(s + i * kStateColumns), decay);
            _mm256_storeu_ps(s + i * kStateColumns, row);
            sums[part] = _mm256_fmadd_ps(row, _mm256_set1_ps(step.k[i]), sums[part]);
        });
        const __m256 old = _mm256_add_ps(_mm256_add_ps(sums[0], sums[1]), _mm256_add_ps(sums[2], sums[3]));
        const __m256 update =
            _mm256_mul_ps(_mm256_set1_ps(step.beta), _mm256_sub_ps(_mm256_loadu_ps(step.v + half), old));
        for (__m256& sum : sums) sum = _mm256_setzero_ps();
        for_rows(step.key_dim, [&](std::int64_t i, int part) SLIPSTREAM_AVX2 {
            const __m256 row =
                _mm256_fmadd_ps(_mm256_set1_ps(step.k[i]), update, _mm256_loadu_ps(s + i * kStateColumns));
            _mm256_storeu_ps(s + i * kStateColumns, row);
            sums[part] = _mm256_fmadd_ps(row, _mm256_set1_ps(step.q[i]), sums[part]);
        });
        _mm256_storeu_ps(out + half, _mm256_add_ps(_mm256_add_ps(sums[0], sums[1]), _mm256_add_ps(sums[2], sums[3])));
    }
}

SLIPSTREAM_AVX512 void recur_avx512(const ColumnStep& step, float* out) {
    float* const s = step.s;
    __m512 sums[4] = {};
    const __m512 decay = _mm512_set1_ps(step.decay);
    for_rows(step.key_dim, [&](std::int64_t i, int part) SLIPSTREAM_AVX512 {
        const __m512 row = _mm512_mul_ps(_mm512_loadu_ps(s + i * kStateColumns), decay);
        _mm512_storeu_ps(s + i * kStateColumns, row);
        sums[part] = _mm512_fmadd_ps(row, _mm512_set1_ps(step.k[i]), sums[part]);
    });
    const __m512 old = _mm512_add_ps(_mm512_add_ps(sums[0], sums[1]), _mm512_add_ps(sums[2], sums[3]));
    const __m512 update = _mm512_mul_ps(_mm512_set1_ps(step.beta), _mm512_sub_ps(_mm512_loadu_ps(step.v), old));
    for (__m512& sum : sums) sum = _mm512_setzero_ps();
    for_rows(step.key_dim, [&](std::int64_t i, int part) SLIPSTREAM_AVX512 {
        const __m512 row = _mm512_fmadd_ps(_mm512_set1_ps(step.k[i]), update, _mm512_loadu_ps(s + i * kStateColumns));
        _mm512_storeu_ps(s + i * kStateColumns, row);
        sums[part] = _mm512_fmadd_ps(row, _mm512_set1_ps(step.q[i]), sums[part]);
    });
    _mm512_storeu_ps(out, _mm512_add_ps(_mm512_add_ps(sums[0], sums[1]), _mm512_add_ps(sums[2], sums[3])));
}

#else
constexpr RecurFn* recur_avx2 = recur_scalar;
constexpr RecurFn* recur_avx512 = recur_scalar;
#endif

// Takes 16 columns of a value head through all steps. `working`: args.n_working states of [key_dim][16].
void run_columns(const DeltaNetArgs& args, std::int64_t block, float* working, RecurFn& recur) {
    const DeltaNetShape& shape = args.shape;
    const std::int64_t blocks = ceil_div(shape.value_dim, kStateColumns);
    const std::int64_t head = block / blocks;
    const std::int64_t column = block % blocks * kStateColumns;
    const std::int64_t n_columns = std::min(kStateColumns, shape.value_dim - column);
    const std::int64_t floats = shape.key_dim * kStateColumns;
    const std::int64_t query = shape.key_head(head) * shape.key_dim;
    const std::int64_t value = 2 * shape.key_cols() + head * shape.value_dim + column;
    float values[kStateColumns] = {};
    float results[kStateColumns];
    std::copy_n(args.state + block * floats, floats, working);
    for (std::int64_t i = 0; i < std::ssize(args.steps); ++i) {
        const DeltaStep& step = args.steps[i];
        const float* y = args.convolved + i * shape.row_cols();
        float* state = working + step.to * floats;
        if (step.to != step.from) std::copy_n(working + step.from * floats, floats, state);
        std::copy_n(y + value, n_columns, values);
        recur({.s = state,
               .q = y + query,
               .k = y + shape.key_cols() + query,
               .v = values,
               .decay = y[shape.convolved_cols() + head],
               .beta = y[shape.convolved_cols() + shape.n_value_heads + head],
               .key_dim = shape.key_dim},
              results);
        if (step.row >= 0)
            std::copy_n(results, n_columns, float_row(args.out, step.row) + head * shape.value_dim + column);
        if (i + 1 == args.n_kept) std::copy_n(state, floats, args.kept_state + block * floats);
    }
}

// Writes the inputs of the last tokens that are kept to args.kept_taps, which may be args.taps: a later tap is read
// before it is overwritten.
void keep_taps(const DeltaNetArgs& args) {
    const std::int64_t n = args.shape.convolved_cols();
    const std::int64_t n_taps = args.shape.conv_width - 1;
    for (std::int64_t tap = 0; tap < n_taps; ++tap) {
        const float* from = inputs_before(args, args.n_kept - 1, n_taps - 1 - tap);
        float* to = args.kept_taps + tap * n;
        if (from != to) std::copy_n(from, n, to);
    }
}

std::int64_t n_blocks(const DeltaNetShape& shape) {
    return shape.n_value_heads * ceil_div(shape.value_dim, kStateColumns);
}

std::size_t working_bytes(const DeltaNetShape& shape, std::int64_t n_working) {
    return static_cast<std::size_t>(n_working * shape.key_dim * kStateColumns) * sizeof(float);
}

// Runs both rounds; `convolve` takes a range of parts.
template <typename Convolve>
void run_rounds(ExecRef exec, const DeltaNetArgs& args, const Convolve& convolve, RecurFn& recur) {
    CpuDevice& device = device_of(exec);
    device.reserve_scratch({.thread_bytes = working_bytes(args.shape, args.n_working)});
    device.pool().run(std::ssize(args.steps) * parts_of_step(args.shape), kPartsAtOnce,
                      [&](std::int64_t begin, std::int64_t end, int) { convolve(begin, end); });
    device.pool().run(n_blocks(args.shape), 1, [&](std::int64_t begin, std::int64_t end, int thread) {
        for (std::int64_t block = begin; block < end; ++block)
            run_columns(args, block, reinterpret_cast<float*>(device.thread_scratch(thread)), recur);
    });
    if (args.n_kept > 0) keep_taps(args);
}

[[gnu::always_inline]] inline void convolve_parts(const DeltaNetArgs& args, std::int64_t begin, std::int64_t end) {
    const std::int64_t parts = parts_of_step(args.shape);
    for (std::int64_t part = begin; part < end; ++part) convolve_part(args, part / parts, part % parts);
}

}  // namespace

void delta_net_scalar(ExecRef exec, const DeltaNetArgs& args) {
    run_rounds(
        exec, args, [&](std::int64_t begin, std::int64_t end) { convolve_parts(args, begin, end); }, recur_scalar);
}
void delta_net_avx2(ExecRef exec, const DeltaNetArgs& args) {
    run_rounds(
        exec, args, [&](std::int64_t begin, std::int64_t end) SLIPSTREAM_AVX2 { convolve_parts(args, begin, end); },
        *recur_avx2);
}
void delta_net_avx512(ExecRef exec, const DeltaNetArgs& args) {
    run_rounds(
        exec, args, [&](std::int64_t begin, std::int64_t end) SLIPSTREAM_AVX512 { convolve_parts(args, begin, end); },
        *recur_avx512);
}

void gather_columns(ExecRef exec, const GatherColumnsArgs& args) {
    const std::int64_t n_runs = args.y.cols() / args.run;
    device_of(exec).pool().run(args.y.rows(), 16, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t row = begin; row < end; ++row)
            for (std::int64_t i = 0; i < n_runs; ++i)
                std::copy_n(float_row(args.x, row) + args.first + i * args.stride, args.run,
                            float_row(args.y, row) + i * args.run);
    });
}

CpuScratch delta_net_scratch(const DeltaNetShape& shape, std::int64_t n_steps) {
    return {.thread_bytes = working_bytes(shape, working_states(n_steps))};
}

}  // namespace slipstream::cpu
