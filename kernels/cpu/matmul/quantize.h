// Rounds float rows to Q8_0. Only for weights that may be rounded: those of a draft model, whose draft tokens are
// verified.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace slipstream::cpu {

/// Rounds `values` to Q8_0 blocks of 32 at `dst`, 34 bytes each: a half-precision scale, which is the largest magnitude
/// of the block / 127, and 32 signed bytes, rounded to nearest, halves away from zero. The number of values must be a
/// multiple of 32 (CHECKed). dequantize_row() reads the blocks. The error is at most half a scale, and a little more
/// for the rounding of the scale. Infinite values become the largest that the scale allows; NaN becomes 0.
void quantize_row_q8_0(std::span<const float> values, std::byte* dst);

}  // namespace slipstream::cpu
