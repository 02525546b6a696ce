// What the tests of the emulated matmul share: weights packed into fragments, a launch over guarded matrices, and the
// error bound of an output.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "kernels/base/float16.h"
#include "kernels/cuda/matmul/fragments.h"
#include "kernels/cuda/matmul/matmul_launch.h"
#include "kernels/cuda/matmul/matmul_plan.h"
#include "tests/cuda_emulation/schedule.h"
#include "tests/kernels/matmul_cases.h"

namespace slipstream::cuda {

using testing_matmul::GuardedMatrix;
using testing_matmul::Weights;

/// Bytes with guards on both sides, aligned to 16; 0xff at first: NaN as floats, bfloat16 and halves.
class GuardedBytes {
public:
    explicit GuardedBytes(std::size_t n) : n_(n), bytes_(n + 2 * kGuard + 16, std::byte{0xff}) {}
    [[nodiscard]] std::byte* data() {
        const auto base = reinterpret_cast<std::uintptr_t>(bytes_.data()) + kGuard;
        return bytes_.data() + kGuard + (16 - base % 16) % 16;
    }
    void expect_guards_intact() {
        for (const std::byte* at = bytes_.data(); at < bytes_.data() + bytes_.size(); ++at)
            ASSERT_TRUE((at >= data() && at < data() + n_) || *at == std::byte{0xff}) << "at byte " << at - data();
    }

private:
    static constexpr std::size_t kGuard = 64;
    std::size_t n_;
    std::vector<std::byte> bytes_;
};

inline GuardedBytes packed_fragments(const Weights& weights) {
    const std::int64_t n_groups = (weights.m + 15) / 16;
    GuardedBytes out(static_cast<std::size_t>(n_groups * 16) * row_bytes(weights.type, weights.k));
    const ConstTensorView view = weights.view();
    pack_fragments({weights.type, view.data, view.row_stride_bytes, weights.m, weights.k}, 0, n_groups, out.data());
    return out;
}

/// One launch; scratch is its own, and its guards are looked at.
struct MatmulRun {
    DType type;
    std::int64_t m;
    std::int64_t k;
    const std::byte* packed;

    void operator()(GuardedMatrix& x, std::int64_t first_token, std::int64_t n_tokens, GuardedMatrix& y,
                    const MatmulLaunch& options = {}) const {
        GuardedBytes scratch(matmul_scratch_bytes(type, k, n_tokens));
        MatmulLaunch launch = options;
        launch.dtype = static_cast<std::int32_t>(type);
        launch.n_tokens = static_cast<std::int32_t>(n_tokens);
        launch.k = k;
        launch.matrices[0].weights = packed;
        launch.matrices[0].m = m;
        launch.matrices[0].y = reinterpret_cast<float*>(y.view().data);
        launch.matrices[0].y_stride = static_cast<std::int64_t>(y.view().row_stride_bytes / sizeof(float));
        launch.x = reinterpret_cast<const float*>(x.view().data) +
                   first_token * static_cast<std::int64_t>(x.view().row_stride_bytes / sizeof(float));
        launch.x_stride = static_cast<std::int64_t>(x.view().row_stride_bytes / sizeof(float));
        launch.scratch = scratch.data();
        launch_matmul(launch, nullptr);
        scratch.expect_guards_intact();
        y.expect_guards_intact();
    }
};

struct ExpectedOutput {
    double sum = 0;
    double bound = 0;
};

/// A token as the kernels multiply it: rounded to bfloat16; for F16 weights to a half, after a power of two has brought
/// its largest magnitude to [2^14, 2^15), and back; for F32 as it is.
inline std::vector<float> rounded_token(DType type, const float* x, std::int64_t k) {
    std::vector<float> out(x, x + k);
    if (type == DType::F32) return out;
    float largest = 0;
    for (const float v : out) largest = std::max(largest, std::abs(v));
    const int exponent = largest == 0 ? 14 : std::max(std::ilogb(largest), -112);
    for (float& v : out) {
        v = type == DType::F16 ? std::ldexp(to_float(to_half(std::ldexp(v, 14 - exponent))), exponent - 14)
                               : to_float(to_bfloat16(v));
    }
    return out;
}

/// Reference in double over decoded weights and rounded activations; the bound, with u = 2^-24. Products of codes or
/// weights with activations are exact in float. Sums take at most one rounding a k, each run of a scale two fma, each
/// part of K an addition, the sum of 32 activations 32 roundings: all relative to sum (|scale * code| + |offset|) |x|,
/// at most sum (|w| + 2 |offset|) |x|. A decoded weight is rounded twice.
inline ExpectedOutput expected_output(const std::vector<float>& row, const std::vector<float>& offsets,
                                      const std::vector<float>& x) {
    ExpectedOutput out;
    double magnitude = 0;
    for (std::size_t i = 0; i < row.size(); ++i) {
        const double w = std::abs(double{row[i]}) + (offsets.empty() ? 0.0 : 2 * std::abs(double{offsets[i]}));
        out.sum += double{row[i]} * double{x[i]};
        magnitude += w * std::abs(double{x[i]});
    }
    const double roundings = static_cast<double>(row.size()) * (1.0 + 2.0 / 16) + 8 + 32 + 2;
    out.bound = roundings * 0x1p-24 / (1 - roundings * 0x1p-24) * magnitude;
    return out;
}

/// What a row decodes to where all its codes are zero; empty for types without an offset.
inline std::vector<float> decoded_offsets(const Weights& weights, std::int64_t row) {
    if (matmul_scratch_kind(weights.type) != ScratchKind::Bf16WithSums) return {};
    const std::size_t header = dtype_info(weights.type).block_elements == 256 ? 16 : 4;
    const std::byte* bytes = weights.view().row(row);
    std::vector<std::byte> blocks(bytes, bytes + row_bytes(weights.type, weights.k));
    const std::size_t block_bytes = dtype_info(weights.type).block_bytes;
    for (std::size_t i = 0; i < blocks.size(); ++i)
        if (i % block_bytes >= header) blocks[i] = std::byte{0};
    std::vector<float> out(static_cast<std::size_t>(weights.k));
    cpu::dequantize_row(weights.type, blocks.data(), out.data(), weights.k);
    return out;
}

}  // namespace slipstream::cuda
