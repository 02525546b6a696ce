// Decoding of weight rows to float: the plain definition of every DType, and the reference of every kernel that
// computes on quantised weights directly.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/base/dtype.h"

namespace slipstream::cpu {

/// Decodes `n_elements` (a multiple of the type's block) from `src` to `dst`. Any byte alignment of src. Bit-equal to
/// the gguf Python package for every bit pattern that is not NaN.
void dequantize_row(DType type, const std::byte* src, float* dst, std::int64_t n_elements);

}  // namespace slipstream::cpu
