// Scalar loads of fields that several block formats share: unaligned integers, half-precision and 8-bit scales, and the
// 6-bit scales that the K formats pack into 12 bytes. For the plain decoding (dequantize.cpp) and the vector decoders.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/base/float16.h"

namespace slipstream::cpu {

/// Returns the trivially copyable value at `src`, which may be any byte address.
template <typename T>
[[nodiscard]] inline T load_unaligned(const std::byte* src) {
    T value;
    std::memcpy(&value, src, sizeof(value));
    return value;
}

/// Returns the little-endian binary16 number at `src`, any byte address, as float.
[[nodiscard]] inline float load_half(const std::byte* src) {
    return to_float(load_unaligned<Half>(src));
}

/// Eight 6-bit scales and eight 6-bit minimums of a Q4_K or Q5_K block. Byte i of each word, counted from the low end,
/// belongs to weights [32 i, 32 i + 32).
struct ScalesAndMins {
    std::uint64_t scales = 0;
    std::uint64_t mins = 0;
};

/// Unpacks the 12 bytes at `packed` of a Q4_K or Q5_K block. High bit first; S0 is scale 0, M0 minimum 0; of scales and
/// minimums 4 to 7 capitals are the lower 4 bits and small letters the upper 2:
///   bytes 0-3   s4 s4 S0 x6 | s5 s5 S1 x6 | ...   scales 0-3 whole, upper 2 bits of scales 4-7
///   bytes 4-7   m4 m4 M0 x6 | m5 m5 M1 x6 | ...   minimums 0-3 whole, upper 2 bits of minimums 4-7
///   bytes 8-11  M4 x4 S4 x4 | M5 x4 S5 x4 | ...   lower 4 bits of minimums and scales 4-7
[[nodiscard]] inline ScalesAndMins unpack_scales_and_mins(const std::byte* packed) {
    const auto a = load_unaligned<std::uint32_t>(packed);
    const auto b = load_unaligned<std::uint32_t>(packed + 4);
    const auto c = load_unaligned<std::uint32_t>(packed + 8);
    const std::uint32_t scales_high = (c & 0x0f0f0f0fU) | ((a >> 2) & 0x30303030U);
    const std::uint32_t mins_high = ((c >> 4) & 0x0f0f0f0fU) | ((b >> 2) & 0x30303030U);
    return {(std::uint64_t{scales_high} << 32) | (a & 0x3f3f3f3fU),
            (std::uint64_t{mins_high} << 32) | (b & 0x3f3f3f3fU)};
}

/// Unpacks the sixteen 6-bit scales of a Q3_K block from the 12 bytes at `packed`. Scale i belongs to weights [16 i, 16
/// i + 16); out[i] is the scale + 32.
///   bytes 0-7   low nibble: lower 4 bits of scale i; high nibble: lower 4 bits of scale i + 8
///   bytes 8-11  byte j, bits 2p and 2p+1: upper 2 bits of scale 4p + j
inline void unpack_q3_scales(const std::byte* packed, std::uint8_t (&out)[16]) {
    const auto a = load_unaligned<std::uint32_t>(packed);
    const auto b = load_unaligned<std::uint32_t>(packed + 4);
    const auto c = load_unaligned<std::uint32_t>(packed + 8);
    const std::uint32_t words[4] = {
        (a & 0x0f0f0f0fU) | ((c & 0x03030303U) << 4),
        (b & 0x0f0f0f0fU) | (((c >> 2) & 0x03030303U) << 4),
        ((a >> 4) & 0x0f0f0f0fU) | (((c >> 4) & 0x03030303U) << 4),
        ((b >> 4) & 0x0f0f0f0fU) | (((c >> 6) & 0x03030303U) << 4),
    };
    std::memcpy(out, words, sizeof(words));
}

}  // namespace slipstream::cpu
