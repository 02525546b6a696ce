// delta_net() near a reference in double over random trees and chains; the same bits in a tree, along its paths alone,
// and however a chain is cut into calls. gather_columns() bit for bit.
#include <random>

#include "tests/cuda/under_test.h"
#include "tests/kernels/delta_net_cases.h"

namespace slipstream::testing_cuda {
namespace {

using namespace testing_delta;

class CudaDeltaNet : public CudaOps {};

// Key heads in registers, of two sizes, and in shared memory; heads that fill no 16 columns; all widths.
const DeltaNetShape kShapes[] = {
    kEven,
    kOdd,
    kShort,
    {.n_key_heads = 1, .n_value_heads = 2, .key_dim = 128, .value_dim = 128, .conv_width = 4},
    {.n_key_heads = 2, .n_value_heads = 2, .key_dim = 70, .value_dim = 9, .conv_width = 3, .tiled = true},
    {.n_key_heads = 1, .n_value_heads = 3, .key_dim = 132, .value_dim = 17, .conv_width = 5},
    {.n_key_heads = 1, .n_value_heads = 1, .key_dim = 3, .value_dim = 200, .conv_width = 6},
    {.n_key_heads = 1, .n_value_heads = 1, .key_dim = 1024, .value_dim = 5, .conv_width = 7},
    {.n_key_heads = 1, .n_value_heads = 2, .key_dim = 8, .value_dim = 16, .conv_width = 8},
};

TEST_F(CudaDeltaNet, IsNearAReferenceInDouble) {
    unsigned seed = 0;
    for (const DeltaNetShape& shape : kShapes)
        for (const auto& [n_chain, n] : {std::pair{0, 1}, {1, 1}, {0, 2}, {2, 2}, {33, 33}, {5, 24}, {0, 17}})
            for (const Working working : {Working::OneEach, Working::LastTakesOver}) {
                SCOPED_TRACE(testing::Message() << "key size " << shape.key_dim << ", " << n << " tokens");
                ++seed;
                const Case of(shape, random_tree(n_chain, n, seed), seed);
                expect_near(run(exec(), of, n_chain, {.working = working}).out, reference(of));
            }
}

TEST_F(CudaDeltaNet, LongChainsAreNearAReferenceInDouble) {
    for (const DeltaNetShape& shape :
         {kOdd,
          DeltaNetShape{.n_key_heads = 1, .n_value_heads = 1, .key_dim = 128, .value_dim = 16, .conv_width = 4}}) {
        const Case of(shape, random_tree(512, 512, 3), 4);
        expect_near(run(exec(), of, 512).out, reference(of));
    }
}

TEST_F(CudaDeltaNet, ATokenDependsOnItsPathAlone) {
    for (const DeltaNetShape& shape : kShapes)
        for (const Working working : {Working::OneEach, Working::LastTakesOver})
            for (const std::int32_t n_kept : {0, 3}) {
                SCOPED_TRACE(testing::Message() << "key size " << shape.key_dim << ", " << n_kept << " kept");
                const Case of(shape, random_tree(n_kept, 20, 9), 6);
                expect_paths_alone(exec(), of, n_kept, run(exec(), of, n_kept, {.working = working}));
            }
}

// In pieces of any length, each after the state that the one before has left; the state in place, or inputs of some
// tokens stored.
TEST_F(CudaDeltaNet, AChainHasTheSameBitsHoweverItIsCut) {
    std::mt19937 random(3);
    for (const DeltaNetShape& shape : kShapes)
        for (const bool in_place : {false, true}) {
            const std::int32_t n = shape.key_dim < 64 ? 512 : 60;
            const Case of(shape, random_tree(n, n, 1), 8);
            const Result whole = run(exec(), of, n, {.in_place = in_place});
            Result pieces{{}, of.state, of.taps};
            for (std::int32_t first = 0; first < n;) {
                const std::int32_t end = std::min(n, first + std::uniform_int_distribution(1, 99)(random));
                std::vector<std::int32_t> tokens(static_cast<std::size_t>(end - first));
                std::iota(tokens.begin(), tokens.end(), first);
                const Case piece = of.chain_of(tokens, pieces.state, pieces.taps);
                const std::int64_t n_stored = in_place ? 0 : std::uniform_int_distribution(0, end - first)(random);
                Result part = run(exec(), piece, end - first, {.in_place = in_place, .n_stored = n_stored});
                const auto cols = static_cast<std::size_t>(shape.value_cols());
                const auto at = (static_cast<std::size_t>(first) + static_cast<std::size_t>(n_stored)) * cols;
                EXPECT_TRUE(same_bits(part.out, std::span(whole.out).subspan(at, part.out.size())))
                    << "tokens " << first << " to " << end;
                pieces = std::move(part);
                first = end;
            }
            EXPECT_TRUE(same_bits(pieces.state, whole.state)) << "key size " << shape.key_dim;
            EXPECT_TRUE(same_bits(pieces.taps, whole.taps)) << "key size " << shape.key_dim;
        }
}

// The layers of Qwen3.8-27B.
TEST_F(CudaDeltaNet, LayersOfALargeModel) {
    const std::int32_t n = is_card() ? 512 : 12;
    const DeltaNetShape shape{
        .n_key_heads = 16, .n_value_heads = 48, .key_dim = 128, .value_dim = 128, .conv_width = 4, .tiled = true};
    const Case chain(shape, random_tree(n, n, 2), 2);
    expect_near(run(exec(), chain, n).out, reference(chain));
    const Case tree(shape, random_tree(2, is_card() ? 40 : 6, 2), 2);
    expect_paths_alone(exec(), tree, 2, run(exec(), tree, 2, {.working = Working::LastTakesOver}));
}

TEST_F(CudaDeltaNet, GathersColumns) {
    std::mt19937 random(5);
    for (const auto& [n_rows, n_runs, run, gap] :
         {std::tuple{1, 1, 1, 0}, {2, 2, 2, 3}, {513, 16, 128, 128}, {7, 3, 1000, 1}, {5000, 3, 5, 2}, {0, 2, 3, 4}}) {
        const std::int64_t stride = run + gap;
        const std::int64_t first = 3;
        const std::int64_t cols = first + n_runs * stride + 1;
        const std::vector<float> x = normal(random, n_rows * cols, 1.0F);
        const DeviceFloats from(exec(), n_rows, cols, x, 2);
        const DeviceFloats to(exec(), n_rows, std::int64_t{n_runs} * run, 1);
        gather_columns(exec(), {.x = from.view(), .y = to.view(), .run = run, .first = first, .stride = stride});
        std::vector<float> expected;
        for (std::int64_t row = 0; row < n_rows; ++row)
            for (std::int64_t i = 0; i < n_runs; ++i)
                expected.insert(expected.end(), x.begin() + row * cols + first + i * stride,
                                x.begin() + row * cols + first + i * stride + run);
        EXPECT_TRUE(same_bits(to.read(), expected)) << n_rows << " rows of " << n_runs << " runs of " << run;
    }
}

}  // namespace
}  // namespace slipstream::testing_cuda
