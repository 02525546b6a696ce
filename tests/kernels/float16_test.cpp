// The 16-bit conversions against definitions written another way.
#include "kernels/base/float16.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace slipstream {
namespace {

double half_value(std::uint16_t bits) {
    const int exponent = (bits >> 10) & 31;
    const int mantissa = bits & 1023;
    const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
    if (exponent == 0) return sign * std::ldexp(mantissa, -24);
    return sign * std::ldexp(1024 + mantissa, exponent - 25);
}

TEST(Float16, EveryFiniteHalfWidensExactlyAndComesBack) {
    for (int bits = 0; bits < 65536; ++bits) {
        const Half half{static_cast<std::uint16_t>(bits)};
        if (((bits >> 10) & 31) == 31) continue;
        EXPECT_EQ(to_float(half), half_value(half.bits)) << bits;
        EXPECT_EQ(to_half(to_float(half)).bits, half.bits) << bits;
    }
}

TEST(Float16, HalfRoundsToNearestEvenBetweenNeighbours) {
    for (int bits = 0; bits < 0x7bff; ++bits) {
        const double low = half_value(static_cast<std::uint16_t>(bits));
        const double high = half_value(static_cast<std::uint16_t>(bits + 1));
        const auto middle = static_cast<float>((low + high) / 2);  // exact: one more bit
        EXPECT_EQ(to_half(middle).bits, bits % 2 == 0 ? bits : bits + 1) << bits;
        EXPECT_EQ(to_half(std::nextafterf(middle, 0.0F)).bits, bits) << bits;
        EXPECT_EQ(to_half(std::nextafterf(middle, 1e9F)).bits, bits + 1) << bits;
    }
    EXPECT_EQ(to_half(65519.996F).bits, 0x7bff);
    EXPECT_EQ(to_half(65520.0F).bits, 0x7c00);
    EXPECT_EQ(to_half(-std::numeric_limits<float>::infinity()).bits, 0xfc00);
}

TEST(Float16, NanStaysNan) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    EXPECT_TRUE(std::isnan(to_float(to_half(nan))));
    EXPECT_TRUE(std::isnan(to_float(to_bfloat16(nan))));
}

TEST(Float16, BFloat16RoundsToNearestEven) {
    EXPECT_EQ(to_bfloat16(1.0F).bits, 0x3f80);
    EXPECT_EQ(to_bfloat16(std::bit_cast<float>(0x3f808000U)).bits, 0x3f80);
    EXPECT_EQ(to_bfloat16(std::bit_cast<float>(0x3f818000U)).bits, 0x3f82);
    EXPECT_EQ(to_bfloat16(std::bit_cast<float>(0x3f808001U)).bits, 0x3f81);
    EXPECT_EQ(to_bfloat16(std::numeric_limits<float>::max()).bits, 0x7f80);
}

}  // namespace
}  // namespace slipstream
