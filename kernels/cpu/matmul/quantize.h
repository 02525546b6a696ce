// Rounding of float rows to Q8_0, for weights that may be rounded: those of a draft model, whose guesses are checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace slipstream::cpu {

/// Rounds `values`, a multiple of 32 of them, to Q8_0 blocks at `dst`, 34 bytes each: a half-precision scale, the
/// greatest magnitude of the block / 127, and 32 signed bytes, to nearest, halves away from zero. As dequantize_row()
/// reads them; an error of half a scale at most, and a little for the scale's own rounding. Infinite values become the
/// largest the scale can say; NaN becomes 0.
void quantize_row_q8_0(std::span<const float> values, std::byte* dst);

}  // namespace slipstream::cpu
