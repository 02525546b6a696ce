// The choice and the sum of a mixture of experts. A row function is written once in plain float arithmetic and compiled
// for each kernel variant by a wrapper with target attributes into which it is inlined: the same bits in every variant.
// The sum alone uses fused multiply-adds, which are written as such.
#include "kernels/cpu/experts.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/base/checked_math.h"
#include "kernels/cpu/exp.h"
#include "kernels/cpu/matmul/code_chain.h"
#include "kernels/cpu/matmul/matmul.h"
#include "kernels/cpu/matmul/matmul_grouped.h"
#include "kernels/cpu/target.h"
#include "kernels/cpu_device.h"
#include "kernels/nonfinite_row.h"

namespace slipstream::cpu {

namespace {

ThreadPool& pool_of(ExecRef exec) {
    return static_cast<CpuDevice&>(exec.device).pool();
}

// Tokens that a thread takes per task.
constexpr std::int64_t kTokensPerTask = 4;

// Columns of the sums that a thread takes per task: 1 KB of each row.
constexpr std::int64_t kCombineCols = 256;

// exp_float() takes at most 88, so for v < -88 the result is that of -88, about 6e-39.
[[gnu::always_inline]] inline float sigmoid(float v) {
    const float negative = -v > 88.0F ? 88.0F : -v;
    return 1.0F / (1.0F + exp_float(negative));
}

[[gnu::always_inline]] inline bool is_finite(float v) {
    return (std::bit_cast<std::uint32_t>(v) & 0x7f800000U) != 0x7f800000U;
}

// What decides the choice of expert i: its logit (a softmax keeps the order), or sigmoid + bias.
[[gnu::always_inline]] inline float choice_key(const float* logits, const float* bias, ExpertScore score,
                                               std::int64_t i) {
    if (score == ExpertScore::Softmax) return logits[i];
    return bias == nullptr ? sigmoid(logits[i]) : sigmoid(logits[i]) + bias[i];
}

[[gnu::always_inline]] inline void choose_for_token(const ChooseExpertsArgs& args, std::int64_t token) {
    const std::int64_t n = args.logits.cols();
    const std::int64_t k = args.n_chosen;
    const float* logits = float_row(args.logits, token);
    const float* bias = args.bias.empty() ? nullptr : float_row(args.bias, 0);
    const ExpertWeighting& weighting = args.weighting;
    std::int32_t* ids = args.ids + token * k;
    float* weights = args.weights + token * k;
    // ids[0 .. found) are the best experts so far, by descending key, and weights their keys. A later expert with an
    // equal key comes after an earlier one.
    std::int64_t found = 0;
    float largest = logits[0];
    for (std::int64_t i = 0; i < n; ++i) {
        const float key = choice_key(logits, bias, weighting.score, i);
        if (!is_finite(key) || !is_finite(logits[i])) {
            for (std::int64_t j = 0; j < k; ++j) {
                ids[j] = -1;
                weights[j] = 0.0F;
            }
            return;
        }
        largest = logits[i] > largest ? logits[i] : largest;
        if (found == k && !(key > weights[k - 1])) continue;
        std::int64_t at = found < k ? found++ : k - 1;
        for (; at > 0 && key > weights[at - 1]; --at) {
            ids[at] = ids[at - 1];
            weights[at] = weights[at - 1];
        }
        ids[at] = static_cast<std::int32_t>(i);
        weights[at] = key;
    }
    std::sort(ids, ids + k);
    float sum = 0.0F;
    for (std::int64_t j = 0; j < k; ++j) {
        const float logit = logits[ids[j]];
        weights[j] = weighting.score == ExpertScore::Softmax ? exp_float(logit - largest) : sigmoid(logit);
        sum += weights[j];
    }
    if (weighting.normalized) {
        sum += weighting.sum_offset;
    } else if (weighting.score == ExpertScore::Softmax) {
        sum = 0.0F;
        for (std::int64_t i = 0; i < n; ++i) sum += exp_float(logits[i] - largest);
    } else {
        sum = 1.0F;
    }
    for (std::int64_t j = 0; j < k; ++j) weights[j] = weights[j] / sum * weighting.scale;
    if (args.scales.empty()) return;
    const float* scales = float_row(args.scales, 0);
    for (std::int64_t j = 0; j < k; ++j) weights[j] *= scales[ids[j]];
}

[[gnu::always_inline]] inline void combine_columns(const CombineExpertsArgs& args, std::int64_t begin,
                                                   std::int64_t end) {
    const std::int64_t d = args.sums.cols();
    const std::int64_t n_rows = args.rows.rows();
    for (std::int64_t task = begin; task < end; ++task) {
        const std::int64_t first = task * kCombineCols;
        const std::int64_t n = std::min(kCombineCols, d - first);
        if (args.from_zero)
            for (std::int64_t token = 0; token < args.sums.rows(); ++token)
                std::fill_n(float_row(args.sums, token) + first, n, 0.0F);
        for (std::int64_t row = 0; row < n_rows; ++row) {
            const float weight = args.weights[row];
            const float* x = float_row(args.rows, row) + first;
            float* sum = float_row(args.sums, args.tokens[row]) + first;
            for (std::int64_t i = 0; i < n; ++i) sum[i] = __builtin_fmaf(weight, x[i], sum[i]);
        }
    }
}
std::int64_t combine_count(const CombineExpertsArgs& args) {
    return ceil_div(args.sums.cols(), kCombineCols);
}

}  // namespace

void choose_row(const ChooseExpertsArgs& args, std::int64_t token) {
    choose_for_token(args, token);
}

void choose_experts_scalar(ExecRef exec, const ChooseExpertsArgs& args) {
    pool_of(exec).run(args.logits.rows(), kTokensPerTask, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t token = begin; token < end; ++token) choose_row(args, token);
    });
}
void choose_experts_avx2(ExecRef exec, const ChooseExpertsArgs& args) {
    pool_of(exec).run(args.logits.rows(), kTokensPerTask,
                      [&](std::int64_t begin, std::int64_t end, int) SLIPSTREAM_AVX2 {
                          for (std::int64_t token = begin; token < end; ++token) choose_for_token(args, token);
                      });
}
void choose_experts_avx512(ExecRef exec, const ChooseExpertsArgs& args) {
    pool_of(exec).run(args.logits.rows(), kTokensPerTask,
                      [&](std::int64_t begin, std::int64_t end, int) SLIPSTREAM_AVX512 {
                          for (std::int64_t token = begin; token < end; ++token) choose_for_token(args, token);
                      });
}

