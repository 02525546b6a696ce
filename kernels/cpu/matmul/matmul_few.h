// What the inner kernels for few tokens (matmul_vnni_few.h, matmul_avx2_few.h) share.
#pragma once

#include <array>

#include "kernels/base/dtype.h"
#include "kernels/cpu/matmul/matmul_interleaved.h"

namespace slipstream::cpu {

/// Kernels of one weight type for calls of T = 1 to kMostFewTokens tokens. Null if a kernel variant has none for T.
using FewTokenKernels = std::array<InterleavedForm::CodeFn, kMostFewTokens>;  // [T - 1]
using FewTokenKernelsOfTypes = std::array<FewTokenKernels, kDTypeCount>;      // [dtype][T - 1]

/// Whether the kernels for few tokens unroll the loop over the sub-blocks (32 elements each) of a step. For IQ4_XS and
/// Q2_K they do not: unrolled, each of these types would take the compiler as long as all types with blocks of 32
/// together.
constexpr bool is_unrolled(DType type) {
    return type != DType::IQ4_XS && type != DType::Q2_K;
}

/// These set the kernels for few tokens of the variants avx2 and avx512: of types with blocks of 32, and with blocks of
/// 256.
void set_few_avx2_blocks(FewTokenKernelsOfTypes& all);
void set_few_avx2_k(FewTokenKernelsOfTypes& all);

}  // namespace slipstream::cpu
