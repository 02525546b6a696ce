// Matmul of the CUDA backend through the op, for tests: weights packed on the device, outputs between guards, the bound
// of a sum.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "kernels/matmul.h"
#include "kernels/pack_weights.h"
#include "tests/cuda/device_array.h"
#include "tests/cuda/under_test.h"
#include "tests/kernels/matmul_cases.h"

namespace slipstream::testing_cuda {

inline std::vector<float> random_floats(std::int64_t n, std::uint32_t seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::vector<float> values(static_cast<std::size_t>(n));
    for (float& value : values) value = normal(random) * (random() % 53 == 0 ? 100.0F : 1.0F);
    return values;
}

class CudaMatmul : public CudaOps {
protected:
    void TearDown() override {
        packed_ = {};
        CudaOps::TearDown();
    }
    /// The weights packed on the device.
    ConstTensorView on_device(const testing_matmul::Weights& weights) {
        std::vector<std::byte> bytes(packed_bytes(weights.type, weights.m, weights.k) + 64, std::byte{0xff});
        auto* host = reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(bytes.data()) + 63) / 64 * 64);
        const std::size_t size = packed_bytes(weights.type, weights.m, weights.k);
        const TensorView packed = packed_view(host, weights.type, weights.m, weights.k, packed_layout(device().kind()));
        pack_weights(exec(), {.weights = weights.view(), .packed = packed});
        packed_ = upload_bytes(exec(), {host, size});
        ConstTensorView view = packed;
        view.data = packed_.data();
        return view;
    }
    std::vector<float> multiply(const ConstTensorView& weights, const std::vector<float>& x, std::int64_t n) {
        const DeviceFloats x_device(exec(), n, weights.shape[1], x);
        const DeviceFloats y(exec(), n, weights.shape[0], 5);
        matmul(exec(), {.weights = weights, .x = x_device.view(), .y = y.view()});
        return y.read();
    }
    /// A pass of n tokens gives the bits that they have in one of 513.
    void expect_no_company(const testing_matmul::Weights& weights) {
        const ConstTensorView packed = on_device(weights);
        const std::vector<float> x = random_floats(513 * weights.k, 6);
        const std::vector<float> all = multiply(packed, x, 513);
        for (const std::int64_t n : {1, 2, 7, 8, 9, 16, 17, 33, 64, 128, 129, 512}) {
            // The last n rows, so that a token stands elsewhere in its tile.
            const std::vector<float> part(x.end() - n * weights.k, x.end());
            const std::vector<float> found = multiply(packed, part, n);
            ASSERT_TRUE(same_bits(found, std::span(all).last(found.size())))
                << dtype_name(weights.type) << ", " << n << " of 513 tokens, [" << weights.m << ", " << weights.k
                << "]";
        }
    }

private:
    Buffer packed_;
};

/// What rounding an activation costs, relative to it.
inline double activation_rounding(DType type) {
    if (type == DType::F32) return std::ldexp(1.0, -24);
    return std::ldexp(1.0, type == DType::F16 ? -11 : -8);
}

/// Products are exact in float or nearly so; a sum loses at most k roundings of its largest partial sum. Where a type
/// has offsets, codes and offset are summed apart, so partial sums are as large as the block's largest weight. Of every
/// `row_step`-th row.
inline void expect_near(const testing_matmul::Weights& weights, const std::vector<float>& x, std::int64_t n,
                        const std::vector<float>& y, std::int64_t row_step = 1) {
    const auto k = static_cast<std::size_t>(weights.k);
    const std::size_t block = static_cast<std::size_t>(dtype_info(weights.type).block_elements);
    const double each = activation_rounding(weights.type);
    const double sums = static_cast<double>(k) * std::ldexp(1.0, -22);
    for (std::int64_t row = 0; row < weights.m; row += row_step) {
        const std::vector<float> w = weights.decoded_row(row);
        std::vector<double> most(k);
        for (std::size_t i = 0; i < k; ++i) {
            double& best = most[i / block * block];
            best = std::max(best, 2.0 * std::fabs(static_cast<double>(w[i])));
        }
        for (std::int64_t token = 0; token < n; ++token) {
            double exact = 0.0;
            double bound = 1e-30;
            for (std::size_t i = 0; i < k; ++i) {
                const double value = x[static_cast<std::size_t>(token) * k + i];
                exact += w[i] * value;
                bound += std::fabs(w[i] * value) * each + most[i / block * block] * std::fabs(value) * sums;
            }
            const float found = y[token * weights.m + row];
            ASSERT_LE(std::fabs(found - exact), bound)
                << dtype_name(weights.type) << " row " << row << " token " << token << ": " << found << ", " << exact;
        }
    }
}

}  // namespace slipstream::testing_cuda
