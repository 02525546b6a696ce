// Matmul on a card over matrices of models, which would take an emulated machine minutes: blocks in every place of a
// large grid, long chains of K, both kernels. tools/gpu_check leaves this suite out where compute-sanitizer looks on.
#include <vector>

#include "tests/cuda/matmul_on_device.h"

namespace slipstream::testing_cuda {
namespace {

using testing_matmul::cuda_types;
using testing_matmul::random_weights;
using testing_matmul::Shape;
using testing_matmul::Weights;

class CudaLargeMatmul : public CudaMatmul {};

// Every 37th row, which are rows of all places in a tile: sums in double take the host a minute for all of them.
TEST_F(CudaLargeMatmul, IsNearTheSumInDouble) {
    for (const DType type : cuda_types())
        for (const Shape& shape : {Shape{4096, 4096, 3}, Shape{1024, 14336, 33}, Shape{14336, 1024, 130}}) {
            const Weights weights = random_weights(type, shape.m, shape.k);
            const std::vector<float> x = random_floats(shape.n * shape.k, 5);
            expect_near(weights, x, shape.n, multiply(on_device(weights), x, shape.n), 37);
            if (testing::Test::HasFatalFailure()) return;
        }
}

TEST_F(CudaLargeMatmul, TakesNothingFromOtherTokens) {
    for (const DType type : cuda_types())
        for (const Shape& shape : {Shape{4096, 4096, 0}, Shape{1024, 14336, 0}}) {
            expect_no_company(random_weights(type, shape.m, shape.k));
            if (testing::Test::HasFatalFailure()) return;
        }
}

}  // namespace
}  // namespace slipstream::testing_cuda
