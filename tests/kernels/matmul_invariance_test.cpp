// E1 for matmul: the bits of an output depend on its row and its token alone, whatever else is computed with them.

#include <bit>

#include "kernels/matmul.h"
#include "tests/kernels/matmul_cases.h"

namespace slipstream {
namespace {

using namespace testing_matmul;  // NOLINT: the cases are this test's own

constexpr std::int64_t kRows = 118;  // seven groups of 16 rows and a short one: what any tile takes at once, and a rest
constexpr std::int64_t kTokens = 513;  // one past what goes over the weights together

class MatmulInvarianceTest : public testing::TestWithParam<FormAndType> {
protected:
    CpuForm form() const { return std::get<0>(GetParam()); }
    DType type() const { return std::get<1>(GetParam()); }
    /// Four chunks of K and, where the type can, a tail.
    std::int64_t k() const { return is_quantized(type()) ? 1024 : 1001; }

    /// Outputs [token, token + n) x [row, row + m) computed by themselves equal those of `all`.
    void expect_same_bits(Runner& run, const ConstTensorView& weights, GuardedMatrix& x, GuardedMatrix& all,
                          std::int64_t token, std::int64_t n, std::int64_t row, std::int64_t m) {
        GuardedMatrix y(n, m);
        run({.weights = weights.slice_rows(row, m), .x = x.view().slice_rows(token, n), .y = y.view(), .bias = {}});
        for (std::int64_t t = 0; t < n; ++t)
            for (std::int64_t r = 0; r < m; ++r)
                ASSERT_EQ(std::bit_cast<std::uint32_t>(y.at(t, r)),
                          std::bit_cast<std::uint32_t>(all.at(token + t, row + r)))
                    << "tokens [" << token << ", +" << n << ") rows [" << row << ", +" << m << "): token " << token + t
                    << " row " << row + r;
    }
};

TEST_P(MatmulInvarianceTest, BitsDoNotDependOnCompanyThreadsLayoutOrPlace) {
    SCOPED_TRACE(fmt::format("seed {}", kSeed));
    const Weights weights = random_weights(type(), kRows, k());
    GuardedMatrix x(kTokens, k());
    x.randomise(kSeed);
    GuardedMatrix all(kTokens, kRows);
    Runner one(form(), 1);
    one({.weights = one.pack(weights.view()), .x = x.view(), .y = all.view(), .bias = {}});
    for (const int n_threads : {1, 2}) {
        for (const Layout layout : kLayouts) {
            SCOPED_TRACE(fmt::format("{} threads, layout {}", n_threads, static_cast<int>(layout)));
            Runner run(form(), n_threads);
            const ConstTensorView view = run.in_layout(layout, weights.view());
            for (const std::int64_t n : {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 33, 64})
                expect_same_bits(run, view, x, all, 3 * n % 100, n, 0, kRows);
            expect_same_bits(run, view, x, all, 0, kTokens, 0, kRows);
            for (const std::int64_t n : {1, 5})
                for (const std::int64_t row : {16, 48, 96})
                    expect_same_bits(run, view, x, all, 40, n, row, kRows - row);
            expect_same_bits(run, view, x, all, 500, 1, 16, 1);
            if (layout == Layout::Interleaved16) continue;
            for (const std::int64_t row : {1, 31, 69}) expect_same_bits(run, view, x, all, 40, 5, row, kRows - row);
        }
    }
}

TEST(MatmulForms, VectorFormsAgreeToTheBit) {
    for (const std::int64_t n : {1, 5, 16, 19}) {  // one token, one tile of them, two, three
        for (const DType type : kAllTypes) {
            const Weights weights = random_weights(type, 40, 512);
            GuardedMatrix x(n, 512);
            x.randomise(kSeed);
            std::vector<GuardedMatrix> outputs;
            for (const CpuForm form : vector_forms()) {
                if (form == CpuForm::Avx512Bf16 && type == DType::BF16) continue;  // has a definition of its own
                Runner run(form);
                run({.weights = run.pack(weights.view()),
                     .x = x.view(),
                     .y = outputs.emplace_back(n, 40).view(),
                     .bias = {}});
                for (std::int64_t token = 0; token < n; ++token)
                    for (std::int64_t row = 0; row < 40; ++row)
                        ASSERT_EQ(std::bit_cast<std::uint32_t>(outputs.front().at(token, row)),
                                  std::bit_cast<std::uint32_t>(outputs.back().at(token, row)))
                            << dtype_name(type) << " " << cpu_form_name(form) << " n " << n << " token " << token
                            << " row " << row;
            }
        }
    }
}

// What several devices compute of a matrix that is cut between blocks of its columns, each part packed by itself.
TEST_P(MatmulInvarianceTest, PacksOfColumnsAddUpToTheWhole) {
    constexpr std::int64_t kVectors = 5;
    const Weights weights = random_weights(type(), kRows, k());
    GuardedMatrix x(kVectors, k());
    x.randomise(kSeed);
    Runner run(form());
    GuardedMatrix whole(kVectors, kRows);
    run({.weights = run.pack(weights.view()), .x = x.view(), .y = whole.view(), .bias = {}});
    GuardedMatrix sum(kVectors, kRows);
    const std::int64_t border =
        is_quantized(type()) ? std::max<std::int64_t>(dtype_info(type()).block_elements, 96) : 333;
    for (const auto& [first, n] : {std::pair<std::int64_t, std::int64_t>{0, border}, {border, k() - border}}) {
        ConstTensorView columns = weights.view();
        columns.data += row_bytes(type(), first);
        columns.shape[1] = n;
        GuardedMatrix part(kVectors, n);
        for (std::int64_t token = 0; token < kVectors; ++token)
            for (std::int64_t i = 0; i < n; ++i) part.at(token, i) = x.at(token, first + i);
        GuardedMatrix y(kVectors, kRows);
        run({.weights = run.pack(columns), .x = part.view(), .y = y.view(), .bias = {}});
        for (std::int64_t token = 0; token < kVectors; ++token)
            for (std::int64_t row = 0; row < kRows; ++row)
                sum.at(token, row) = (first == 0 ? 0.0F : sum.at(token, row)) + y.at(token, row);
    }
    double squares = 0.0;
    double errors = 0.0;
    for (std::int64_t token = 0; token < kVectors; ++token)
        for (std::int64_t row = 0; row < kRows; ++row) {
            squares += std::pow(double{whole.at(token, row)}, 2);
            errors += std::pow(double{sum.at(token, row)} - double{whole.at(token, row)}, 2);
        }
    EXPECT_LT(errors / squares, 1e-11);
}

TEST_P(MatmulInvarianceTest, ANeighbourThatIsNotANumberStaysAlone) {
    const Weights weights = random_weights(type(), 9, k());
    GuardedMatrix x(7, k());
    x.randomise(kSeed);
    GuardedMatrix clean(7, 9);
    GuardedMatrix y(7, 9);
    Runner run(form());
    const ConstTensorView packed = run.pack(weights.view());
    run({.weights = packed, .x = x.view(), .y = clean.view(), .bias = {}});
    for (std::int64_t i = 0; i < k(); ++i) x.at(3, i) = std::numeric_limits<float>::quiet_NaN();
    run({.weights = packed, .x = x.view(), .y = y.view(), .bias = {}});
    for (std::int64_t token = 0; token < 7; ++token)
        for (std::int64_t row = 0; row < 9; ++row) {
            if (token == 3) {
                EXPECT_TRUE(std::isnan(y.at(token, row)));
            } else {
                EXPECT_EQ(std::bit_cast<std::uint32_t>(y.at(token, row)),
                          std::bit_cast<std::uint32_t>(clean.at(token, row)));
            }
        }
}

// Matrices of more than 2 MiB, which some forms go over one group at a time with few tokens, and K beyond what a kernel
// goes over at once: the bits of their parts.
TEST_P(MatmulInvarianceTest, AMatrixThatComesFromMemoryIsItsParts) {
    constexpr int kMostTokens = 9;
    constexpr std::int64_t kPart = 256;  // rows
    const std::int64_t block = dtype_info(type()).block_elements;
    for (const std::int64_t least : {std::int64_t{1024}, std::int64_t{4097}}) {
        const std::int64_t k = (least / block + 1) * block;
        const std::int64_t rows = (3 << 20) / static_cast<std::int64_t>(row_bytes(type(), k)) / 16 * 16 + 5;
        const Weights weights = random_weights(type(), rows, k);
        GuardedMatrix x(kMostTokens, k);
        x.randomise(kSeed);
        GuardedMatrix all(kMostTokens, rows);
        Runner parts(form(), 1);
        const ConstTensorView packed = parts.pack(weights.view());
        for (std::int64_t first = 0; first < rows; first += kPart) {
            const std::int64_t m = std::min(kPart, rows - first);
            GuardedMatrix y(1, m);
            for (int token = 0; token < kMostTokens; ++token) {
                parts({.weights = packed.slice_rows(first, m),
                       .x = x.view().slice_rows(token, 1),
                       .y = y.view(),
                       .bias = {}});
                for (std::int64_t row = 0; row < m; ++row) all.at(token, first + row) = y.at(0, row);
            }
        }
        for (const int n_threads : {1, 3}) {
            for (const Layout layout : kLayouts) {
                Runner run(form(), n_threads);
                const ConstTensorView view = run.in_layout(layout, weights.view());
                for (const int n : {1, 2, 3, 4, 8, 9}) expect_same_bits(run, view, x, all, 0, n, 0, rows);
            }
        }
    }
}

// Few tokens go over a few groups of rows together, over what is left of them, and over a K that is no whole number of
// 256: each has the bits that it has among nine.
TEST_P(MatmulInvarianceTest, FewTokensHaveTheBitsOfMoreWithAnyNumberOfGroups) {
    constexpr int kMore = 9;
    const std::int64_t block = dtype_info(type()).block_elements;
    for (const std::int64_t least : {std::int64_t{256}, std::int64_t{800}}) {
        const std::int64_t k = (least + block - 1) / block * block;
        for (const std::int64_t rows : {16 * 13, 16 * 14 - 1, 16 * 15, 16 * 16 - 7}) {
            SCOPED_TRACE(fmt::format("[{}, {}]", rows, k));
            const Weights weights = random_weights(type(), rows, k);
            GuardedMatrix x(kMore, k);
            x.randomise(kSeed);
            GuardedMatrix all(kMore, rows);
            Runner run(form(), 1);
            const ConstTensorView packed = run.pack(weights.view());
            run({.weights = packed, .x = x.view(), .y = all.view(), .bias = {}});
            for (int n = 1; n < kMore; ++n) expect_same_bits(run, packed, x, all, kMore - n, n, 0, rows);
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Cpu, MatmulInvarianceTest,
                         testing::Combine(testing::ValuesIn(forms()), testing::ValuesIn(kAllTypes)), case_name);

}  // namespace
}  // namespace slipstream
