// The small ops on the CPU. A row function is written once in plain float arithmetic, without fused operations, and
// compiled for each kernel variant by a wrapper with target attributes into which it is inlined: the same bits in every
// variant, vectorised by the compiler. Sums go over 16 lanes (element i to lane i mod 16), then a fixed tree.
#include "kernels/cpu/elementwise.h"

#include <algorithm>
#include <cmath>

#include "kernels/base/checked_math.h"
#include "kernels/cpu/exp.h"
#include "kernels/cpu/matmul/dequantize.h"
#include "kernels/cpu/target.h"
#include "kernels/cpu_device.h"

namespace slipstream::cpu {

namespace {

ThreadPool& pool_of(ExecRef exec) {
    return static_cast<CpuDevice&>(exec.device).pool();
}

// Returns the rows that a thread takes at a time, so that they are a few microseconds of work: estimated at 8 elements
// per nanosecond.
std::int64_t rows_per_piece(std::int64_t cols) {
    return std::max<std::int64_t>(1, 16384 / std::max<std::int64_t>(1, cols));
}

[[gnu::always_inline]] inline float sum_lanes(const float (&lanes)[16]) {
    float eight[8];
    for (int i = 0; i < 8; ++i) eight[i] = lanes[i] + lanes[i + 8];
    float four[4];
    for (int i = 0; i < 4; ++i) four[i] = eight[i] + eight[i + 4];
    return (four[0] + four[2]) + (four[1] + four[3]);
}

// Writes the RMS norm of row `x`, [d], to `y`, [d], which may be the same row. `weight`: [d], or null: all weights are
// 1.
[[gnu::always_inline]] inline void rms_norm_row(const float* x, const float* weight, float* y, std::int64_t d,
                                                float eps) {
    float lanes[16] = {};
    std::int64_t i = 0;
    for (; i + 16 <= d; i += 16)
        for (int lane = 0; lane < 16; ++lane) lanes[lane] += x[i + lane] * x[i + lane];
    for (int lane = 0; i < d; ++i, ++lane) lanes[lane] += x[i] * x[i];
    const float scale = 1.0F / std::sqrt(sum_lanes(lanes) / static_cast<float>(d) + eps);
    if (weight == nullptr) {
        for (std::int64_t j = 0; j < d; ++j) y[j] = x[j] * scale;
        return;
    }
    for (std::int64_t j = 0; j < d; ++j) y[j] = x[j] * scale * weight[j];
}

[[gnu::always_inline]] inline void rms_norm_rows(const RmsNormArgs& args, std::int64_t begin, std::int64_t end) {
    const float* weight = args.weight.empty() ? nullptr : float_row(args.weight, 0);
    for (std::int64_t row = begin; row < end; ++row)
        rms_norm_row(float_row(args.x, row), weight, float_row(args.y, row), args.x.cols(), args.eps);
}

// Returns v / (1 + exp(-v)). -v is limited to 88, the largest argument of exp_float(); below v = -88 the result is v /
// 1.7e38.
[[gnu::always_inline]] inline float silu(float v) {
    const float negative = -v > 88.0F ? 88.0F : -v;
    return v / (1.0F + exp_float(negative));
}

// Returns v / 2 * (1 + tanh(u)), u = sqrt(2 / pi) * (v + 0.044715 v^3), as v / (1 + exp(-2 u)). Below v = -10 the
// result is that of -10, -1.2e-37: there 2 u is -87.4, so the argument of exp_float() never exceeds 88. For large v,
// v^3 may be infinite: the exponential is then 0 and the result v. The relative error is at most (4 |2 u| + 8) 2^-24
// (tested): that of 2 u, rounded four times, and of a quotient.
[[gnu::always_inline]] inline float gelu_tanh(float gate) {
    constexpr float kFirst = 1.59576912F;    // GeluTanh: factor of v in 2 u, 2 sqrt(2 / pi)
    constexpr float kThird = 0.0713548163F;  // GeluTanh: factor of v^3 in 2 u, 2 sqrt(2 / pi) * 0.044715
    const float v = gate < -10.0F ? -10.0F : gate;
    return v / (1.0F + exp_float(-v * (kThird * (v * v) + kFirst)));
}

[[gnu::always_inline]] inline float sigmoid(float v) {
    const float negative = -v > 88.0F ? 88.0F : -v;
    return 1.0F / (1.0F + exp_float(negative));
}

template <GatedActivation kKind>
[[gnu::always_inline]] inline float activated(float v) {
    if constexpr (kKind == GatedActivation::Silu) return silu(v);
    if constexpr (kKind == GatedActivation::GeluTanh) return gelu_tanh(v);
    return sigmoid(v);
}

template <GatedActivation kKind>
[[gnu::always_inline]] inline void gate_rows(const GatedActivationArgs& args, std::int64_t begin, std::int64_t end) {
    const std::int64_t d = args.y.cols();
    for (std::int64_t row = begin; row < end; ++row) {
        const float* gate = float_row(args.gate, row);
        const float* up = float_row(args.up, row);
        float* y = float_row(args.y, row);
        for (std::int64_t i = 0; i < d; ++i) y[i] = activated<kKind>(gate[i]) * up[i];
    }
}

// The gated feed-forward of gpt-oss (transformers: GptOssExperts._apply_gate). For v below -51.7 the argument of the
// exponential is limited to 88, its largest.
[[gnu::always_inline]] inline void clamped_rows(const GatedActivationArgs& args, std::int64_t begin, std::int64_t end) {
    constexpr float kAlpha = 1.702F;
    const std::int64_t d = args.y.cols();
    const float limit = args.limit;
    for (std::int64_t row = begin; row < end; ++row) {
        const float* gate = float_row(args.gate, row);
        const float* up = float_row(args.up, row);
        float* y = float_row(args.y, row);
        for (std::int64_t i = 0; i < d; ++i) {
            const float v = gate[i] > limit ? limit : gate[i];
            const float most = up[i] > limit ? limit : up[i];
            const float u = most < -limit ? -limit : most;
            const float negative = v * -kAlpha > 88.0F ? 88.0F : v * -kAlpha;
            y[i] = v / (1.0F + exp_float(negative)) * (u + 1.0F);
        }
    }
}

[[gnu::always_inline]] inline void gate_rows(const GatedActivationArgs& args, std::int64_t begin, std::int64_t end) {
    switch (args.kind) {
        case GatedActivation::Silu:
            return gate_rows<GatedActivation::Silu>(args, begin, end);
        case GatedActivation::GeluTanh:
            return gate_rows<GatedActivation::GeluTanh>(args, begin, end);
        case GatedActivation::Sigmoid:
            return gate_rows<GatedActivation::Sigmoid>(args, begin, end);
        case GatedActivation::ClampedSilu:
            return clamped_rows(args, begin, end);
    }
}

// Columns that a thread takes at a time: rows are divided, since there may be a single row of a whole vocabulary.
constexpr std::int64_t kSoftcapCols = 8192;

[[gnu::always_inline]] inline void softcap_ranges(const SoftcapArgs& args, std::int64_t begin, std::int64_t end) {
    const std::int64_t d = args.y.cols();
    const std::int64_t ranges = ceil_div(d, kSoftcapCols);
    const Softcap by(args.cap);
    for (std::int64_t range = begin; range < end; ++range) {
        const std::int64_t first = range % ranges * kSoftcapCols;
        const std::int64_t n = std::min(kSoftcapCols, d - first);
        float* y = float_row(args.y, range / ranges) + first;
        for (std::int64_t i = 0; i < n; ++i) y[i] = by(y[i]);
    }
}
std::int64_t softcap_count(const SoftcapArgs& args) {
    return args.y.rows() * ceil_div(args.y.cols(), kSoftcapCols);
}

}  // namespace

void rms_norm_scalar(ExecRef exec, const RmsNormArgs& args) {
    pool_of(exec).run(args.x.rows(), rows_per_piece(args.x.cols()),
                      [&](std::int64_t begin, std::int64_t end, int) { rms_norm_rows(args, begin, end); });
}
void rms_norm_avx2(ExecRef exec, const RmsNormArgs& args) {
    pool_of(exec).run(args.x.rows(), rows_per_piece(args.x.cols()),
                      [&](std::int64_t begin, std::int64_t end, int)
                          SLIPSTREAM_AVX2 { rms_norm_rows(args, begin, end); });
}
void rms_norm_avx512(ExecRef exec, const RmsNormArgs& args) {
    pool_of(exec).run(args.x.rows(), rows_per_piece(args.x.cols()),
                      [&](std::int64_t begin, std::int64_t end, int)
                          SLIPSTREAM_AVX512 { rms_norm_rows(args, begin, end); });
}

void gated_activation_scalar(ExecRef exec, const GatedActivationArgs& args) {
    pool_of(exec).run(args.y.rows(), rows_per_piece(args.y.cols()),
                      [&](std::int64_t begin, std::int64_t end, int) { gate_rows(args, begin, end); });
}
void gated_activation_avx2(ExecRef exec, const GatedActivationArgs& args) {
    pool_of(exec).run(args.y.rows(), rows_per_piece(args.y.cols()),
                      [&](std::int64_t begin, std::int64_t end, int) SLIPSTREAM_AVX2 { gate_rows(args, begin, end); });
}
void gated_activation_avx512(ExecRef exec, const GatedActivationArgs& args) {
    pool_of(exec).run(args.y.rows(), rows_per_piece(args.y.cols()),
                      [&](std::int64_t begin, std::int64_t end, int)
                          SLIPSTREAM_AVX512 { gate_rows(args, begin, end); });
}

void softcap_scalar(ExecRef exec, const SoftcapArgs& args) {
    pool_of(exec).run(softcap_count(args), 1,
                      [&](std::int64_t begin, std::int64_t end, int) { softcap_ranges(args, begin, end); });
}
void softcap_avx2(ExecRef exec, const SoftcapArgs& args) {
    pool_of(exec).run(softcap_count(args), 1, [&](std::int64_t begin, std::int64_t end, int) SLIPSTREAM_AVX2 {
        softcap_ranges(args, begin, end);
    });
}
void softcap_avx512(ExecRef exec, const SoftcapArgs& args) {
    pool_of(exec).run(softcap_count(args), 1, [&](std::int64_t begin, std::int64_t end, int) SLIPSTREAM_AVX512 {
        softcap_ranges(args, begin, end);
    });
}

void rope_table(ExecRef exec, const RopeTableArgs& args) {
    const std::int64_t half = args.cos_sin.cols() / 2;
    pool_of(exec).run(args.cos_sin.rows(), rows_per_piece(16 * half), [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t t = begin; t < end; ++t) {
            rope_row(args, t, float_row(args.cos_sin, t));
        }
    });
}

