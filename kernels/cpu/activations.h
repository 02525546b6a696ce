// Activations as the kernels over packed weights read them: tiles of T tokens side by side, so that a kernel's
// broadcasts walk forward through memory. Plain loops, compiled by each form for itself.
//
// For float weights: x[k][T] floats. For quantised weights, each block of 32 is rounded to 8 bits, and takes 48 * T
// bytes:
//     | q[8][T][4] | start[2][T] | d[T] | sum[T] |      x[32 b + 4 g + j] ~ d * q[g][t][j]
//   d      float: largest magnitude of the block / 127; 0 where that is below 2^-126
//   q      int8: x / d to the nearest, ties to even, from -127 to 127
//   start  int32: -code_offset * (sum of the q of each half), both halves in start[0] where scales span 32 weights:
//          what the integer accumulators start from, since weights are multiplied as unsigned codes
//   sum    float: d * (sum of q), for types with an offset
// A block with an infinity or NaN gets such a d, and so do the token's outputs; no other token sees it.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/unpack_codes.h"

namespace slipstream::cpu {

inline constexpr std::int64_t kBlockBytesPerToken = 48;

/// Offsets in a block of T tokens, in bytes.
template <int T>
struct BlockOffsets {
    static constexpr int kStart0 = 32 * T;
    static constexpr int kStart1 = 36 * T;
    static constexpr int kD = 40 * T;
    static constexpr int kSum = 44 * T;
    static constexpr int kBytes = 48 * T;
};

/// One token of a tile of `n_tile` tokens: x[k] to its lane `t` of `tile`; k a multiple of 32.
SLIPSTREAM_PORTABLE_INLINE void quantize_token(const float* x, std::int64_t k, int t, int n_tile,
                                               const CodeTraits& traits, std::byte* tile) {
    for (std::int64_t block = 0; block < k / 32; ++block, x += 32, tile += kBlockBytesPerToken * n_tile) {
        std::uint32_t largest = 0;  // magnitudes compare as integers, NaN above all
        for (int i = 0; i < 32; ++i) {
            const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(x[i]) & 0x7fffffffU;
            largest = magnitude > largest ? magnitude : largest;
        }
        float d = std::bit_cast<float>(largest) / 127.0F;
        if (d < 0x1p-126F) d = 0.0F;  // its inverse would overflow
        const float inverse = d == 0.0F ? 0.0F : 1.0F / d;
        std::int32_t q[32];
        std::int8_t bytes[32];
        std::int32_t sums[2] = {0, 0};
        for (int i = 0; i < 32; ++i) {  // adding 1.5 * 2^23 rounds to an integer in the low bits
            const std::uint32_t bits = std::bit_cast<std::uint32_t>(x[i] * inverse + 0x1.8p23F);
            q[i] = static_cast<std::int8_t>(bits);
            bytes[i] = static_cast<std::int8_t>(bits);
        }
        for (int i = 0; i < 16; ++i) sums[0] += q[i];
        for (int i = 16; i < 32; ++i) sums[1] += q[i];
        auto* words = reinterpret_cast<std::uint32_t*>(tile) + t;
        for (int g = 0; g < 8; ++g) std::memcpy(words + g * n_tile, bytes + 4 * g, 4);
        const int minus_offset = -traits.code_offset;
        const bool halves = traits.scale_run == 16;
        words[8 * n_tile] = static_cast<std::uint32_t>(minus_offset * (halves ? sums[0] : sums[0] + sums[1]));
        words[9 * n_tile] = static_cast<std::uint32_t>(halves ? minus_offset * sums[1] : 0);
        const auto sum = static_cast<float>(sums[0] + sums[1]);
        words[10 * n_tile] = std::bit_cast<std::uint32_t>(d);
        words[11 * n_tile] = std::bit_cast<std::uint32_t>(d * sum);
    }
}

}  // namespace slipstream::cpu
