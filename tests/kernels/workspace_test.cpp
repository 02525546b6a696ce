// Workspace: what it takes is known beforehand, to the byte, and no call within its shapes takes more.
#include "kernels/workspace.h"

#include <cmath>
#include <memory>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "kernels/cpu_device.h"
#include "tests/kernels/attention_cases.h"
#include "tests/kernels/matmul_cases.h"

namespace slipstream {
namespace {

using testing_attention::Cache;
using testing_matmul::kAllTypes;

/// Every matmul of K = max_cols, or the next smaller one that the type allows, of up to n_tokens tokens; rows enough
/// that no thread goes short.
void run_matmuls(CpuDevice& device, const WorkspaceShapes& shapes, std::int64_t least_tokens = 1) {
    const auto stream = device.make_stream(StreamKind::Compute);
    CpuDevice packer({.form = device.form()});
    const auto pack_stream = packer.make_stream(StreamKind::Compute);
    // The scalar form is slow, and takes the same whatever the rows.
    const std::int64_t m = device.form() == CpuForm::Scalar ? 16 : 16 * 16 * device.pool().n_threads();
    for (const DType type : kAllTypes) {
        const std::int64_t block = dtype_info(type).block_elements;
        const std::int64_t k = shapes.max_cols / block * block;
        const auto rows = testing_matmul::random_weights(type, m, k);
        const Buffer memory = packer.allocate(packed_bytes(type, m, k), MemoryTag::Weights, "a test's weights");
        const TensorView packed = packed_view(memory.data(), type, m, k);
        pack_weights({packer, *pack_stream}, {.weights = rows.view(), .packed = packed});
        std::vector<float> x(static_cast<std::size_t>(shapes.n_tokens * k), 0.5F);
        std::vector<float> y(static_cast<std::size_t>(shapes.n_tokens * m));
        for (std::int64_t n = least_tokens; n <= shapes.n_tokens; ++n) {
            matmul({device, *stream}, {.weights = shapes.weights == Layout::RowMajor ? rows.view() : packed,
                                       .x = matrix_view(static_cast<const float*>(x.data()), n, k),
                                       .y = matrix_view(y.data(), n, m)});
        }
    }
}

/// Attention whole and in parts, of one token and of n_tokens, over three chunks.
void run_attention(CpuDevice& device, const WorkspaceShapes& shapes) {
    CpuDevice free({.form = device.form()});
    Cache cache(free, shapes.attention.front().kv, shapes.attention.front().n_q_heads, 1);
    for (int i = 0; i < 600; ++i) cache.add_token(i - 1);
    std::vector<int> tokens{600};
    for (std::int64_t i = 0; i < shapes.n_tokens; ++i) {
        tokens.back() = cache.add_token(599 + static_cast<int>(i));
        cache.prepare(tokens, 600, 0);
        if (i == 0 || i + 1 == shapes.n_tokens) {
            EXPECT_TRUE(std::isfinite(cache.attend(device, 0, {})[0]));
            EXPECT_TRUE(std::isfinite(cache.attend(device, 0, {1})[0]));
        }
        tokens.push_back(0);
    }
}

class WorkspaceTest : public testing::TestWithParam<std::tuple<CpuForm, int>> {
protected:
    void SetUp() override {
        if (!cpu_has_form(std::get<0>(GetParam())))
            GTEST_SKIP() << "this machine has no " << cpu_form_name(std::get<0>(GetParam()));
    }
    CpuDeviceOptions options(std::size_t memory_bytes = Budget::kUnlimited) const {
        return {.n_threads = std::get<1>(GetParam()), .memory_bytes = memory_bytes, .form = std::get<0>(GetParam())};
    }
    std::size_t bytes_of(const WorkspaceShapes& shapes) const {
        CpuDevice device(options());
        const std::size_t bytes = workspace_bytes(device, shapes);
        EXPECT_EQ(device.budget().used_bytes(), 0U) << "asking takes nothing";
        return bytes;
    }
};

TEST_P(WorkspaceTest, NoCallWithinItsShapesTakesMore) {
    for (const Layout layout : {Layout::Interleaved16, Layout::RowMajor}) {
        const WorkspaceShapes shapes{
            .n_tokens = 35, .max_cols = 512, .attention = {{{2, 32, DType::F16}, 8}}, .weights = layout};
        const std::size_t bytes = bytes_of(shapes);
        CpuDevice device(options(bytes));
        reserve_workspace(device, shapes);
        EXPECT_EQ(device.budget().used_bytes(), bytes);
        EXPECT_EQ(device.budget().used_bytes(MemoryTag::Workspace), bytes);
        ASSERT_NO_THROW(run_matmuls(device, shapes));
        ASSERT_NO_THROW(run_attention(device, shapes));
        reserve_workspace(device, shapes);
        EXPECT_EQ(device.budget().used_bytes(), bytes);

        CpuDevice short_of_a_byte(options(bytes - 1));
        EXPECT_THROW(reserve_workspace(short_of_a_byte, shapes), OutOfBudget);
    }
}

// A plan must not ask for what nobody takes: with types and numbers of tokens tried one by one, calls come to the same.
TEST_P(WorkspaceTest, IsWhatCallsTakeWithoutIt) {
    for (const Layout layout : {Layout::Interleaved16, Layout::RowMajor}) {
        const WorkspaceShapes matmuls{.n_tokens = 35, .max_cols = 256, .weights = layout};
        CpuDevice device(options());
        run_matmuls(device, matmuls);
        EXPECT_EQ(device.budget().used_bytes(), bytes_of(matmuls));
    }
    for (const std::int64_t n_q_heads : {4, 64}) {
        const WorkspaceShapes attention{.n_tokens = 3, .attention = {{{4, 64, DType::F32}, n_q_heads}}};
        CpuDevice device(options());
        run_attention(device, attention);
        EXPECT_EQ(device.budget().used_bytes(), bytes_of(attention));
    }
}

TEST_P(WorkspaceTest, HoldsForPassesOfHundreds) {
    const WorkspaceShapes shapes{.n_tokens = 700, .max_cols = 256};
    CpuDevice device(options(bytes_of(shapes)));
    reserve_workspace(device, shapes);
    ASSERT_NO_THROW(run_matmuls(device, shapes, 699));
}

TEST_P(WorkspaceTest, GrowsOnly) {
    const WorkspaceShapes small{.n_tokens = 4, .max_cols = 256};
    const WorkspaceShapes large{.n_tokens = 8, .max_cols = 512};
    CpuDevice device(options(bytes_of(large)));  // not a byte for the smaller one beside it
    reserve_workspace(device, small);
    EXPECT_EQ(device.budget().used_bytes(), bytes_of(small));
    reserve_workspace(device, large);
    reserve_workspace(device, small);
    EXPECT_EQ(device.budget().used_bytes(), bytes_of(large));
    ASSERT_NO_THROW(run_matmuls(device, large));
}

TEST_P(WorkspaceTest, OfNothingIsNothing) {
    EXPECT_EQ(bytes_of({}), 0U);
    EXPECT_EQ(bytes_of({.n_tokens = 5}), 0U);
}

INSTANTIATE_TEST_SUITE_P(Forms, WorkspaceTest, testing::Combine(testing::ValuesIn(kCpuForms), testing::Values(1, 3)),
                         [](const auto& param) {
                             return fmt::format("{}_{}_threads", cpu_form_name(std::get<0>(param.param)),
                                                std::get<1>(param.param));
                         });

}  // namespace
}  // namespace slipstream
