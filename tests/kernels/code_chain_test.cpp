// Products of experts: with quantised weights every CPU variant gives the bits of the plain loop over the definition
// (kernels/cpu/matmul/code_chain.h), for any number of rows. Rows that are not finite are refused in every variant.
#include "kernels/cpu/matmul/code_chain.h"

#include <bit>
#include <limits>
#include <utility>
#include <vector>

#include "kernels/elementwise.h"
#include "kernels/experts.h"
#include "kernels/nonfinite_row.h"
#include "tests/kernels/matmul_cases.h"

namespace slipstream {
namespace {

using namespace testing_matmul;  // NOLINT: the cases are this test's own

constexpr std::int64_t kMostRows = 64;
constexpr std::int64_t kOutputs = 21;  // a row group and a part of one

/// Widths of published experts and others, with odd numbers of blocks, that the type can have.
std::vector<std::int64_t> widths(DType type) {
    std::vector<std::int64_t> all;
    for (const std::int64_t k : {32, 96, 224, 256, 512, 768, 1280, 1408, 2880})
        if (k % dtype_info(type).block_elements == 0) all.push_back(k);
    return all;
}

void expect_same_bits(GuardedMatrix& found, GuardedMatrix& expected, std::int64_t rows, std::int64_t cols) {
    for (std::int64_t row = 0; row < rows; ++row)
        for (std::int64_t i = 0; i < cols; ++i)
            ASSERT_EQ(std::bit_cast<std::uint32_t>(found.at(row, i)), std::bit_cast<std::uint32_t>(expected.at(row, i)))
                << "row " << row << " of " << rows << ", output " << i;
}

/// A device of a form that multiplies rows by the matrix of one expert.
class Expert {
public:
    Expert(CpuForm form, int n_threads, const Weights& weights, Layout layout = Layout::Interleaved16)
        : device_({.n_threads = n_threads, .form = form}),
          stream_(device_.make_stream(StreamKind::Compute)),
          packed_(device_.allocate(packed_bytes(weights.type, weights.m, weights.k), MemoryTag::Weights, "expert")),
          weights_(weights.view()) {
        if (layout == Layout::RowMajor) return;
        const TensorView view = packed_view(packed_.data(), weights.type, weights.m, weights.k);
        pack_weights(exec(), {.weights = weights_, .packed = view});
        weights_ = view;
    }
    [[nodiscard]] ExecRef exec() { return {device_, *stream_}; }
    [[nodiscard]] MatmulArgs product(const ConstTensorView& x, const TensorView& y) const {
        return {.weights = weights_, .x = x, .y = y};
    }
    void multiply(const ConstTensorView& x, const TensorView& y) {
        const MatmulArgs args = product(x, y);
        grouped_matmul(exec(), {&args, 1});
    }

private:
    CpuDevice device_;
    std::unique_ptr<Stream> stream_;
    Buffer packed_;
    ConstTensorView weights_;
};

class CodeChain : public testing::TestWithParam<DType> {};

TEST_P(CodeChain, IsComputedByEveryFormForAnyNumberOfRows) {
    for (const std::int64_t k : widths(GetParam())) {
        SCOPED_TRACE(fmt::format("K {}", k));
        const Weights weights = random_weights(GetParam(), kOutputs, k);
        GuardedMatrix x(kMostRows, k, 5);
        x.randomise(kSeed);
        for (std::int64_t i = 0; i < k; ++i) {
            x.at(3, i) = 0.0F;                              // d is 0
            x.at(5, i) = x.at(4, i) * 0x1p-124F;            // in some runs d is below 2^-126, in others just above
            x.at(7, i) = static_cast<float>(i % 5) - 2.5F;  // quotients near halves
        }
        GuardedMatrix chain(kMostRows, kOutputs);
        Expert scalar(CpuForm::Scalar, 1, weights);
        cpu::matmul_code_chain(scalar.exec(), scalar.product(x.view(), chain.view()));
        for (const CpuForm form : forms()) {
            SCOPED_TRACE(cpu_form_name(form));
            Expert expert(form, 1, weights);
            // All numbers of rows; for wide rows those up to 8, and those around tiles of 4, 8 and 16 tokens.
            for (std::int64_t n = 1; n <= kMostRows; n += k <= 512 || n <= 8 ? 1 : n < 18 ? 2 : 15) {
                GuardedMatrix y(n, kOutputs, 2);
                expert.multiply(x.view().slice_rows(0, n), y.view());
                expect_same_bits(y, chain, n, kOutputs);
                y.expect_guards_intact();
                if (HasFatalFailure()) return;
            }
            GuardedMatrix y(kMostRows, kOutputs);
            Expert(form, 2, weights, Layout::RowMajor).multiply(x.view(), y.view());
            expect_same_bits(y, chain, kMostRows, kOutputs);
            if (HasFatalFailure()) return;
        }
    }
}

/// Gate and up, activation, down.
GuardedMatrix computed_expert(CpuForm form, GatedActivation kind, const Weights& gate, const Weights& up,
                              const Weights& down, GuardedMatrix& x, std::int64_t n) {
    GuardedMatrix gated(n, gate.m);
    GuardedMatrix upper(n, up.m);
    GuardedMatrix y(n, down.m);
    Expert first(form, 2, gate);
    Expert(form, 1, up).multiply(x.view(), upper.view());
    first.multiply(x.view(), gated.view());
    gated_activation(first.exec(),
                     {.gate = gated.view(), .up = upper.view(), .y = gated.view(), .kind = kind, .limit = 7.0F});
    Expert(form, 1, down).multiply(gated.view(), y.view());
    return y;
}

TEST_P(CodeChain, AWholeExpertHasTheSameBitsInEveryForm) {
    constexpr std::int64_t kN = 13;
    const Weights gate = random_weights(GetParam(), 512, 256);
    const Weights up = random_weights(GetParam(), 512, 256, 3);
    const Weights down = random_weights(GetParam(), kOutputs, 512);
    GuardedMatrix x(kN, 256);
    x.randomise(kSeed);
    for (std::int64_t row = 0; row < kN; ++row)  // activations of all sizes: from about 1e-4 to 1e4
        for (std::int64_t i = 0; i < 256; ++i) x.at(row, i) *= std::ldexp(1.0F, static_cast<int>(2 * row) - 18);
    for (const GatedActivation kind :
         {GatedActivation::Silu, GatedActivation::GeluTanh, GatedActivation::ClampedSilu}) {
        GuardedMatrix expected = computed_expert(CpuForm::Scalar, kind, gate, up, down, x, kN);
        for (const CpuForm form : vector_forms()) {
            SCOPED_TRACE(cpu_form_name(form));
            GuardedMatrix y = computed_expert(form, kind, gate, up, down, x, kN);
            expect_same_bits(y, expected, kN, kOutputs);
            if (HasFatalFailure()) return;
        }
    }
}

TEST_P(CodeChain, AddsBiasThenWhatWasThere) {
    const Weights weights = random_weights(GetParam(), kOutputs, 256);
    GuardedMatrix x(2, 256);
    x.randomise(kSeed);
    GuardedMatrix bias(1, kOutputs);
    bias.randomise(kSeed + 1);
    GuardedMatrix plain(2, kOutputs);
    Expert expert(CpuForm::Scalar, 1, weights);
    expert.multiply(x.view(), plain.view());
    GuardedMatrix before(2, kOutputs);
    before.randomise(kSeed + 2);
    GuardedMatrix y(2, kOutputs);
    y.randomise(kSeed + 2);
    MatmulArgs args = expert.product(x.view(), y.view());
    args.bias = vector_view<const std::byte>(reinterpret_cast<const std::byte*>(&bias.at(0, 0)), DType::F32, kOutputs);
    args.store = MatmulStore::Add;
    grouped_matmul(expert.exec(), {&args, 1});
    for (std::int64_t row = 0; row < 2; ++row)
        for (std::int64_t i = 0; i < kOutputs; ++i)
            ASSERT_EQ(y.at(row, i), before.at(row, i) + (plain.at(row, i) + bias.at(0, i)));
}

std::vector<DType> quantized_types() {
    std::vector<DType> types(std::begin(kAllTypes), std::end(kAllTypes));
    std::erase_if(types, [](DType type) { return !is_quantized(type); });
    return types;
}

INSTANTIATE_TEST_SUITE_P(Types, CodeChain, testing::ValuesIn(quantized_types()),
                         [](const auto& param) { return std::string(dtype_name(param.param)); });

class NonFinite : public testing::TestWithParam<FormAndType> {};

// Three products of 20, 1 and 70 rows; the first of several damaged rows is named, whichever threads find them.
TEST_P(NonFinite, RowsAreRefusedAndTheNextCallIsNot) {
    const auto [form, type] = GetParam();
    constexpr std::int64_t kK = 512;
    const Weights weights = random_weights(type, kOutputs, kK);
    const std::vector<std::int64_t> rows{20, 1, 70};
    for (const int n_threads : {1, 2}) {
        Expert expert(form, n_threads, weights);
        GuardedMatrix x(91, kK);
        x.randomise(kSeed);
        GuardedMatrix expected(91, kOutputs);
        GuardedMatrix y(91, kOutputs);
        const auto multiply = [&](GuardedMatrix& out) {
            std::vector<MatmulArgs> products;
            std::int64_t first = 0;
            for (const std::int64_t n : rows) {
                products.push_back(expert.product(x.view().slice_rows(first, n), out.view().slice_rows(first, n)));
                first += n;
            }
            grouped_matmul(expert.exec(), products);
        };
        multiply(expected);
        for (const float bad : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
            struct Place {
                std::size_t product;
                std::int64_t row;
                std::int64_t first;  // row of the product's first row in x
            };
            for (const auto& [product, row, first] :
                 {Place{0, 0, 0}, Place{0, 19, 0}, Place{1, 0, 20}, Place{2, 17, 21}, Place{2, 69, 21}})
                for (const std::int64_t column : {std::int64_t{0}, std::int64_t{300}, kK - 1}) {
                    const float before = std::exchange(x.at(first + row, column), bad);
                    const float last = std::exchange(x.at(90, 7), bad);
                    try {
                        multiply(y);
                        FAIL() << "product " << product << " row " << row << " column " << column;
                    } catch (const NonFiniteRow& found) {
                        EXPECT_EQ(found.product(), product);
                        EXPECT_EQ(found.row(), row);
                    }
                    x.at(90, 7) = last;
                    x.at(first + row, column) = before;
                }
        }
        // The largest numbers are finite.
        x.at(2, 9) = std::numeric_limits<float>::max();
        EXPECT_NO_THROW(multiply(y));
        x.at(2, 9) = 1.0F;
        GuardedMatrix again(91, kOutputs);
        multiply(y);
        multiply(again);
        expect_same_bits(y, again, 91, kOutputs);
        for (std::int64_t i = 0; i < kOutputs; ++i) EXPECT_EQ(y.at(90, i), expected.at(90, i));
    }
}

INSTANTIATE_TEST_SUITE_P(FormsAndTypes, NonFinite,
                         testing::Combine(testing::ValuesIn(forms()),
                                          testing::Values(DType::F32, DType::F16, DType::BF16, DType::Q8_0, DType::Q5_1,
                                                          DType::MXFP4, DType::Q4_K, DType::Q6_K)),
                         case_name);

}  // namespace
}  // namespace slipstream
