// Products that the vector variants compute together (matmul_interleaved.cpp), and the check of their rows, which the
// scalar variant shares.
#pragma once

#include <bit>
#include <cstdint>
#include <span>

#include "kernels/cpu/matmul/matmul_interleaved.h"

namespace slipstream::cpu {

/// Returns 1 if `x` is infinite or NaN, else 0.
[[nodiscard]] inline std::uint32_t is_damaged(float x) {
    constexpr std::uint32_t kExponent = 0x7f800000;
    return (std::bit_cast<std::uint32_t>(x) & kExponent) == kExponent ? 1U : 0U;
}
/// Whether x[n] are finite.
[[nodiscard]] inline bool all_finite(const float* x, std::int64_t n) {
    std::uint32_t damaged = 0;
    for (std::int64_t i = 0; i < n; ++i) damaged |= is_damaged(x[i]);
    return damaged == 0;
}

/// Computes grouped_matmul() (kernels/experts.h) with the kernels of `form`.
void grouped_matmul_interleaved(ExecRef exec, std::span<const MatmulArgs> products, const InterleavedForm& form);

}  // namespace slipstream::cpu
