#include "kernels/cpu/matmul/quantize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/cpu/matmul/dequantize.h"

namespace slipstream::cpu {
namespace {

std::vector<float> there_and_back(const std::vector<float>& values) {
    std::vector<std::byte> blocks(values.size() / 32 * 34);
    quantize_row_q8_0(values, blocks.data());
    std::vector<float> back(values.size(), std::numeric_limits<float>::quiet_NaN());
    dequantize_row(DType::Q8_0, blocks.data(), back.data(), static_cast<std::int64_t>(values.size()));
    return back;
}

TEST(QuantizeQ8_0, ErrsByHalfAScaleAtMost) {
    std::mt19937 random(5);
    std::normal_distribution<float> normal;
    std::vector<float> values(320);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = normal(random) * (i % 64 == 7 ? 30.0F : 0.02F);
    const std::vector<float> back = there_and_back(values);
    for (std::size_t begin = 0; begin < values.size(); begin += 32) {
        float greatest = 0.0F;
        for (std::size_t i = begin; i < begin + 32; ++i) greatest = std::max(greatest, std::abs(values[i]));
        // Half a step; the scale itself is off by 2^-11 of it, times 127 steps.
        const float bound = greatest / 127.0F * (0.5F + 127.0F * 0x1p-11F) * 1.001F;
        for (std::size_t i = begin; i < begin + 32; ++i) EXPECT_NEAR(back[i], values[i], bound) << i;
    }
}

TEST(QuantizeQ8_0, KeepsWhatIsExact) {
    std::vector<float> values(64, 0.0F);
    for (std::size_t i = 0; i < 32; ++i) values[i] = static_cast<float>(i) * 0.25F - 4.0F;
    values[31] = 31.75F;  // 127 quarters: the scale is a quarter
    EXPECT_EQ(there_and_back(values), values) << "and zeros stay zeros";
}

TEST(QuantizeQ8_0, StaysFiniteWhateverComes) {
    std::vector<float> values(32, 1.0F);
    values[3] = std::numeric_limits<float>::infinity();
    values[4] = -std::numeric_limits<float>::infinity();
    values[5] = std::numeric_limits<float>::quiet_NaN();
    for (const float value : there_and_back(values)) EXPECT_TRUE(std::isfinite(value));
}

}  // namespace
}  // namespace slipstream::cpu
