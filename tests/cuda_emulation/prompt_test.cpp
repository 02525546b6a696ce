// The kernels around cuBLASLt, emulated under every schedule: weights of every type unpacked to rows, tokens rounded
// into their rows of a prefill chunk, products stored; nothing is written beside.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/cuda/matmul/prompt_launch.h"
#include "kernels/cuda/matmul/prompt_plan.h"
#include "tests/cuda_emulation/matmul_cases.h"

namespace slipstream::cuda {
namespace {

using emulation::kAllSchedules;
using emulation::ScopedSchedule;
using testing_matmul::cuda_types;
using testing_matmul::random_weights;

float value_of(const std::byte* data, std::size_t i, PromptOperands operands) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, data + 2 * i, sizeof(bits));
    return operands == PromptOperands::F16 ? to_float(Half{bits}) : to_float(BFloat16{bits});
}

class EmulatedPrompt : public testing::TestWithParam<DType> {};

// Floats come back as they are; scaled codes are rounded to 8 bits once, behind at most two roundings in float of d *
// code and m, each as large as the offset at most.
TEST_P(EmulatedPrompt, UnpacksRows) {
    const DType type = GetParam();
    const std::int64_t block = dtype_info(type).block_elements;
    const PromptOperands operands = type == DType::F16 ? PromptOperands::F16 : PromptOperands::Bf16;
    for (const std::int64_t k :
         block == 256 ? std::vector<std::int64_t>{256, 1280} : std::vector<std::int64_t>{32, 96, 128, 608}) {
        const Weights weights = random_weights(type, 37, k, 1, 3);
        GuardedBytes packed = packed_fragments(weights);
        std::vector<std::byte> first;
        for (const emulation::Schedule schedule : kAllSchedules) {
            const ScopedSchedule scoped(schedule);
            const std::size_t n_bytes = static_cast<std::size_t>(48 * k) * 2;
            GuardedBytes rows(n_bytes);
            launch_prompt_weights({.dtype = static_cast<std::int32_t>(type),
                                   .n_groups = 3,
                                   .k = k,
                                   .packed = packed.data(),
                                   .rows = rows.data()},
                                  nullptr);
            rows.expect_guards_intact();
            if (first.empty()) first.assign(rows.data(), rows.data() + n_bytes);
            ASSERT_EQ(std::memcmp(rows.data(), first.data(), n_bytes), 0) << emulation::schedule_name(schedule);
        }
        for (std::int64_t row = 0; row < 48; ++row) {
            const std::vector<float> w =
                row < 37 ? weights.decoded_row(row) : std::vector<float>(static_cast<std::size_t>(k));
            const std::vector<float> offsets = row < 37 ? decoded_offsets(weights, row) : std::vector<float>();
            for (std::size_t i = 0; i < w.size(); ++i) {
                const double most = std::fabs(double{w[i]}) + (offsets.empty() ? 0.0 : std::fabs(double{offsets[i]}));
                const double bound =
                    is_quantized(type) ? std::fabs(double{w[i]}) * 0x1p-8 * 1.01 + most * 0x1p-22 : 0.0;
                ASSERT_NEAR(value_of(first.data(), static_cast<std::size_t>(row * k) + i, operands), w[i], bound)
                    << "k " << k << " row " << row << " of it " << i;
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Types, EmulatedPrompt,
                         testing::ValuesIn(std::vector<DType>(std::begin(cuda_types()) + 1, std::end(cuda_types()))),
                         [](const auto& which) { return std::string(dtype_name(which.param)); });

TEST(EmulatedPromptTokens, AreRoundedIntoTheirRowsOfThePrefillChunk) {
    constexpr std::int64_t kCols = 160;
    constexpr std::int64_t kFirst = 300;
    constexpr std::int64_t kTokens = 21;
    for (const auto& [operands, type] :
         {std::pair{PromptOperands::Bf16, DType::BF16}, std::pair{PromptOperands::F16, DType::F16}}) {
        GuardedMatrix x(kTokens, kCols, 3);
        x.randomise(7);
        for (std::int64_t i = 0; i < kCols; ++i) x.at(2, i) = 0.0F;
        x.at(3, 5) = INFINITY;
        for (const emulation::Schedule schedule : kAllSchedules) {
            const ScopedSchedule scoped(schedule);
            GuardedBytes rows(kPromptTokens * kCols * 2);
            GuardedBytes factors(kPromptTokens * sizeof(float));
            launch_prompt_activations({.operands = operands,
                                       .n_tokens = kTokens,
                                       .first_token = kFirst,
                                       .k = kCols,
                                       .x = &x.at(0, 0),
                                       .x_stride = static_cast<std::int64_t>(x.view().row_stride_bytes / sizeof(float)),
                                       .activations = rows.data(),
                                       .factors = reinterpret_cast<float*>(factors.data())},
                                      nullptr);
            rows.expect_guards_intact();
            factors.expect_guards_intact();
            for (std::int64_t row = 0; row < kPromptTokens; ++row) {
                const std::int64_t token = row - kFirst;
                const bool there = token >= 0 && token < kTokens;
                const std::vector<float> expected =
                    there && token != 3 ? rounded_token(type, &x.at(token, 0), kCols) : std::vector<float>(kCols);
                float factor = 1.0F;
                if (operands == PromptOperands::F16)
                    std::memcpy(&factor, factors.data() + row * static_cast<std::int64_t>(sizeof(float)), 4);
                ASSERT_TRUE(std::isfinite(factor) && factor > 0.0F);
                for (std::int64_t i = 0; token != 3 && i < kCols; ++i)
                    ASSERT_EQ(value_of(rows.data(), static_cast<std::size_t>(row * kCols + i), operands) * factor,
                              expected[i])
                        << "row " << row << " of it " << i;
            }
        }
    }
}

TEST(EmulatedPromptStore, WritesItsRowsAlone) {
    GuardedMatrix product(9, 300, 4);
    product.randomise(3);
    GuardedMatrix there(9, 300, 1);
    there.randomise(4);
    GuardedMatrix factors(1, 9);
    factors.randomise(5);
    GuardedMatrix bias(1, 300);
    bias.randomise(6);
    for (const MatmulStoreForm store : {MatmulStoreForm::Overwrite, MatmulStoreForm::Add})
        for (const bool scaled : {false, true})
            for (const bool biased : {false, true}) {
                GuardedMatrix y(9, 300, 1);
                for (std::int64_t t = 0; t < 9; ++t)
                    for (std::int64_t r = 0; r < 300; ++r) y.at(t, r) = there.at(t, r);
                const auto stride = [](GuardedMatrix& of) {
                    return static_cast<std::int64_t>(of.view().row_stride_bytes / sizeof(float));
                };
                launch_prompt_store({.n_tokens = 9,
                                     .n_rows = 300,
                                     .product = &product.at(0, 0),
                                     .product_stride = stride(product),
                                     .factors = scaled ? &factors.at(0, 0) : nullptr,
                                     .bias = biased ? &bias.at(0, 0) : nullptr,
                                     .y = &y.at(0, 0),
                                     .y_stride = stride(y),
                                     .store = store},
                                    nullptr);
                y.expect_guards_intact();
                for (std::int64_t t = 0; t < 9; ++t)
                    for (std::int64_t r = 0; r < 300; ++r) {
                        float sum = product.at(t, r);
                        if (scaled) sum = sum * factors.at(0, t);
                        if (biased) sum = sum + bias.at(0, r);
                        if (store == MatmulStoreForm::Add) sum = there.at(t, r) + sum;
                        ASSERT_EQ(y.at(t, r), sum) << t << " " << r;
                    }
            }
    launch_prompt_store({}, nullptr);  // nothing
}

// Slabs are equal, whole tiles, and cover the matrix.
TEST(PromptPlan, SlabsFollowFromTheMatrixAlone) {
    for (const std::int64_t rows : {1, 16, 127, 128, 129, 1024, 2048, 2049, 4096, 11008, 14336, 28672}) {
        const std::int64_t slab = prompt_slab_rows(rows);
        EXPECT_EQ(slab % 128, 0);
        EXPECT_LE(slab, kPromptSlabRows);
        EXPECT_LE((rows + slab - 1) / slab * slab, rows + 128 * ((rows + slab - 1) / slab)) << rows;
        EXPECT_LE(prompt_scratch(64, slab).bytes, prompt_scratch_bytes(rows, 64));
    }
    EXPECT_EQ(prompt_scratch_bytes(0, 64), 0U);
}

}  // namespace
}  // namespace slipstream::cuda
