// The two 16-bit float types and their conversions to and from float. They are for storage only: arithmetic is done in
// float.
#pragma once

#include <bit>
#include <cstdint>

namespace slipstream {

/// The bits of an IEEE 754 binary16 number.
struct Half {
    std::uint16_t bits = 0;
};

/// The bits of a bfloat16 number: the upper half of a float.
struct BFloat16 {
    std::uint16_t bits = 0;
};

/// Converts to float; exact for every value.
[[nodiscard]] constexpr float to_float(BFloat16 value) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}

/// Converts to float; exact for every value, including subnormals, infinities and the bits of a NaN.
[[nodiscard]] constexpr float to_float(Half value) {
    const std::uint32_t sign = static_cast<std::uint32_t>(value.bits & 0x8000U) << 16;
    const std::uint32_t exponent = (value.bits >> 10) & 0x1fU;
    const std::uint32_t mantissa = value.bits & 0x3ffU;
    if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000U | (mantissa << 13));
    if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
    // Zero or subnormal: the value is mantissa * 2^-24, which is exact in float.
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
    return sign != 0 ? -magnitude : magnitude;
}

/// Rounds to nearest, ties to even. Overflow becomes infinity; NaN becomes a quiet NaN.
[[nodiscard]] constexpr BFloat16 to_bfloat16(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    if ((bits & 0x7fffffffU) > 0x7f800000U) return {static_cast<std::uint16_t>((bits >> 16) | 0x40U)};
    return {static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16)};
}

/// Rounds to nearest, ties to even. Overflow becomes infinity; NaN becomes a quiet NaN. The bits are those of the x86
/// instruction vcvtps2ph.
[[nodiscard]] constexpr Half to_half(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000U);
    const std::uint32_t magnitude = bits & 0x7fffffffU;
    if (magnitude > 0x7f800000U) return {static_cast<std::uint16_t>(sign | 0x7e00U | ((magnitude >> 13) & 0x3ffU))};
    if (magnitude >= 0x477ff000U) return {static_cast<std::uint16_t>(sign | 0x7c00U)};  // from 65520 on: infinity
    if (magnitude < 0x38800000U) {  // below 2^-14: subnormal; the float addition does the rounding
        const float shifted = std::bit_cast<float>(magnitude) + 0.5F;  // ulp of 0.5: 2^-24, that of a subnormal Half
        return {static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000U))};
    }
    const std::uint32_t rounded = magnitude + 0xfffU + ((magnitude >> 13) & 1U) - 0x38000000U;
    return {static_cast<std::uint16_t>(sign | (rounded >> 13))};
}

}  // namespace slipstream
