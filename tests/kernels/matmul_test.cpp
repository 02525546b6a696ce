// matmul of every CPU form and weight type: against double loops over the decoded weights, against the written
// definition to the bit, at odd shapes, alignments and strides; and what it refuses.

#include "kernels/matmul.h"

#include <array>
#include <bit>

#include "kernels/cpu/matmul/activations.h"
#include "kernels/cpu/matmul/interleaved.h"
#include "kernels/cpu/matmul/unpack_codes.h"
#include "tests/kernels/matmul_cases.h"
#include "tests/kernels/unpack_one.h"

namespace slipstream {
namespace {

using namespace testing_matmul;  // NOLINT: the cases are this test's own

class MatmulTest : public testing::TestWithParam<FormAndType> {
protected:
    CpuForm form() const { return std::get<0>(GetParam()); }
    DType type() const { return std::get<1>(GetParam()); }
};

/// The forms whose bits are defined in kernels/cpu/matmul/matmul.h.
class MatmulVectorTest : public MatmulTest {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(MatmulVectorTest);  // a machine without any

/// Groups are 16 rows, tiles up to 8 tokens, streams up to 32, passes of 512, chunks of K 256: all and one past.
std::vector<Shape> shapes(DType type) {
    if (!is_quantized(type))
        return {{1, 1, 1},    {1, 32, 1},   {3, 31, 2},  {5, 33, 3},    {16, 64, 4},   {7, 172, 1},
                {13, 172, 7}, {17, 257, 8}, {33, 95, 9}, {15, 513, 16}, {48, 256, 17}, {9, 801, 13},
                {2, 769, 5},  {36, 40, 32}, {65, 7, 33}, {81, 260, 50}, {31, 2, 520},  {37, 1601, 49}};
    const std::int64_t block = dtype_info(type).block_elements;
    return {{1, block, 1},   {3, 3 * block, 2},   {16, 5 * block, 3}, {4, block, 4},      {33, 2 * block, 6},
            {2, 1280, 7},    {17, 9 * block, 8},  {48, 2 * block, 9}, {7, 7 * block, 16}, {31, 768 + 256, 33},
            {65, block, 32}, {81, 3 * block, 53}, {5, 2 * block, 520}};
}

/// Offsets of a row's weights: what they decode to where all codes are zero. Empty where the type has none.
std::vector<float> decoded_offsets(const Weights& weights, std::int64_t row) {
    if (!cpu::code_traits(weights.type).has_offset) return {};
    const auto is_code = [&](std::size_t i) {
        if (weights.type == DType::Q2_K) return i >= 16 && i < 80;
        return i >= (weights.type == DType::Q4_K || weights.type == DType::Q5_K ? 16U : 4U);
    };
    const std::byte* bytes = weights.view().row(row);
    std::vector<std::byte> blocks(bytes, bytes + row_bytes(weights.type, weights.k));
    const std::size_t block_bytes = dtype_info(weights.type).block_bytes;
    for (std::size_t i = 0; i < blocks.size(); ++i)
        if (is_code(i % block_bytes)) blocks[i] = std::byte{0};
    std::vector<float> out(static_cast<std::size_t>(weights.k));
    cpu::dequantize_row(weights.type, blocks.data(), out.data(), weights.k);
    return out;
}

bool rounds_to_bfloat16(CpuForm form, DType type) {
    return form == CpuForm::Avx512Bf16 && type == DType::BF16;
}

struct Expected {
    double sum = 0;
    double bound = 0;
};

/// Sum and error of one output, u = 2^-24.
/// Float weights: the vector forms round each of the K steps of a chain; bias and Add once more each. The scalar form
/// rounds once. Everything relative to sum |w| |x|. Where activations are rounded to bfloat16 they are off by at most
/// 2^-8 of themselves. Quantised: activations are off by at most half a step, d / 2 = largest of their run / 254 (and
/// by 127 * 4 u d, since x / d is rounded before), times |w|. The sums then take two steps a block of 32 (K formats:
/// one a scale of a block of 256, then one a block) and four more roundings, relative to sum (|scale * code| +
/// |offset|) |rounded x|, at most sum (|w| + 2 |offset|) (|x| + d / 2).
Expected expected_output(CpuForm form, const Weights& weights, std::int64_t row, const float* x) {
    const std::vector<float> w = weights.decoded_row(row);
    const std::vector<float> offsets = decoded_offsets(weights, row);
    const bool quantized = is_quantized(weights.type);
    const auto run = static_cast<std::size_t>(cpu::code_traits(weights.type).activation_run);
    const double u = 0x1p-24;
    double magnitude = 0;
    Expected out;
    for (std::size_t i = 0; i < w.size(); ++i) {
        double half_step = rounds_to_bfloat16(form, weights.type) ? 0x1p-8 * std::abs(double{x[i]}) : 0.0;
        if (quantized) {
            double largest = 0;
            for (std::size_t j = i / run * run; j < i / run * run + run; ++j)
                largest = std::max(largest, std::abs(double{x[j]}));
            half_step = largest / 127 * (0.5 + 127 * 4 * u);
        }
        const double offset = offsets.empty() ? 0.0 : std::abs(double{offsets[i]});
        out.sum += double{w[i]} * double{x[i]};
        out.bound += std::abs(double{w[i]}) * half_step;
        magnitude += (std::abs(double{w[i]}) + 2 * offset) * (std::abs(double{x[i]}) + half_step);
    }
    const auto k = static_cast<double>(w.size());
    const cpu::CodeTraits traits = cpu::code_traits(weights.type);
    const double steps = !quantized ? k : traits.activation_run == 32 ? 2 * k / 32 : 256.0 / traits.scale_run + k / 256;
    const double roundings = steps + (quantized ? 4 : 0) + 2;
    out.bound += roundings * u / (1 - roundings * u) * magnitude;
    return out;
}

TEST_P(MatmulTest, EqualsDoubleLoopsWithinTheRoundingBound) {
    SCOPED_TRACE(fmt::format("seed {}", kSeed));
    Runner run(form());
    double worst = 0;
    for (const auto [m, k, n] : shapes(type())) {
        const Weights weights = random_weights(type(), m, k);
        GuardedMatrix x(n, k);
        x.randomise(kSeed);
        GuardedMatrix y(n, m);
        run({.weights = run.pack(weights.view()), .x = x.view(), .y = y.view(), .bias = {}});
        for (std::int64_t row = 0; row < m; ++row) {
            for (std::int64_t token = 0; token<n; token += n> 64 ? 37 : 1) {
                const Expected expected = expected_output(form(), weights, row, &x.at(token, 0));
                ASSERT_NEAR(y.at(token, row), expected.sum, expected.bound)
                    << "[" << m << ", " << k << "] n " << n << ", row " << row << " token " << token;
                if (expected.bound > 0)
                    worst = std::max(worst, std::abs(double{y.at(token, row)} - expected.sum) / expected.bound);
            }
        }
        y.expect_guards_intact();
    }
    RecordProperty("worst_share_of_bound", std::to_string(worst));
}

/// kernels/cpu/matmul/matmul.h's definition, literally, for one output.
float defined_floats(const std::vector<float>& w, const float* x) {
    float sum = 0;
    for (std::size_t i = 0; i < w.size(); ++i) sum = std::fma(w[i], x[i], sum);
    return sum;
}
float defined_pairs(const std::vector<float>& w, const float* x) {
    float sum = 0;
    for (std::size_t i = 0; i < w.size(); i += 2) {
        if (i + 1 < w.size()) sum = std::fma(w[i + 1], to_float(to_bfloat16(x[i + 1])), sum);
        sum = std::fma(w[i], to_float(to_bfloat16(x[i])), sum);
    }
    return sum;
}
float defined_codes(const Weights& weights, std::int64_t row, const float* x) {
    const cpu::CodeTraits traits = cpu::code_traits(weights.type);
    const std::int64_t block_elements = dtype_info(weights.type).block_elements;
    const std::size_t block_bytes = 16 * dtype_info(weights.type).block_bytes;
    std::vector<std::byte> group(16 * row_bytes(weights.type, weights.k));
    cpu::interleave_rows(weights.type, weights.view().row(row), weights.stride_bytes, 1, weights.k, group.data());
    auto chunk = std::make_unique<cpu::UnpackedChunk>();
    float sum = 0;
    for (std::int64_t k = 0; k < weights.k; k += block_elements) {
        unpack_one(weights.type, group.data() + static_cast<std::size_t>(k / block_elements) * block_bytes, *chunk);
        std::vector<std::byte> q(static_cast<std::size_t>(block_elements / 32 * cpu::kBlockBytesPerToken));
        cpu::quantize_token(x + k, block_elements, 0, 1, traits, q.data());
        float d;
        std::memcpy(&d, q.data() + cpu::BlockOffsets<1>::kD, sizeof(d));
        float of_block = 0;  // K formats: without d
        int of_minimums = 0;
        for (std::size_t s = 0; s < static_cast<std::size_t>(block_elements / 32); ++s) {
            int dots[2] = {0, 0};
            int totals[2] = {0, 0};
            for (std::size_t i = 0; i < 32; ++i) {
                const int code = static_cast<int>((chunk->codes[s][i / 4][0] >> (8 * (i % 4))) & 0xffU);
                const int activation = static_cast<std::int8_t>(q[s * cpu::kBlockBytesPerToken + i]);
                dots[i / 16] += (code - traits.code_offset) * activation;
                totals[i / 16] += activation;
            }
            const auto both = static_cast<float>(dots[0] + dots[1]);
            const int total = totals[0] + totals[1];
            const auto minimum = [&](std::size_t i) {
                return static_cast<int>(chunk->mins[i / 2][0] >> (16 * (i % 2)) & 0xffffU);
            };
            if (block_elements == 32) {
                sum = std::fma(both, chunk->scale[s][0] * d, sum);
                if (traits.has_offset) sum = std::fma(chunk->offset[s][0], d * static_cast<float>(total), sum);
            } else if (traits.scale_run == 32) {
                of_block = std::fma(both, chunk->scale[s][0], of_block);
                of_minimums += minimum(s) * total;
            } else {
                of_block = std::fma(static_cast<float>(dots[0]), chunk->scale[2 * s][0], of_block);
                of_block = std::fma(static_cast<float>(dots[1]), chunk->scale[2 * s + 1][0], of_block);
                if (traits.has_offset) of_minimums += minimum(2 * s) * totals[0] + minimum(2 * s + 1) * totals[1];
            }
        }
        if (block_elements == 32) continue;
        if (traits.has_offset) of_block = std::fma(static_cast<float>(of_minimums), chunk->minus_dmin[0], of_block);
        sum = std::fma(of_block, d, sum);
    }
    return sum;
}

TEST_P(MatmulVectorTest, EqualsTheDefinitionToTheBitInEitherLayout) {
    Runner run(form());
    for (const auto [m, k, n] : shapes(type())) {
        const Weights weights = random_weights(type(), m, k);
        GuardedMatrix x(n, k);
        x.randomise(kSeed + 1);
        for (const Layout layout : kLayouts) {
            GuardedMatrix y(n, m);
            run({.weights = run.in_layout(layout, weights.view()), .x = x.view(), .y = y.view(), .bias = {}});
            for (std::int64_t row = 0; row < m; ++row) {
                const std::vector<float> w = weights.decoded_row(row);
                for (std::int64_t token = 0; token<n; token += n> 16 ? 11 : 1) {
                    const float* const activations = &x.at(token, 0);
                    const float expected = is_quantized(type()) ? defined_codes(weights, row, activations)
                                           : rounds_to_bfloat16(form(), type()) ? defined_pairs(w, activations)
                                                                                : defined_floats(w, activations);
                    ASSERT_EQ(std::bit_cast<std::uint32_t>(y.at(token, row)), std::bit_cast<std::uint32_t>(expected))
                        << "[" << m << ", " << k << "] n " << n << ", row " << row << " token " << token;
                }
            }
            y.expect_guards_intact();
        }
    }
}

// Every exponent, the two that stand for subnormal scales and the largest among them. Products beyond the range of
// floats are infinite, and products of subnormal scales are not flushed to zero.
TEST(Mxfp4, EveryScaleIsMultipliedAsDefined) {
    constexpr std::int64_t kRows = 256;
    Weights weights = random_weights(DType::MXFP4, kRows, 64);
    for (std::size_t row = 0; row < kRows; ++row)
        for (const std::size_t block : {0U, 17U})
            weights.bytes[row * weights.stride_bytes + block] = static_cast<std::byte>(row);
    for (const CpuForm form : vector_forms()) {
        Runner run(form);
        for (const std::int64_t n : {1, 5, 9}) {
            GuardedMatrix x(n, 64);
            x.randomise(kSeed);
            GuardedMatrix y(n, kRows);
            run({.weights = run.pack(weights.view()), .x = x.view(), .y = y.view(), .bias = {}});
            for (std::int64_t row = 0; row < kRows; ++row)
                for (std::int64_t token = 0; token < n; ++token)
                    ASSERT_EQ(std::bit_cast<std::uint32_t>(y.at(token, row)),
                              std::bit_cast<std::uint32_t>(defined_codes(weights, row, &x.at(token, 0))))
                        << cpu_form_name(form) << " exponent " << row << " token " << token << " of " << n;
            EXPECT_NE(y.at(0, 0), 0.0F);
        }
    }
}

// The codes of largest magnitude, all of a row, times activations of the largest magnitude: no sum saturates.
TEST(CodesOfEightBits, AreMultipliedAsDefinedAtTheirBounds) {
    struct Extremes {
        DType type;
        std::size_t code_bytes;  // at the end of a block
        unsigned low;            // byte of the lowest codes
        unsigned high;           // byte of the highest codes
    };
    constexpr std::int64_t kRows = 16;
    constexpr std::int64_t kCols = 512;
    for (const Extremes& of : {Extremes{DType::Q8_0, 32, 0x80, 0x7f}, Extremes{DType::IQ4_NL, 16, 0x00, 0xff},
                               Extremes{DType::IQ4_XS, 128, 0x00, 0xff}}) {
        Weights weights = random_weights(of.type, kRows, kCols);
        const auto block = static_cast<std::size_t>(dtype_info(of.type).block_bytes);
        for (std::size_t row = 0; row < kRows; ++row)
            for (std::size_t end = block; end <= weights.stride_bytes; end += block)
                std::fill_n(weights.bytes.begin() +
                                static_cast<std::ptrdiff_t>(row * weights.stride_bytes + end - of.code_bytes),
                            of.code_bytes, static_cast<std::byte>(row % 2 == 0 ? of.low : of.high));
        for (const CpuForm form : vector_forms()) {
            Runner run(form);
            for (const std::int64_t n : {1, 4, 9}) {
                GuardedMatrix x(n, kCols);
                for (std::int64_t token = 0; token < n; ++token)
                    for (std::int64_t i = 0; i < kCols; ++i) x.at(token, i) = token % 2 == 0 ? 1.0F : -1.0F;
                GuardedMatrix y(n, kRows);
                run({.weights = run.pack(weights.view()), .x = x.view(), .y = y.view(), .bias = {}});
                for (std::int64_t row = 0; row < kRows; ++row)
                    for (std::int64_t token = 0; token < n; ++token)
                        ASSERT_EQ(std::bit_cast<std::uint32_t>(y.at(token, row)),
                                  std::bit_cast<std::uint32_t>(defined_codes(weights, row, &x.at(token, 0))))
                            << cpu_form_name(form) << " " << dtype_name(of.type) << " row " << row << " token " << token
                            << " of " << n;
            }
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
    // Half a vector, whole ones, several groups and a part of one; one token to more than a pass keeps sums of.
    for (const auto [m, n] :
         {std::array<std::int64_t, 2>{7, 1}, {8, 5}, {16, 9}, {21, 20}, {37, 3}, {118, 130}, {53, 520}}) {
        const Weights weights = random_weights(type(), m, k);
        GuardedMatrix bias(1, m);
        bias.randomise(kSeed + 2);
        const ConstTensorView bias_view =
            vector_view<const std::byte>(reinterpret_cast<const std::byte*>(&bias.at(0, 0)), DType::F32, m);
        GuardedMatrix x(n, k);
        x.randomise(kSeed);
        GuardedMatrix sum(n, m);
        GuardedMatrix before(n, m);
        before.randomise(kSeed + 3);
        run({.weights = run.pack(weights.view()), .x = x.view(), .y = sum.view(), .bias = {}});
        for (const bool with_bias : {false, true}) {
            for (const MatmulStore store : {MatmulStore::Overwrite, MatmulStore::Add}) {
                GuardedMatrix y(n, m, 3);
                y.randomise(kSeed + 3);
                run({.weights = run.in_layout(with_bias ? Layout::Interleaved16 : Layout::RowMajor, weights.view()),
                     .x = x.view(),
                     .y = y.view(),
                     .bias = with_bias ? bias_view : ConstTensorView{},
                     .store = store});
                for (std::int64_t token = 0; token < n; ++token)
                    for (std::int64_t row = 0; row < m; ++row) {
                        const float result = with_bias ? sum.at(token, row) + bias.at(0, row) : sum.at(token, row);
                        const float expected = store == MatmulStore::Add ? before.at(token, row) + result : result;
                        ASSERT_EQ(y.at(token, row), expected) << m << " rows, " << n << " tokens, bias " << with_bias
                                                              << ", token " << token << " row " << row;
                    }
                y.expect_guards_intact();
            }
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
    EXPECT_DEATH(run({.weights = weights.view(), .x = x.view(), .y = wide.view(), .bias = {}}),
                 "y has 2 dimensions, shape");
    EXPECT_DEATH(run({.weights = weights.view(), .x = wide.view(), .y = y.view(), .bias = {}}),
                 "x has 2 dimensions, shape");
    EXPECT_DEATH(run({.weights = weights.view(), .x = x.view(), .y = matrix_view(&x.at(0, 4), 2, 4), .bias = {}}),
                 "y overlaps an input");
    ConstTensorView halves = weights.view();
    halves.dtype = DType::Q8_0;
    EXPECT_DEATH(run({.weights = halves, .x = x.view(), .y = y.view(), .bias = {}}),
                 "K = 8 in blocks of Q8_0|8 elements of Q8_0, whose quantisation block has 32");
    EXPECT_DEATH(run({.weights = weights.view(), .x = x.view(), .y = y.view(), .bias = weights.view()}),
                 "bias has 2 dimensions");
    ConstTensorView packed = run.pack(weights.view());
    packed.row_stride_bytes += 4;
    EXPECT_DEATH(run({.weights = packed, .x = x.view(), .y = y.view(), .bias = {}}),
                 "packed rows of 32 bytes every 36");
}

}  // namespace
}  // namespace slipstream
