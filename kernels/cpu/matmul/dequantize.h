// Decodes weight rows to float: the plain definition of every DType, and the reference of every kernel that computes on
// quantised weights directly.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/base/dtype.h"

namespace slipstream::cpu {

/// Decodes `n_elements` elements of `src` to `dst`, [n_elements]. `n_elements` must be a multiple of the type's
/// quantisation block (CHECKed); `src` may start at any byte. Gives the same bits as the gguf Python package for every
/// bit pattern that is not NaN.
void dequantize_row(DType type, const std::byte* src, float* dst, std::int64_t n_elements);

}  // namespace slipstream::cpu
