// Products that the vector variants compute together (matmul_interleaved.cpp), and the check of their rows, which the
// scalar variant shares.
#pragma once

#include <bit>
#include <cstdint>
#include <span>

#include "kernels/cpu/matmul/matmul_interleaved.h"

namespace slipstream::cpu {

/// Whether `n` floats, each `stride` floats after the last, are finite.
[[nodiscard]] inline bool all_finite(const float* x, std::int64_t n, std::int64_t stride) {
    constexpr std::uint32_t kExponent = 0x7f800000;
    bool finite = true;
    for (std::int64_t i = 0; i < n; ++i)
        finite &= (std::bit_cast<std::uint32_t>(x[i * stride]) & kExponent) != kExponent;
    return finite;
}

/// Computes grouped_matmul() (kernels/experts.h) with the kernels of `form`.
void grouped_matmul_interleaved(ExecRef exec, std::span<const MatmulArgs> products, const InterleavedForm& form);

}  // namespace slipstream::cpu
