// Products that the vector variants compute together (matmul_interleaved.cpp).
#pragma once

#include <span>

#include "kernels/cpu/matmul/matmul_interleaved.h"

namespace slipstream::cpu {

/// Computes grouped_matmul() (kernels/experts.h) with the kernels of `form`.
void grouped_matmul_interleaved(ExecRef exec, std::span<const MatmulArgs> products, const InterleavedForm& form);

}  // namespace slipstream::cpu
