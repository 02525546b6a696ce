// matmul of every CPU form and weight type: against double loops over the decoded weights, against the written
// definition to the bit, at odd shapes, alignments and strides; and what it refuses.

#include "kernels/matmul.h"

#include <array>
#include <bit>

#include "kernels/cpu/matmul_tiled.h"
#include "tests/kernels/matmul_cases.h"

namespace slipstream {
namespace {

using namespace testing_matmul;  // NOLINT: the cases are this test's own

class MatmulTest : public testing::TestWithParam<FormAndType> {
protected:
    CpuForm form() const { return std::get<0>(GetParam()); }
    DType type() const { return std::get<1>(GetParam()); }
};

/// The forms whose bits are defined in kernels/cpu/matmul.h.
class MatmulVectorTest : public MatmulTest {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(MatmulVectorTest);  // a machine without any

/// Tiles are 4 rows by 1 to 6 tokens, panels 32 rows, token blocks 48, chunks of K 768: all of them and one past.
std::vector<Shape> shapes(DType type) {
    if (!is_quantized(type))
        return {{1, 1, 1},   {1, 32, 1},  {3, 31, 2},   {5, 33, 3},   {4, 64, 4},   {7, 172, 1},   {13, 172, 7},
                {2, 769, 5}, {33, 95, 6}, {17, 257, 8}, {9, 801, 13}, {36, 40, 49}, {37, 1601, 50}};
    const std::int64_t block = dtype_info(type).block_elements;
    return {{1, block, 1}, {3, 3 * block, 2},   {5, 5 * block, 3},  {4, block, 4},      {33, 2 * block, 6},
            {2, 1280, 7},  {37, 3 * block, 53}, {7, 7 * block, 11}, {31, 768 + 256, 97}};
}

/// The error of one output, by the standard model of rounding, u = 2^-24. The vector forms round each of the
/// ceil(K / 32) fused steps of a chain and five halvings; the scalar form rounds once, to float (its double sum is
/// far below that). Bias and Add round once more each, counted for all. Everything relative to sum |w| |x|.
double error_bound(std::int64_t k, double magnitude) {
    const double roundings = static_cast<double>((k + 31) / 32) + 5 + 2;
    const double u = 0x1p-24;
    return roundings * u / (1 - roundings * u) * magnitude;
}

TEST_P(MatmulTest, EqualsDoubleLoopsWithinTheRoundingBound) {
    SCOPED_TRACE(fmt::format("seed {}", kSeed));
    Runner run(form());
    for (const auto [m, k, n] : shapes(type())) {
        const Weights weights = random_weights(type(), m, k);
        GuardedMatrix x(n, k);
        x.randomise(kSeed);
        GuardedMatrix y(n, m);
        run({.weights = weights.view(), .x = x.view(), .y = y.view(), .bias = {}});
        for (std::int64_t row = 0; row < m; ++row) {
            const std::vector<float> w = weights.decoded_row(row);
            for (std::int64_t token = 0; token < n; ++token) {
                double expected = 0;
                double magnitude = 0;
                for (std::int64_t i = 0; i < k; ++i) {
                    const double product = double{w[static_cast<std::size_t>(i)]} * double{x.at(token, i)};
                    expected += product;
                    magnitude += std::abs(product);
                }
                ASSERT_NEAR(y.at(token, row), expected, error_bound(k, magnitude))
                    << "[" << m << ", " << k << "] n " << n << ", row " << row << " token " << token;
            }
        }
        y.expect_guards_intact();
    }
}

/// matmul.h's definition, literally.
float defined_sum(const std::vector<float>& w, const float* x) {
    std::array<float, 32> sums{};
    for (std::size_t i = 0; i < w.size(); ++i) sums[i % 32] = std::fma(w[i], x[i], sums[i % 32]);
    for (std::size_t half = 16; half > 0; half /= 2)
        for (std::size_t j = 0; j < half; ++j) sums[j] += sums[j + half];
    return sums[0];
}

TEST_P(MatmulVectorTest, EqualsTheDefinitionToTheBit) {
    Runner run(form());
    for (const auto [m, k, n] : shapes(type())) {
        const Weights weights = random_weights(type(), m, k);
        GuardedMatrix x(n, k);
        x.randomise(kSeed + 1);
        GuardedMatrix y(n, m);
        run({.weights = weights.view(), .x = x.view(), .y = y.view(), .bias = {}});
        for (std::int64_t row = 0; row < m; ++row) {
            const std::vector<float> w = weights.decoded_row(row);
            for (std::int64_t token = 0; token < n; ++token)
                ASSERT_EQ(std::bit_cast<std::uint32_t>(y.at(token, row)),
                          std::bit_cast<std::uint32_t>(defined_sum(w, &x.at(token, 0))))
                    << "[" << m << ", " << k << "] n " << n << ", row " << row << " token " << token;
        }
    }
}

TEST_P(MatmulVectorTest, DecodersEqualDequantizeRowToTheBit) {
    const cpu::TiledForm& tiled = form() == CpuForm::Avx2 ? cpu::tiled_form_avx2() : cpu::tiled_form_avx512();
    const std::int64_t k = is_quantized(type()) ? 64 * 256 : 1023;
    const std::int64_t padded = (k + 31) / 32 * 32;
    for (std::size_t offset = 0; offset < 4; ++offset) {
        Weights weights = random_weights(type(), 1, k, offset);
        // Any scale bits but infinity and NaN: subnormal, zero and large ones too.
        for (std::size_t block = 0; block < row_bytes(type(), k); block += dtype_info(type()).block_bytes)
            for (const std::size_t field : half_fields(type())) {
                const auto bits = static_cast<std::uint16_t>((block * 40503U + field * 977U) & 0xfbffU);
                std::memcpy(weights.bytes.data() + offset + block + field, &bits, sizeof(bits));
            }
        std::vector<float> decoded(static_cast<std::size_t>(padded), std::numeric_limits<float>::quiet_NaN());
        tiled.decode_row[static_cast<std::size_t>(type())](weights.view().row(0), decoded.data(), k);
        const std::vector<float> expected = weights.decoded_row(0);
        for (std::size_t i = 0; i < decoded.size(); ++i) {
            const float want = i < expected.size() ? expected[i] : 0.0F;
            ASSERT_EQ(std::bit_cast<std::uint32_t>(decoded[i]), std::bit_cast<std::uint32_t>(want))
                << "weight " << i << " offset " << offset;
        }
    }
}

TEST_P(MatmulTest, AlignmentAndPaddingChangeNothing) {
    Runner run(form());
    const std::int64_t k = is_quantized(type()) ? 512 : 172;
    const std::int64_t m = 11;
    for (const std::int64_t n : {1, 3, 9}) {
        const Weights packed = random_weights(type(), m, k);
        GuardedMatrix x(n, k);
        x.randomise(kSeed);
        GuardedMatrix expected(n, m);
        run({.weights = packed.view(), .x = x.view(), .y = expected.view(), .bias = {}});
        for (std::size_t offset = 1; offset <= 3; ++offset) {
            Weights shifted{type(), m, k, offset, packed.stride_bytes + 5, {}};
            shifted.bytes.assign(offset + static_cast<std::size_t>(m) * shifted.stride_bytes, std::byte{0xff});
            for (std::int64_t row = 0; row < m; ++row)
                std::memcpy(shifted.bytes.data() + offset + static_cast<std::size_t>(row) * shifted.stride_bytes,
                            packed.view().row(row), row_bytes(type(), k));
            GuardedMatrix padded_x(n, k, 4);
            padded_x.randomise(kSeed);
            GuardedMatrix y(n, m, 3);
            run({.weights = shifted.view(), .x = padded_x.view(), .y = y.view(), .bias = {}});
            for (std::int64_t token = 0; token < n; ++token)
                for (std::int64_t row = 0; row < m; ++row)
                    ASSERT_EQ(std::bit_cast<std::uint32_t>(y.at(token, row)),
                              std::bit_cast<std::uint32_t>(expected.at(token, row)))
                        << "offset " << offset << " token " << token << " row " << row;
            y.expect_guards_intact();
        }
    }
}

TEST_P(MatmulTest, AddsBiasThenWhatWasThere) {
    Runner run(form());
    const std::int64_t k = is_quantized(type()) ? 256 : 65;
    const std::int64_t m = 7;
    const Weights weights = random_weights(type(), m, k);
    GuardedMatrix bias(1, m);
    bias.randomise(kSeed + 2);
    for (const std::int64_t n : {1, 5}) {
        GuardedMatrix x(n, k);
        x.randomise(kSeed);
        GuardedMatrix sum(n, m);
        GuardedMatrix before(n, m);
        before.randomise(kSeed + 3);
        GuardedMatrix y(n, m);
        y.randomise(kSeed + 3);
        run({.weights = weights.view(), .x = x.view(), .y = sum.view(), .bias = {}});
        run({.weights = weights.view(),
             .x = x.view(),
             .y = y.view(),
             .bias = vector_view<const std::byte>(reinterpret_cast<const std::byte*>(&bias.at(0, 0)), DType::F32, m),
             .store = MatmulStore::Add});
        for (std::int64_t token = 0; token < n; ++token)
            for (std::int64_t row = 0; row < m; ++row) {
                const float with_bias = sum.at(token, row) + bias.at(0, row);
                const float expected = before.at(token, row) + with_bias;
                ASSERT_EQ(y.at(token, row), expected) << "token " << token << " row " << row;
            }
    }
}

INSTANTIATE_TEST_SUITE_P(Cpu, MatmulTest, testing::Combine(testing::ValuesIn(forms()), testing::ValuesIn(kAllTypes)),
                         case_name);

INSTANTIATE_TEST_SUITE_P(Cpu, MatmulVectorTest,
                         testing::Combine(testing::ValuesIn(vector_forms()), testing::ValuesIn(kAllTypes)), case_name);

TEST(Matmul, EmptyDimensionsAreServed) {
    for (const CpuForm form : forms()) {
        Runner run(form);
        GuardedMatrix bias(1, 5);
        bias.randomise(kSeed);
        for (const std::int64_t n : {1, 9}) {
            const Weights none = random_weights(DType::F32, 5, 0);
            GuardedMatrix x(n, 0);
            GuardedMatrix y(n, 5);
            run({.weights = none.view(),
                 .x = x.view(),
                 .y = y.view(),
                 .bias =
                     vector_view<const std::byte>(reinterpret_cast<const std::byte*>(&bias.at(0, 0)), DType::F32, 5)});
            for (std::int64_t token = 0; token < n; ++token)
                for (std::int64_t row = 0; row < 5; ++row) EXPECT_EQ(y.at(token, row), bias.at(0, row));
        }
        const Weights weights = random_weights(DType::Q8_0, 0, 64);
        GuardedMatrix x(3, 64);
        GuardedMatrix y(3, 0);
        run({.weights = weights.view(), .x = x.view(), .y = y.view(), .bias = {}});
        const Weights rows = random_weights(DType::Q8_0, 4, 64);
        GuardedMatrix no_x(0, 64);
        GuardedMatrix no_y(0, 4);
        run({.weights = rows.view(), .x = no_x.view(), .y = no_y.view(), .bias = {}});
        no_y.expect_guards_intact();
    }
}

TEST(MatmulDeathTest, RefusesWhatDoesNotFit) {
    Runner run(CpuForm::Scalar);
    const Weights weights = random_weights(DType::F32, 4, 8);
    GuardedMatrix x(2, 8);
    GuardedMatrix y(2, 4);
    GuardedMatrix wide(2, 5);
    EXPECT_DEATH(run({.weights = weights.view(), .x = x.view(), .y = wide.view(), .bias = {}}), "y has rank 2, shape");
    EXPECT_DEATH(run({.weights = weights.view(), .x = wide.view(), .y = y.view(), .bias = {}}), "x has rank 2, shape");
    EXPECT_DEATH(run({.weights = weights.view(), .x = x.view(), .y = matrix_view(&x.at(0, 4), 2, 4), .bias = {}}),
                 "y overlaps an input");
    ConstTensorView halves = weights.view();
    halves.dtype = DType::Q8_0;
    EXPECT_DEATH(run({.weights = halves, .x = x.view(), .y = y.view(), .bias = {}}),
                 "K = 8 in blocks of Q8_0|8 elements of Q8_0 in blocks of 32");
    EXPECT_DEATH(run({.weights = weights.view(), .x = x.view(), .y = y.view(), .bias = weights.view()}),
                 "bias has rank 2");
}

}  // namespace
}  // namespace slipstream
