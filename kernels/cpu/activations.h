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
        std::uint32_t q[32];
        for (int i = 0; i < 32; ++i)  // adding 1.5 * 2^23 rounds to an integer in the low bits
            q[i] = std::bit_cast<std::uint32_t>(x[i] * inverse + 0x1.8p23F) - std::bit_cast<std::uint32_t>(0x1.8p23F);
        std::uint32_t sums[2] = {0, 0};
        for (int i = 0; i < 16; ++i) {
            sums[0] += q[i];
            sums[1] += q[i + 16];
        }
        auto* words = reinterpret_cast<std::uint32_t*>(tile) + t;
        for (int g = 0; g < 8; ++g)
            words[g * n_tile] = (q[4 * g] & 0xffU) | (q[4 * g + 1] & 0xffU) << 8 | (q[4 * g + 2] & 0xffU) << 16 |
                                (q[4 * g + 3] & 0xffU) << 24;
        const auto minus_offset = static_cast<std::uint32_t>(-traits.code_offset);
        const bool halves = traits.scale_run == 16;
        words[8 * n_tile] = minus_offset * (halves ? sums[0] : sums[0] + sums[1]);
        words[9 * n_tile] = halves ? minus_offset * sums[1] : 0;
        const float sum = static_cast<float>(static_cast<std::int32_t>(sums[0] + sums[1]));
        words[10 * n_tile] = std::bit_cast<std::uint32_t>(d);
        words[11 * n_tile] = std::bit_cast<std::uint32_t>(d * sum);
    }
}

}  // namespace slipstream::cpu
