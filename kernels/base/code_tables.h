// The types whose 4-bit codes are places in a table of 16 values. CPU and CUDA kernels read the same tables.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "kernels/base/dtype.h"

namespace slipstream {

using CodeValues = std::array<std::int8_t, 16>;  // [code]

/// The value that each 4-bit code of IQ4_NL and IQ4_XS stands for, before the scale is applied (ggml: kvalues_iq4nl).
inline constexpr CodeValues kIq4Values{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
/// The value that each 4-bit code of MXFP4 stands for: the float E2M1 times 2, since 0.5 and 1.5 are no integers. So
/// the scale is half of what its exponent says (mxfp4_scale_bits()).
inline constexpr CodeValues kMxfp4Values{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/// Whether codes of `type` are places in a table; code_values() is for these types only.
constexpr bool has_code_table(DType type) {
    return type == DType::IQ4_NL || type == DType::IQ4_XS || type == DType::MXFP4;
}
constexpr const CodeValues& code_values(DType type) {
    return type == DType::MXFP4 ? kMxfp4Values : kIq4Values;
}

/// Returns the bits of the float 2^(exponent - 128), the scale of an MXFP4 block. For exponents 0 and 1 the float is
/// subnormal. Exponent 255 gives 2^127: unlike in the OCP format, no exponent means NaN.
constexpr std::uint32_t mxfp4_scale_bits(std::uint32_t exponent) {
    return exponent < 2 ? 0x00200000U << exponent : (exponent - 1) << 23;
}

}  // namespace slipstream
