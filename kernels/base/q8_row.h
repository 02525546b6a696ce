// Rounding of a block of up to 32 numbers to 8 bits with one scale, for KV rows of --kv-type q8.
//
// With most = the largest |x| of the block: scale = most / 127, rounded up to a bfloat16 number; code = x * (1 / scale)
// rounded to the nearest integer, ties to even; x is near code * scale, a product that is exact in float. All
// operations are single float operations, so every kernel variant gives the same bits. Numbers are limited to
// [-kQ8Most, kQ8Most] before; NaN counts as kQ8Most. A block without a number of kQ8Least or more has scale 0 and codes
// 0.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/base/float16.h"

namespace slipstream {

inline constexpr std::int64_t kQ8Block = 32;  // elements that share a scale; the last block of a row may have fewer
/// Largest magnitude: numbers are limited to it before they are rounded, so that code * scale is finite.
inline constexpr float kQ8Most = 0x1p127F;
/// A block whose numbers all have a smaller magnitude gets scale 0, since 1 / scale would not be finite.
inline constexpr float kQ8Least = 0x1p-119F;

/// Returns `value` within [-kQ8Most, kQ8Most].
[[nodiscard]] constexpr float q8_within(float value) {
    const float below = value < kQ8Most ? value : kQ8Most;  // kQ8Most for NaN
    return below > -kQ8Most ? below : -kQ8Most;
}
/// Returns the scale of a block whose largest |q8_within(x)| is `most`: most / 127 rounded up to bfloat16, or 0 if
/// `most` is below kQ8Least.
[[nodiscard]] constexpr BFloat16 q8_scale(float most) {
    if (most < kQ8Least) return {};
    return {static_cast<std::uint16_t>((std::bit_cast<std::uint32_t>(most / 127.0F) + 0xffffU) >> 16)};
}
/// Returns the factor by which the numbers of a block are multiplied before they are rounded: 1 / scale, or 0 if the
/// scale is 0.
[[nodiscard]] constexpr float q8_factor(BFloat16 scale) {
    return scale.bits == 0 ? 0.0F : 1.0F / to_float(scale);
}
/// Returns value * factor rounded to the nearest integer, ties to even: a code from -127 to 127. `value` must be a
/// result of q8_within(), `factor` that of q8_factor() for the scale of its block.
[[nodiscard]] constexpr std::int8_t q8_code(float value, float factor) {
    // Adding 1.5 * 2^23 leaves the rounded integer in the low bits of the sum.
    const float shifted = value * factor + 0x1.8p23F;
    return static_cast<std::int8_t>(std::bit_cast<std::int32_t>(shifted) - std::bit_cast<std::int32_t>(0x1.8p23F));
}

}  // namespace slipstream