void combine_experts_scalar(ExecRef exec, const CombineExpertsArgs& args) {
    pool_of(exec).run(combine_count(args), 1,
                      [&](std::int64_t begin, std::int64_t end, int) { combine_columns(args, begin, end); });
}
void combine_experts_avx2(ExecRef exec, const CombineExpertsArgs& args) {
    pool_of(exec).run(combine_count(args), 1, [&](std::int64_t begin, std::int64_t end, int) SLIPSTREAM_AVX2 {
        combine_columns(args, begin, end);
    });
}
void combine_experts_avx512(ExecRef exec, const CombineExpertsArgs& args) {
    pool_of(exec).run(combine_count(args), 1, [&](std::int64_t begin, std::int64_t end, int) SLIPSTREAM_AVX512 {
        combine_columns(args, begin, end);
    });
}

void grouped_matmul_scalar(ExecRef exec, std::span<const MatmulArgs> products) {
    for (std::size_t i = 0; i < products.size(); ++i) {
        const MatmulArgs& args = products[i];
        for (std::int64_t row = 0; row < args.x.shape[0]; ++row)
            if (!all_finite(float_row(args.x, row), args.x.shape[1])) throw NonFiniteRow(i, row);
        if (is_quantized(args.weights.dtype)) {
            matmul_code_chain(exec, args);
        } else {
            matmul_scalar(exec, args);
        }
    }
}
#if defined(__x86_64__)
void grouped_matmul_avx2(ExecRef exec, std::span<const MatmulArgs> products) {
    grouped_matmul_interleaved(exec, products, interleaved_form_avx2());
}
void grouped_matmul_avx512(ExecRef exec, std::span<const MatmulArgs> products) {
    grouped_matmul_interleaved(exec, products, interleaved_form_avx512());
}
void grouped_matmul_avx512_vnni(ExecRef exec, std::span<const MatmulArgs> products) {
    grouped_matmul_interleaved(exec, products, interleaved_form_avx512_vnni());
}
void grouped_matmul_avx512_bf16(ExecRef exec, std::span<const MatmulArgs> products) {
    grouped_matmul_interleaved(exec, products, interleaved_form_avx512_bf16());
}
#endif

}  // namespace slipstream::cpu