void rope_row(const RopeTableArgs& args, std::int64_t t, float* row) {
    const std::int64_t half = args.cos_sin.cols() / 2;
    const float magnitude = args.factors == nullptr ? args.magnitude : args.magnitude * args.factors[t];
    for (std::int64_t i = 0; i < half; ++i) {
        const double angle = static_cast<double>(args.positions[t]) * args.inverse_frequency[i];
        row[i] = static_cast<float>(std::cos(angle)) * magnitude;
        row[half + i] = static_cast<float>(std::sin(angle)) * magnitude;
    }
}

void rope(ExecRef exec, const RopeArgs& args) {
    const std::int64_t half = args.cos_sin.cols() / 2;
    const std::int64_t n_heads = args.x.cols() / args.head_dim;
    // Elements from the first to the second of a pair (apart), and from one pair to the next (step).
    const std::int64_t apart = args.layout == RopeLayout::Half ? half : 1;
    const std::int64_t step = args.layout == RopeLayout::Half ? 1 : 2;
    pool_of(exec).run(args.x.rows(), rows_per_piece(args.x.cols()), [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t t = begin; t < end; ++t) {
            const float* cosine = float_row(args.cos_sin, t);
            const float* sine = cosine + half;
            for (std::int64_t head = 0; head < n_heads; ++head) {
                float* x = float_row(args.x, t) + head * args.head_dim;
                for (std::int64_t i = 0; i < half; ++i) {
                    const float a = x[i * step];
                    const float b = x[i * step + apart];
                    x[i * step] = a * cosine[i] - b * sine[i];
                    x[i * step + apart] = a * sine[i] + b * cosine[i];
                }
            }
        }
    });
}

void add(ExecRef exec, const AddArgs& args) {
    pool_of(exec).run(args.y.rows(), rows_per_piece(args.y.cols()), [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t row = begin; row < end; ++row) {
            const float* x = float_row(args.x, row);
            float* y = float_row(args.y, row);
            for (std::int64_t i = 0; i < args.y.cols(); ++i) y[i] += args.scale * x[i];
            if (args.factor.empty()) continue;
            const float factor = *float_row(args.factor, 0);
            for (std::int64_t i = 0; i < args.y.cols(); ++i) y[i] *= factor;
        }
    });
}

void embed(ExecRef exec, const EmbedArgs& args) {
    pool_of(exec).run(args.y.rows(), 4, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t t = begin; t < end; ++t) embed_row(args, t, float_row(args.y, t));
    });
}

void embed_row(const EmbedArgs& args, std::int64_t t, float* y) {
    const std::int64_t d = args.table.cols();
    dequantize_row(args.table.dtype, args.table.row(args.tokens[t]), y, d);
    if (args.scale == 1.0F) return;
    for (std::int64_t i = 0; i < d; ++i) y[i] *= args.scale;
}

}  // namespace slipstream::cpu
