// Rounding of numbers to 4 bits with a scale and a minimum, for view pages (kernels/view_pages.h).
//
// Numbers are limited to the range of F16, [-65504, 65504], first; NaN counts as 65504. minimum = the smallest, rounded
// down to F16; scale = (largest - minimum) / 15, rounded up to F16; code = (x - minimum) * (1 / scale) rounded to the
// nearest integer, ties to even. So scale * code + minimum is finite and, but for the rounding of floats, within half a
// scale of x. If all numbers are one that F16 has, scale and codes are 0. All operations are single float operations,
// so every kernel variant of a backend gives the same bits.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/base/float16.h"

namespace slipstream {

inline constexpr float kPageMost = 65504.0F;  // largest magnitude; that of F16
inline constexpr float kPageLevels = 15.0F;   // codes are 0 to 15

/// Returns `value` within [-kPageMost, kPageMost].
[[nodiscard]] constexpr float page_within(float value) {
    const float below = value < kPageMost ? value : kPageMost;  // kPageMost for NaN
    return below > -kPageMost ? below : -kPageMost;
}
/// Returns the minimum of numbers of which `least` is the smallest page_within(x): `least` rounded down.
[[nodiscard]] constexpr Half page_minimum(float least) {
    const float value = least + 0.0F;  // -0 becomes 0
    const Half near = to_half(value);
    if (to_float(near) <= value) return near;
    // The next number below. Below 0 is the smallest subnormal with a sign.
    if ((near.bits & 0x7fffU) == 0) return {0x8001};
    return {static_cast<std::uint16_t>((near.bits & 0x8000U) != 0 ? near.bits + 1 : near.bits - 1)};
}
/// Returns the scale of numbers of which `largest` is the largest page_within(x).
[[nodiscard]] constexpr Half page_scale(float largest, Half minimum) {
    const float value = (largest - to_float(minimum)) / kPageLevels + 0.0F;  // not below 0, nor -0
    const Half near = to_half(value);
    return to_float(near) >= value ? near : Half{static_cast<std::uint16_t>(near.bits + 1)};
}
/// Returns the factor of page_code(): 1 / scale, or 0 if the scale is 0.
[[nodiscard]] constexpr float page_factor(Half scale) {
    return scale.bits == 0 ? 0.0F : 1.0F / to_float(scale);
}
/// Returns the code, 0 to 15, of page_within(x).
[[nodiscard]] constexpr std::uint32_t page_code(float within, Half minimum, float factor) {
    // Adding 1.5 * 2^23 leaves the rounded integer in the low bits of the sum.
    const float shifted = (within - to_float(minimum)) * factor + 0x1.8p23F;
    return std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(0x1.8p23F);
}

}  // namespace slipstream
