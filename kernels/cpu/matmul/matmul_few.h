// What the inner kernels for few tokens (matmul_vnni_few.cpp, matmul_avx2_few.cpp) share.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "kernels/base/dtype.h"
#include "kernels/cpu/matmul/activations.h"
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

/// Returns the table of Kernels::multiply<type, T> for all quantised types and T = 1 to kTokens tokens.
template <class Kernels, int kTokens>
constexpr FewTokenKernelsOfTypes few_token_kernels() {
    FewTokenKernelsOfTypes all{};
    [&]<std::size_t... types>(std::index_sequence<types...>) {
        const auto fill = [&]<std::size_t type, std::size_t... t>(std::index_sequence<t...>) {
            ((all[type][t] = Kernels::template multiply<static_cast<DType>(type), static_cast<int>(t) + 1>), ...);
        };
        (fill.template operator()<types + kFloatTypes>(std::make_index_sequence<kTokens>()), ...);
    }
    (std::make_index_sequence<kDTypeCount - kFloatTypes>());
    return all;
}

/// These return the kernels for few tokens: of the variants avx2 and avx512, and of the variants with VNNI.
[[nodiscard]] const FewTokenKernelsOfTypes& multiply_few_avx2();
[[nodiscard]] const FewTokenKernelsOfTypes& multiply_few_vnni();

}  // namespace slipstream::cpu
