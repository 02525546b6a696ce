// Matmul over prompt: by cuBLASLt, or what stands for it on the emulated machine. Near the sum in double; a row's bits
// follow from its place in its prefill chunk and matrix, however both are cut; and no other kernel's bits.
#include <cmath>
#include <vector>

#include "kernels/cuda/matmul/prompt_plan.h"
#include "kernels/workspace.h"
#include "tests/cuda/matmul_on_device.h"

namespace slipstream::testing_cuda {
namespace {

using testing_matmul::cuda_types;
using testing_matmul::random_weights;
using testing_matmul::Weights;

class CudaPrompt : public CudaMatmul {
protected:
    void SetUp() override {
        CudaMatmul::SetUp();
        if (!testing::Test::IsSkipped() && device().blas() == nullptr) GTEST_SKIP() << device().no_blas();
    }
    /// y of rows [first_row, first_row + n_rows) of `weights` and tokens [first, first + n) of a prefill chunk `x`
    /// [512, K].
    std::vector<float> multiply(const ConstTensorView& weights, const std::vector<float>& x, std::int64_t first,
                                std::int64_t n, std::int64_t first_row, std::int64_t n_rows,
                                const MatmulArgs& options = {}, const std::vector<float>* there = nullptr,
                                std::int64_t padding = 5) {
        const std::int64_t k = weights.shape[1];
        const DeviceFloats x_device(exec(), n, k, {x.begin() + first * k, x.begin() + (first + n) * k}, 3);
        const DeviceFloats y = there == nullptr ? DeviceFloats(exec(), n, n_rows, padding)
                                                : DeviceFloats(exec(), n, n_rows, *there, padding);
        MatmulArgs args = options;
        args.weights = rows_of(weights, first_row, n_rows);
        args.x = x_device.view();
        args.y = y.view();
        args.prompt = PrefillChunk{.first_token = first, .first_row = first_row, .matrix_rows = weights.shape[0]};
        matmul(exec(), args);
        return y.read();
    }
    std::vector<float> multiply(const ConstTensorView& weights, const std::vector<float>& x) {
        return multiply(weights, x, 0, kPrefillChunkTokens, 0, weights.shape[0]);
    }
    static ConstTensorView rows_of(const ConstTensorView& weights, std::int64_t first_row, std::int64_t n_rows) {
        return packed_view(
            weights.data + static_cast<std::size_t>(first_row) * row_bytes(weights.dtype, weights.shape[1]),
            weights.dtype, n_rows, weights.shape[1], weights.layout);
    }
};

std::vector<float> slice(const std::vector<float>& all, std::int64_t cols, std::int64_t first, std::int64_t n,
                         std::int64_t first_col, std::int64_t n_cols) {
    std::vector<float> out;
    for (std::int64_t row = first; row < first + n; ++row)
        for (std::int64_t col = first_col; col < first_col + n_cols; ++col) out.push_back(all[row * cols + col]);
    return out;
}

// Weights and activations are each rounded once, to 8 bits (F16: to 11, activations alone); a quantised weight is d *
// code + m in float before that. Products are exact in float, sums lose at most k roundings.
TEST_F(CudaPrompt, IsNearTheSumInDouble) {
    for (const DType type : cuda_types()) {
        if (type == DType::F32) continue;
        const std::int64_t block = dtype_info(type).block_elements;
        for (const std::int64_t k :
             block == 256 ? std::vector<std::int64_t>{256, 768} : std::vector<std::int64_t>{32, 160, 512}) {
            const Weights weights = random_weights(type, 150, k);
            const std::vector<float> x = random_floats(kPrefillChunkTokens * k, 5);
            const std::vector<float> y = multiply(on_device(weights), x);
            const double each = type == DType::F16    ? std::ldexp(1.0, -11)
                                : type == DType::BF16 ? std::ldexp(1.0, -8)
                                                      : std::ldexp(2.02, -8);
            for (std::int64_t row = 0; row < weights.m; row += 7) {
                const std::vector<float> w = weights.decoded_row(row);
                for (std::int64_t token = 0; token < kPrefillChunkTokens; token += 13) {
                    double exact = 0.0;
                    double bound = 1e-30;
                    for (std::int64_t i = 0; i < k; ++i) {
                        const double product = double{w[i]} * double{x[token * k + i]};
                        exact += product;
                        // F16: an activation far below its token's largest is a subnormal half.
                        bound += std::fabs(product) * (each + static_cast<double>(k) * std::ldexp(1.0, -22));
                    }
                    if (type == DType::F16) bound += 1e-6 * std::fabs(exact) + 1e-4;
                    ASSERT_NEAR(y[token * weights.m + row], exact, bound)
                        << dtype_name(type) << " k " << k << " row " << row << " token " << token;
                }
            }
        }
    }
}

// Cut by rows anywhere, inside slabs too, and by tokens: as a streamed model and a resumed text have it.
TEST_F(CudaPrompt, CutsDoNotShow) {
    for (const DType type : {DType::BF16, DType::F16, DType::Q8_0, DType::Q4_K}) {
        const std::int64_t k = type == DType::Q4_K ? 256 : 64;
        const std::int64_t m = 2200;  // two slabs of 1152
        ASSERT_EQ(cuda::prompt_slab_rows(m), 1152);
        const Weights weights = random_weights(type, m, k);
        const ConstTensorView packed = on_device(weights);
        const std::vector<float> x = random_floats(kPrefillChunkTokens * k, 6);
        const std::vector<float> all = multiply(packed, x);
        for (const float value : all) ASSERT_TRUE(std::isfinite(value));
        struct Cut {
            std::int64_t first, n, row, rows;
        };
        for (const Cut& cut : {Cut{0, 512, 0, 1152}, Cut{0, 512, 1152, 1048}, Cut{0, 512, 16, 32},
                               Cut{256, 256, 0, 2200}, Cut{511, 1, 1136, 32}, Cut{7, 300, 2192, 8}}) {
            const std::vector<float> found = multiply(packed, x, cut.first, cut.n, cut.row, cut.rows);
            ASSERT_TRUE(same_bits(found, slice(all, m, cut.first, cut.n, cut.row, cut.rows)))
                << dtype_name(type) << " tokens " << cut.first << " + " << cut.n << ", rows " << cut.row << " + "
                << cut.rows;
        }
    }
}

// Outputs that lie as the library wants them are written by it; others by way of scratch.
TEST_F(CudaPrompt, WhereTheOutputLiesDoesNotShow) {
    const Weights weights = random_weights(DType::Q8_0, 256, 64);
    const ConstTensorView packed = on_device(weights);
    const std::vector<float> x = random_floats(kPrefillChunkTokens * 64, 12);
    const std::vector<float> expected = multiply(packed, x);
    for (const std::int64_t padding : {0, 4, 1})
        EXPECT_TRUE(same_bits(multiply(packed, x, 0, kPrefillChunkTokens, 0, 256, {}, nullptr, padding), expected))
            << padding;
}

TEST_F(CudaPrompt, AddsBiasAndWhatWasThere) {
    for (const DType type : {DType::BF16, DType::F16}) {
        const Weights weights = random_weights(type, 48, 64);
        const ConstTensorView packed = on_device(weights);
        const std::vector<float> x = random_floats(kPrefillChunkTokens * 64, 9);
        const std::vector<float> b = random_floats(48, 10);
        const std::vector<float> there = random_floats(kPrefillChunkTokens * 48, 11);
        const std::vector<float> plain = multiply(packed, x);
        const DeviceFloats bias(exec(), 1, 48, b);
        const std::vector<float> found =
            multiply(packed, x, 0, kPrefillChunkTokens, 0, 48,
                     {.bias = vector_view(bias.view().data, DType::F32, 48), .store = MatmulStore::Add}, &there);
        for (std::size_t i = 0; i < found.size(); ++i)
            ASSERT_EQ(found[i], there[i] + (plain[i] + b[i % 48])) << dtype_name(type) << " " << i;
    }
}

// Infinities and NaN among the tokens of a prefill chunk stay where they are.
TEST_F(CudaPrompt, TakesNothingFromTokensThatAreNotFinite) {
    for (const DType type : {DType::BF16, DType::F16}) {
        const Weights weights = random_weights(type, 128, 64);
        const ConstTensorView packed = on_device(weights);
        std::vector<float> x = random_floats(kPrefillChunkTokens * 64, 8);
        const std::vector<float> all = multiply(packed, x);
        for (std::size_t i = 0; i < x.size(); ++i)
            if (i / 64 % 3 == 1) x[i] = i % 2 == 0 ? INFINITY : NAN;
        const std::vector<float> beside = multiply(packed, x);
        for (std::size_t i = 0; i < all.size(); ++i)
            if (i / 128 % 3 != 1) {
                ASSERT_EQ(beside[i], all[i]) << dtype_name(type) << " " << i;
            }
    }
}

// Several matrices that meet one x find it rounded; what lies elsewhere in the prefill chunk, or was computed between,
// is not taken for it.
TEST_F(CudaPrompt, TokensAreRoundedAnewWhereTheyDiffer) {
    const Weights weights = random_weights(DType::BF16, 128, 64);
    const ConstTensorView packed = on_device(weights);
    const std::vector<float> x = random_floats(kPrefillChunkTokens * 64, 14);
    const DeviceFloats x_device(exec(), 16, 64, {x.begin(), x.begin() + 16 * 64});
    const DeviceFloats first(exec(), 16, 128);
    const DeviceFloats again(exec(), 16, 128);
    const DeviceFloats decoded(exec(), 16, 128);
    const DeviceFloats elsewhere(exec(), 16, 128);
    const auto args = [&](const DeviceFloats& y, std::int64_t first_token) {
        return MatmulArgs{.weights = packed,
                          .x = x_device.view(),
                          .y = y.view(),
                          .prompt = PrefillChunk{.first_token = first_token, .first_row = 0, .matrix_rows = 128}};
    };
    matmul(exec(), args(first, 0));
    matmul(exec(), args(again, 0));
    matmul(exec(), {.weights = packed, .x = x_device.view(), .y = decoded.view()});
    matmul(exec(), args(elsewhere, 100));
    EXPECT_TRUE(same_bits(again.read(), first.read()));
    for (const float value : elsewhere.read()) ASSERT_TRUE(std::isfinite(value));
    for (const float value : decoded.read()) ASSERT_TRUE(std::isfinite(value));
    if (is_card()) return;
    EXPECT_TRUE(same_bits(elsewhere.read(), first.read()));  // the emulated library's order knows no places
}

// Where the rule names our kernels, their bits. The emulated library sums in another order: so products that should be
// its own are told from ours; a card's may agree.
TEST_F(CudaPrompt, IsComputedByTheLibraryWhereTheRuleSaysSo) {
    for (const DType type : cuda_types())
        for (const std::int64_t k : {std::int64_t{48}, std::int64_t{256}}) {
            if (k % dtype_info(type).block_elements != 0) continue;
            const bool ours = type == DType::F32 || k == 48;
            if (is_card() && !ours) continue;
            const Weights weights = random_weights(type, 64, k);
            const ConstTensorView packed = on_device(weights);
            const std::vector<float> x = random_floats(kPrefillChunkTokens * k, 13);
            const DeviceFloats x_device(exec(), kPrefillChunkTokens, k, x);
            const DeviceFloats own(exec(), kPrefillChunkTokens, 64);
            matmul(exec(), {.weights = packed, .x = x_device.view(), .y = own.view()});
            EXPECT_EQ(same_bits(multiply(packed, x), own.read()), ours) << dtype_name(type) << " " << k;
        }
}

TEST_F(CudaPrompt, TakesTheWorkspaceThatIsPlanned) {
    const WorkspaceShapes shapes{
        .n_tokens = 512, .max_cols = 256, .weights = packed_layout(device().kind()), .prompt_rows = 2200};
    const std::size_t planned = workspace_bytes(device(), shapes);
    reserve_workspace(device(), shapes);
    EXPECT_EQ(device().budget().used_bytes(MemoryTag::Workspace), planned);
    EXPECT_GE(planned, cuda::prompt_scratch(256, cuda::kPromptSlabRows).bytes);
    const Weights weights = random_weights(DType::Q8_0, 2200, 256);
    const ConstTensorView packed = on_device(weights);
    const DeviceFloats x(exec(), 512, 256, random_floats(512 * 256, 3));
    const DeviceFloats y(exec(), 512, 2200);
    const std::size_t before = device().budget().used_bytes(MemoryTag::Workspace);
    matmul(exec(), {.weights = packed,
                    .x = x.view(),
                    .y = y.view(),
                    .prompt = PrefillChunk{.first_token = 0, .first_row = 0, .matrix_rows = 2200}});
    EXPECT_EQ(device().budget().used_bytes(MemoryTag::Workspace), before);
}

}  // namespace
}  // namespace slipstream::testing_cuda
