// Matmul of the CUDA backend through the op: every type near a sum in double, and E1 bit for bit.
#include <cmath>
#include <vector>

#include "tests/cuda/matmul_on_device.h"

namespace slipstream::testing_cuda {
namespace {

using testing_matmul::cuda_types;
using testing_matmul::random_weights;
using testing_matmul::Shape;
using testing_matmul::Weights;

std::vector<Shape> shapes_of(DType type) {
    if (is_quantized(type))
        return {{16, 256, 1}, {17, 256, 3}, {1, 512, 7}, {48, 768, 8}, {35, 1280, 65}, {31, 512, 17}};
    return {{16, 256, 1}, {17, 100, 3}, {1, 33, 7}, {48, 768, 8}, {35, 1283, 65}, {31, 1, 17}, {20, 7, 9}};
}

TEST_F(CudaMatmul, IsNearTheSumInDouble) {
    for (const DType type : cuda_types())
        for (const Shape& shape : shapes_of(type)) {
            const Weights weights = random_weights(type, shape.m, shape.k);
            const std::vector<float> x = random_floats(shape.n * shape.k, 5);
            const std::vector<float> y = multiply(on_device(weights), x, shape.n);
            expect_near(weights, x, shape.n, y);
            if (testing::Test::HasFatalFailure()) return;
        }
}

TEST_F(CudaMatmul, TakesNothingFromOtherTokens) {
    for (const DType type : cuda_types())
        for (const Shape& shape : {Shape{80, 1024, 0}, Shape{16, 4096, 0}}) {
            expect_no_company(random_weights(type, shape.m, shape.k));
            if (testing::Test::HasFatalFailure()) return;
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
