// The matmul kernels, emulated: every type against double loops within the rounding bound, at odd shapes; bits that do
// not depend on the number of tokens, on the form, on rows' slices or on the schedule; and the epilogue.

#include <gtest/gtest.h>

#include <bit>

#include "tests/cuda_emulation/block.h"
#include "tests/cuda_emulation/matmul_cases.h"

namespace slipstream::cuda {
namespace {

using emulation::kAllSchedules;
using emulation::ScopedSchedule;
using testing_matmul::cuda_types;
using testing_matmul::kSeed;
using testing_matmul::random_weights;

constexpr MatmulForm kForms[] = {MatmulForm::Split, MatmulForm::SplitRegisters, MatmulForm::Tiles};

void expect_same_bits(GuardedMatrix& a, GuardedMatrix& b, std::int64_t first_of_b, std::int64_t n, std::int64_t m) {
    for (std::int64_t t = 0; t < n; ++t)
        for (std::int64_t r = 0; r < m; ++r)
            ASSERT_EQ(std::bit_cast<std::uint32_t>(a.at(t, r)), std::bit_cast<std::uint32_t>(b.at(first_of_b + t, r)))
                << "token " << t << " row " << r << ": " << a.at(t, r) << " and " << b.at(first_of_b + t, r);
}

class EmulatedMatmulTest : public testing::TestWithParam<DType> {
protected:
    DType type() const { return GetParam(); }
    /// A K that ends inside a unit, where the type can.
    std::int64_t odd_k() const {
        return is_quantized(type()) ? 416 / block() * block() + (block() == 256 ? 256 : 0) : 173;
    }
    std::int64_t block() const { return dtype_info(type()).block_elements; }
};

TEST_P(EmulatedMatmulTest, EqualsDoubleLoopsWithinTheRoundingBound) {
    SCOPED_TRACE(fmt::format("seed {}", kSeed));
    struct Shape {
        std::int64_t m, k, n;
    };
    const std::int64_t b = block();
    const std::vector<Shape> shapes =
        b == 1    ? std::vector<Shape>{{1, 1, 1},    {3, 15, 2},     {16, 64, 8}, {17, 16, 9},
                                       {33, 173, 3}, {40, 1030, 17}, {5, 37, 33}}
        : b == 32 ? std::vector<Shape>{{1, 32, 1},   {3, 64, 2},     {16, 96, 8}, {17, 128, 9},
                                       {33, 416, 3}, {40, 1184, 17}, {5, 160, 33}}
                  : std::vector<Shape>{{1, 256, 1}, {17, 512, 9}, {33, 768, 3}, {18, 2560, 17}, {5, 256, 33}};
    double worst = 0;
    for (const auto& [m, k, n] : shapes) {
        const Weights weights = random_weights(type(), m, k, 1, 3);
        GuardedBytes packed = packed_fragments(weights);
        GuardedMatrix x(n, k, 5);
        x.randomise(kSeed);
        std::vector<std::vector<float>> tokens;
        for (std::int64_t t = 0; t < n; ++t) tokens.push_back(rounded_token(type(), &x.at(t, 0), k));
        for (const MatmulForm form : kForms) {
            GuardedMatrix y(n, m, 3);
            MatmulRun{type(), m, k, packed.data()}(x, 0, n, y, {.form = form});
            for (std::int64_t row = 0; row < m; ++row) {
                const std::vector<float> decoded = weights.decoded_row(row);
                const std::vector<float> offsets = decoded_offsets(weights, row);
                for (std::int64_t token = 0; token < n; ++token) {
                    const ExpectedOutput expected = expected_output(decoded, offsets, tokens[token]);
                    ASSERT_NEAR(y.at(token, row), expected.sum, expected.bound)
                        << "[" << m << ", " << k << "] n " << n << ", form " << static_cast<int>(form) << ", row "
                        << row << " token " << token;
                    if (expected.bound > 0)
                        worst = std::max(worst, std::abs(y.at(token, row) - expected.sum) / expected.bound);
                }
            }
        }
    }
    RecordProperty("worst_share_of_bound", std::to_string(worst));
}

TEST_P(EmulatedMatmulTest, BitsDoNotDependOnCompanyFormOrSlice) {
    SCOPED_TRACE(fmt::format("seed {}", kSeed));
    const std::int64_t m = 37;
    const std::int64_t k = block() == 256 ? 2560 : odd_k() + 640;  // parts of more than one unit
    const std::int64_t n_all = 66;
    const Weights weights = random_weights(type(), m, k);
    GuardedBytes packed = packed_fragments(weights);
    GuardedMatrix x(n_all, k);
    x.randomise(kSeed);
    const MatmulRun run{type(), m, k, packed.data()};
    GuardedMatrix all(n_all, m);
    run(x, 0, n_all, all, {.form = MatmulForm::Tiles});
    for (const std::int64_t n : {1, 2, 7, 8, 9, 17, 33, 64}) {
        SCOPED_TRACE(fmt::format("{} tokens", n));
        GuardedMatrix y(n, m);
        for (const std::int32_t n_multiprocessors : {1, 200})  // two groups a block, or one
            for (const MatmulForm form : {MatmulForm::Split, MatmulForm::SplitRegisters}) {
                run(x, n_all - n, n, y, {.form = form, .n_multiprocessors = n_multiprocessors});
                expect_same_bits(y, all, n_all - n, n, m);
            }
    }
    GuardedMatrix split(n_all, m);
    run(x, 0, n_all, split, {.form = MatmulForm::Split});
    expect_same_bits(split, all, 0, n_all, m);
    GuardedMatrix tiles(33, m);
    run(x, 5, 33, tiles, {.form = MatmulForm::Tiles});
    expect_same_bits(tiles, all, 5, 33, m);
    GuardedMatrix slice(4, m - 16);  // the rows of groups 1 and 2 by themselves
    MatmulRun{type(), m - 16, k, packed.data() + 16 * row_bytes(type(), k)}(x, 0, 4, slice);
    for (std::int64_t t = 0; t < 4; ++t)
        for (std::int64_t r = 16; r < m; ++r)
            ASSERT_EQ(std::bit_cast<std::uint32_t>(slice.at(t, r - 16)), std::bit_cast<std::uint32_t>(all.at(t, r)));
}

TEST_P(EmulatedMatmulTest, EveryScheduleGivesTheSameBits) {
    const std::int64_t m = 21;
    const std::int64_t k = odd_k() + 2 * block();
    const std::int64_t n = 34;
    const Weights weights = random_weights(type(), m, k);
    GuardedBytes packed = packed_fragments(weights);
    GuardedMatrix x(n, k);
    x.randomise(kSeed);
    GuardedMatrix first(n, m);
    const MatmulRun run{type(), m, k, packed.data()};
    run(x, 0, n, first);
    for (const emulation::Schedule& schedule : kAllSchedules) {
        SCOPED_TRACE(emulation::schedule_name(schedule));
        const ScopedSchedule scope(schedule);
        for (const MatmulForm form : kForms) {
            GuardedMatrix y(n, m);
            run(x, 0, n, y, {.form = form});
            expect_same_bits(y, first, 0, n, m);
        }
        GuardedMatrix few(3, m);
        run(x, 7, 3, few);
        expect_same_bits(few, first, 7, 3, m);
    }
}

TEST_P(EmulatedMatmulTest, ATokenThatIsNotANumberStaysAlone) {
    const std::int64_t m = 9;
    const Weights weights = random_weights(type(), m, odd_k());
    GuardedBytes packed = packed_fragments(weights);
    GuardedMatrix x(7, odd_k());
    x.randomise(kSeed);
    const MatmulRun run{type(), m, odd_k(), packed.data()};
    for (const MatmulForm form : kForms) {
        GuardedMatrix clean(7, m);
        run(x, 0, 7, clean, {.form = form});
        GuardedMatrix y(7, m);
        GuardedMatrix spoilt = x;
        for (std::int64_t i = 0; i < odd_k(); ++i) spoilt.at(3, i) = std::numeric_limits<float>::quiet_NaN();
        spoilt.at(5, 2) = std::numeric_limits<float>::infinity();
        run(spoilt, 0, 7, y, {.form = form});
        for (std::int64_t t = 0; t < 7; ++t)
            for (std::int64_t r = 0; r < m; ++r) {
                if (t == 3) {
                    EXPECT_TRUE(std::isnan(y.at(t, r)));
                } else if (t == 5) {
                    EXPECT_FALSE(std::isfinite(y.at(t, r)) && y.at(t, r) == clean.at(t, r));
                } else {
                    EXPECT_EQ(y.at(t, r), clean.at(t, r));
                }
            }
    }
}

INSTANTIATE_TEST_SUITE_P(Types, EmulatedMatmulTest, testing::ValuesIn(cuda_types()),
                         [](const auto& which) { return std::string(dtype_name(which.param)); });

// K of whole units, where weights come through the ring: as many as a part has, one more, and fewer than the ring
// holds.
TEST(EmulatedMatmul, TheRingGivesTheBitsOfRegisters) {
    for (const DType type : cuda_types()) {
        const std::int64_t unit = matmul_unit_k(type);
        for (const std::int64_t n_units : {1, 2, 8, 9, 31, 64}) {
            const std::int64_t m = 20;
            const std::int64_t k = unit * n_units;
            const Weights weights = random_weights(type, m, k);
            GuardedBytes packed = packed_fragments(weights);
            GuardedMatrix x(9, k);
            x.randomise(kSeed);
            const MatmulRun run{type, m, k, packed.data()};
            for (const std::int64_t n : {1, 9}) {
                GuardedMatrix expected(n, m);
                run(x, 0, n, expected, {.form = MatmulForm::SplitRegisters});
                for (const emulation::Schedule& schedule : kAllSchedules) {
                    const ScopedSchedule scope(schedule);
                    GuardedMatrix y(n, m);
                    run(x, 0, n, y, {.form = MatmulForm::Split, .n_multiprocessors = 1});
                    expect_same_bits(y, expected, 0, n, m);
                }
            }
        }
    }
}

TEST(EmulatedMatmul, BitsOfHundredsOfTokensAreThoseOfOne) {
    for (const DType type : {DType::BF16, DType::Q4_K}) {
        const std::int64_t m = 20;
        const std::int64_t k = 512;
        const std::int64_t n_all = 513;
        const Weights weights = random_weights(type, m, k);
        GuardedBytes packed = packed_fragments(weights);
        GuardedMatrix x(n_all, k);
        x.randomise(kSeed);
        const MatmulRun run{type, m, k, packed.data()};
        GuardedMatrix all(n_all, m);
        run(x, 0, n_all, all, {.form = MatmulForm::Tiles});
        for (const std::int64_t token : {0, 64, 300, 512}) {
            GuardedMatrix y(1, m);
            run(x, token, 1, y);
            expect_same_bits(y, all, token, 1, m);
        }
        GuardedMatrix chosen(n_all, m);
        run(x, 0, n_all, chosen);
        expect_same_bits(chosen, all, 0, n_all, m);
    }
}

TEST(EmulatedMatmul, AddsBiasAndToWhatIsThereAfterTheWholeSum) {
    for (const DType type : {DType::F32, DType::F16, DType::BF16, DType::Q4_K}) {
        const std::int64_t m = 19;
        const std::int64_t k = 512;
        const std::int64_t n = 9;
        const Weights weights = random_weights(type, m, k);
        GuardedBytes packed = packed_fragments(weights);
        GuardedMatrix x(n, k);
        x.randomise(kSeed);
        GuardedMatrix bias(1, m);
        bias.randomise(3);
        const MatmulRun run{type, m, k, packed.data()};
        for (const MatmulForm form : kForms) {
            GuardedMatrix plain(n, m);
            run(x, 0, n, plain, {.form = form});
            GuardedMatrix before(n, m, 40);  // columns of a wider matrix
            before.randomise(4);
            GuardedMatrix y = before;
            run(x, 0, n, y, {.matrices = {{.bias = &bias.at(0, 0)}}, .store = MatmulStoreForm::Add, .form = form});
            for (std::int64_t t = 0; t < n; ++t)
                for (std::int64_t r = 0; r < m; ++r)
                    ASSERT_EQ(y.at(t, r), before.at(t, r) + (plain.at(t, r) + bias.at(0, r))) << dtype_name(type);
        }
    }
}

// Matrices of one launch: short ones, one of no rows, one of a group and a part, with and without a bias.
TEST(EmulatedMatmul, MatricesOfOneLaunchHaveTheBitsOfTheirOwn) {
    const std::int64_t k = 512;
    const std::vector<std::int64_t> rows{37, 16, 0, 150, 20};
    for (const DType type : cuda_types()) {
        std::vector<GuardedBytes> packed;
        for (const std::int64_t m : rows) packed.push_back(packed_fragments(random_weights(type, m, k)));
        GuardedMatrix bias(1, 150);
        bias.randomise(3);
        for (const std::int64_t n : {1, 9, 20, 66}) {
            GuardedMatrix x(n, k);
            x.randomise(kSeed);
            GuardedBytes scratch(matmul_scratch_bytes(type, k, n));
            for (const MatmulForm form : {MatmulForm::Chosen, MatmulForm::Tiles, MatmulForm::SplitRegisters}) {
                std::vector<GuardedMatrix> y;
                for (const std::int64_t m : rows) y.emplace_back(n, m, 3);
                MatmulLaunch launch{.dtype = static_cast<std::int32_t>(type),
                                    .n_matrices = static_cast<std::int32_t>(rows.size()),
                                    .n_tokens = static_cast<std::int32_t>(n),
                                    .k = k,
                                    .x = &x.at(0, 0),
                                    .x_stride = k,
                                    .scratch = scratch.data(),
                                    .form = form};
                for (std::size_t i = 0; i < rows.size(); ++i)
                    launch.matrices[i] = {.weights = packed[i].data(),
                                          .m = rows[i],
                                          .y = reinterpret_cast<float*>(y[i].view().data),
                                          .y_stride = rows[i] + 3,
                                          .bias = i % 2 == 1 ? &bias.at(0, 0) : nullptr};
                launch_matmul(launch, nullptr);
                for (std::size_t i = 0; i < rows.size(); ++i) {
                    GuardedMatrix expected(n, rows[i]);
                    MatmulRun{type, rows[i], k, packed[i].data()}(
                        x, 0, n, expected,
                        {.matrices = {{.bias = i % 2 == 1 ? &bias.at(0, 0) : nullptr}}, .form = form});
                    y[i].expect_guards_intact();
                    for (std::int64_t t = 0; t < n; ++t)
                        for (std::int64_t row = 0; row < rows[i]; ++row)
                            ASSERT_EQ(y[i].at(t, row), expected.at(t, row)) << dtype_name(type) << " matrix " << i;
                }
            }
        }
    }
}

// The last one of another type, as mixtures have it.
TEST(EmulatedMatmul, MatricesOfTwoTypesHaveTheBitsOfTheirOwn) {
    const std::int64_t k = 1280;
    for (const auto& [first, last] : {std::pair{DType::Q3_K, DType::Q4_K}, std::pair{DType::Q3_K, DType::Q5_K},
                                      std::pair{DType::Q4_K, DType::Q6_K}, std::pair{DType::Q5_K, DType::Q6_K}})
        for (const std::int64_t n : {1, 8}) {
            ASSERT_TRUE(matmul_mixes(first, last, n));
            GuardedMatrix x(n, k);
            x.randomise(kSeed);
            GuardedBytes scratch(std::max(matmul_scratch_bytes(first, k, n), matmul_scratch_bytes(last, k, n)));
            const std::int64_t rows[] = {37, 20, 50};
            const DType types[] = {first, first, last};
            std::vector<GuardedBytes> packed;
            std::vector<GuardedMatrix> y;
            MatmulLaunch launch{.dtype = static_cast<std::int32_t>(first),
                                .last_dtype = static_cast<std::int32_t>(last),
                                .n_matrices = 3,
                                .n_tokens = static_cast<std::int32_t>(n),
                                .k = k,
                                .x = &x.at(0, 0),
                                .x_stride = k,
                                .scratch = scratch.data()};
            for (std::size_t i = 0; i < 3; ++i) {
                packed.push_back(packed_fragments(random_weights(types[i], rows[i], k)));
                y.emplace_back(n, rows[i]);
            }
            for (std::size_t i = 0; i < 3; ++i)
                launch.matrices[i] = {.weights = packed[i].data(),
                                      .m = rows[i],
                                      .y = reinterpret_cast<float*>(y[i].view().data),
                                      .y_stride = rows[i]};
            launch_matmul(launch, nullptr);
            for (std::size_t i = 0; i < 3; ++i) {
                GuardedMatrix expected(n, rows[i]);
                MatmulRun{types[i], rows[i], k, packed[i].data()}(x, 0, n, expected);
                y[i].expect_guards_intact();
                expect_same_bits(y[i], expected, 0, n, rows[i]);
            }
        }
}

TEST(EmulatedMatmul, PreparedActivationsServeEveryTypeOfTheirKind) {
    const std::int64_t k = 768;
    const std::int64_t n = 5;
    GuardedMatrix x(n, k);
    x.randomise(kSeed);
    for (const DType first : {DType::BF16, DType::Q5_1, DType::F16}) {
        GuardedBytes scratch(matmul_scratch_bytes(first, k, n));
        MatmulLaunch launch{.n_tokens = static_cast<std::int32_t>(n), .k = k, .x_stride = k, .scratch = scratch.data()};
        bool prepared = false;
        for (const DType type : cuda_types()) {
            if (matmul_scratch_kind(type) != matmul_scratch_kind(first)) continue;
            ASSERT_EQ(matmul_scratch_bytes(type, k, n), matmul_scratch_bytes(first, k, n));
            const std::int64_t m = 20;
            const Weights weights = random_weights(type, m, k);
            GuardedBytes packed = packed_fragments(weights);
            GuardedMatrix expected(n, m);
            MatmulRun{type, m, k, packed.data()}(x, 0, n, expected);
            GuardedMatrix y(n, m);
            launch.dtype = static_cast<std::int32_t>(type);
            launch.matrices[0] = {.weights = packed.data(), .m = m, .y = &y.at(0, 0), .y_stride = m};
            launch.x = prepared ? nullptr : &x.at(0, 0);
            launch.activations = prepared ? MatmulActivations::Prepared : MatmulActivations::Prepare;
            launch_matmul(launch, nullptr);
            prepared = true;
            expect_same_bits(y, expected, 0, n, m);
        }
    }
}

TEST(EmulatedMatmul, HalvesTakeActivationsOfAnySize) {
    const Weights weights = random_weights(DType::F16, 16, 64);
    GuardedBytes packed = packed_fragments(weights);
    const MatmulRun run{DType::F16, 16, 64, packed.data()};
    for (const float scale : {0x1p-100F, 0x1p-20F, 0x1p60F, 0x1p100F}) {
        GuardedMatrix x(2, 64);
        x.randomise(kSeed);
        for (std::int64_t i = 0; i < 64; ++i) x.at(0, i) *= scale;
        for (std::int64_t i = 0; i < 64; ++i) x.at(1, i) = 0;
        GuardedMatrix y(2, 16);
        run(x, 0, 2, y);
        for (std::int64_t row = 0; row < 16; ++row) {
            const ExpectedOutput expected =
                expected_output(weights.decoded_row(row), {}, rounded_token(DType::F16, &x.at(0, 0), 64));
            ASSERT_NEAR(y.at(0, row), expected.sum, expected.bound) << scale;
            ASSERT_EQ(y.at(1, row), 0.0F);
        }
    }
}

// How the work is dealt out follows the card: tiles where they fill three quarters of its processors, two groups a
// block where there are two blocks for each processor all the same.
TEST(EmulatedMatmul, BlocksFillTheCard) {
    struct Case {
        DType type;
        std::int64_t m, n;
        std::int32_t n_multiprocessors;
        std::int64_t n_blocks;
    };
    const std::int64_t k = 128;
    for (const Case& c : {Case{DType::BF16, 4480, 128, 132, 280}, Case{DType::BF16, 4480, 128, 80, 70},
                          Case{DType::Q4_0, 3200, 1, 132, 200}, Case{DType::Q4_0, 3200, 1, 80, 100}}) {
        GuardedBytes packed = packed_fragments(random_weights(c.type, c.m, k));
        GuardedMatrix x(c.n, k);
        x.randomise(kSeed);
        GuardedMatrix y(c.n, c.m);
        MatmulRun{c.type, c.m, k, packed.data()}(x, 0, c.n, y, {.n_multiprocessors = c.n_multiprocessors});
        EXPECT_EQ(emulation::n_blocks_of_last_grid(), c.n_blocks) << c.m << ' ' << c.n_multiprocessors;
    }
}

TEST(EmulatedMatmul, NothingOfNothing) {
    GuardedMatrix x(3, 32);
    x.randomise(kSeed);
    for (const DType type : {DType::F32, DType::Q8_0}) {
        GuardedMatrix none(3, 0);
        MatmulRun{type, 0, 32, nullptr}(x, 0, 3, none);
        GuardedMatrix y(0, 4);
        MatmulRun{type, 4, 32, nullptr}(x, 0, 0, y);
        GuardedMatrix zeros(3, 4);
        MatmulRun{type, 4, 0, nullptr}(x, 0, 3, zeros);
        for (std::int64_t t = 0; t < 3; ++t)
            for (std::int64_t r = 0; r < 4; ++r) EXPECT_EQ(zeros.at(t, r), 0.0F);
    }
}

}  // namespace
}  // namespace slipstream::cuda
