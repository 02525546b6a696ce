// Matmul of the CUDA backend through the op: every type near a sum in double, and E1 bit for bit.
#include <cmath>
#include <random>
#include <vector>

#include "kernels/matmul.h"
#include "kernels/pack_weights.h"
#include "tests/cuda/device_array.h"
#include "tests/cuda/under_test.h"
#include "tests/kernels/matmul_cases.h"

namespace slipstream::testing_cuda {
namespace {

using testing_matmul::kAllTypes;
using testing_matmul::random_weights;
using testing_matmul::Shape;
using testing_matmul::Weights;

std::vector<float> random_floats(std::int64_t n, std::uint32_t seed) {
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
    ConstTensorView on_device(const Weights& weights) {
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

private:
    Buffer packed_;
};

// What rounding an activation costs, relative to it.
double activation_rounding(DType type) {
    if (type == DType::F32) return std::ldexp(1.0, -24);
    return std::ldexp(1.0, type == DType::F16 ? -11 : -8);
}

// Products are exact in float or nearly so; a sum loses at most k roundings of its largest partial sum. Where a type
// has offsets, codes and offset are summed apart, so partial sums are as large as the block's largest weight.
void expect_near(const Weights& weights, const std::vector<float>& x, std::int64_t n, const std::vector<float>& y) {
    const auto k = static_cast<std::size_t>(weights.k);
    const std::size_t block = static_cast<std::size_t>(dtype_info(weights.type).block_elements);
    const double each = activation_rounding(weights.type);
    const double sums = static_cast<double>(k) * std::ldexp(1.0, -22);
    for (std::int64_t row = 0; row < weights.m; ++row) {
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
            const float found = y[static_cast<std::size_t>(token * weights.m + row)];
            ASSERT_LE(std::fabs(found - exact), bound)
                << dtype_name(weights.type) << " row " << row << " token " << token << ": " << found << ", " << exact;
        }
    }
}

std::vector<Shape> shapes_of(DType type, bool is_card) {
    std::vector<Shape> shapes;
    if (is_quantized(type))
        shapes = {{16, 256, 1}, {17, 256, 3}, {1, 512, 7}, {48, 768, 8}, {35, 1280, 65}, {31, 512, 17}};
    else
        shapes = {{16, 256, 1}, {17, 100, 3}, {1, 33, 7}, {48, 768, 8}, {35, 1283, 65}, {31, 1, 17}, {20, 7, 9}};
    if (is_card) shapes.insert(shapes.end(), {{4096, 4096, 3}, {1024, 14336, 33}, {14336, 1024, 130}});
    return shapes;
}

TEST_F(CudaMatmul, IsNearTheSumInDouble) {
    for (const DType type : kAllTypes)
        for (const Shape& shape : shapes_of(type, is_card())) {
            const Weights weights = random_weights(type, shape.m, shape.k);
            const std::vector<float> x = random_floats(shape.n * shape.k, 5);
            const std::vector<float> y = multiply(on_device(weights), x, shape.n);
            expect_near(weights, x, shape.n, y);
            if (testing::Test::HasFatalFailure()) return;
        }
}

TEST_F(CudaMatmul, TakesNothingFromOtherTokens) {
    for (const DType type : kAllTypes)
        for (const Shape& shape : is_card() ? std::vector<Shape>{{80, 1024, 0}, {4096, 4096, 0}, {1024, 14336, 0}}
                                            : std::vector<Shape>{{80, 1024, 0}, {16, 4096, 0}}) {
            const Weights weights = random_weights(type, shape.m, shape.k);
            const ConstTensorView packed = on_device(weights);
            const std::vector<float> x = random_floats(513 * shape.k, 6);
            const std::vector<float> all = multiply(packed, x, 513);
            for (const std::int64_t n : {1, 2, 7, 8, 9, 16, 17, 33, 64, 128, 129, 512}) {
                // The last n rows, so that a token stands elsewhere in its tile.
                const std::vector<float> part(x.end() - n * shape.k, x.end());
                const std::vector<float> found = multiply(packed, part, n);
                ASSERT_TRUE(same_bits(found, std::span(all).last(found.size())))
                    << dtype_name(type) << ", " << n << " of 513 tokens, [" << shape.m << ", " << shape.k << "]";
            }
        }
}

// A token beside others of infinities and NaN.
TEST_F(CudaMatmul, TakesNothingFromTokensThatAreNotFinite) {
    for (const DType type : {DType::BF16, DType::F16, DType::Q4_K}) {
        const Weights weights = random_weights(type, 32, 512);
        const ConstTensorView packed = on_device(weights);
        std::vector<float> x = random_floats(16 * 512, 8);
        const std::vector<float> alone = multiply(packed, {x.begin() + 3 * 512, x.begin() + 4 * 512}, 1);
        for (std::size_t i = 0; i < x.size(); ++i)
            if (i / 512 != 3) x[i] = i % 3 == 0 ? INFINITY : i % 3 == 1 ? -INFINITY : NAN;
        const std::vector<float> beside = multiply(packed, x, 16);
        ASSERT_TRUE(same_bits(alone, std::span(beside).subspan(3 * 32, 32))) << dtype_name(type);
    }
}

TEST_F(CudaMatmul, AddsBiasAndWhatWasThere) {
    for (const DType type : {DType::BF16, DType::Q8_0, DType::F32}) {
        const Weights weights = random_weights(type, 40, 256);
        const ConstTensorView packed = on_device(weights);
        const std::vector<float> x = random_floats(5 * 256, 9);
        const std::vector<float> b = random_floats(40, 10);
        const std::vector<float> there = random_floats(5 * 40, 11);
        const std::vector<float> plain = multiply(packed, x, 5);
        const DeviceFloats x_device(exec(), 5, 256, x, 3);
        const DeviceFloats bias(exec(), 1, 40, b);
        const DeviceFloats y(exec(), 5, 40, there, 7);
        matmul(exec(), {.weights = packed,
                        .x = x_device.view(),
                        .y = y.view(),
                        .bias = vector_view(bias.view().data, DType::F32, 40),
                        .store = MatmulStore::Add});
        const std::vector<float> found = y.read();
        for (std::size_t i = 0; i < found.size(); ++i)
            ASSERT_EQ(found[i], there[i] + (plain[i] + b[i % 40])) << dtype_name(type) << " " << i;
    }
}

TEST_F(CudaMatmul, OfNothingWritesNothing) {
    const Weights weights = random_weights(DType::BF16, 16, 64);
    const ConstTensorView packed = on_device(weights);
    EXPECT_TRUE(multiply(packed, {}, 0).empty());
}

}  // namespace
}  // namespace slipstream::testing_cuda
