// Activations in the layout that the kernels over packed weights read: tiles of T tokens side by side, so that the
// broadcasts of a kernel read memory in ascending order. Plain loops, which each kernel variant compiles for itself.
//
// For float weights a tile is x[k][T] floats. For quantised weights, each run of 32 activations of a token (K formats:
// of 256) is rounded to 8 bits, and each block of 32 k of a tile takes 48 * T bytes:
// clang-format off
//     | q[8][T][4] | start[2][T] | d[T] | sum[T] |      x[32 b + 4 g + j] ~ d * q[g][t][j]
//   d      float: largest magnitude of the run / 127; 0 if that is below 2^-126
//   q      int8: x / d to the nearest, ties to even, from -127 to 127
//   start  int32: -code_offset * (sum of q), from which the integer accumulators start, since weights are multiplied as
//          unsigned codes. One value for each half of the block if scales span 16 weights; if they span 32, start[0]
//          holds the value of the whole block and start[1] is 0
//   sum    used by types with an offset. Runs of 32: float, d * (sum of q). Runs of 256: a pair of int16. If scales span
//          32 weights, every second block has it, the sums of q of the block before it (low half) and of this block; 0
//          in the other blocks. If they span 16, every block has it: the sums of its halves
// clang-format on
// If a run contains an infinity or NaN, so does its d, and the outputs of its token; no other token is affected.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/matmul/unpack_codes.h"

namespace slipstream::cpu {

/// Bytes of 32 quantised activations of one token: 32 of codes, 8 of start values of the integer sums, 4 of the scale,
/// 4 of sums of codes (layout: file head). It must equal BlockOffsets<1>::kBytes.
inline constexpr std::int64_t kBlockBytesPerToken = 48;

/// Layout of 32 quantised activations of each of T tokens, in bytes: offsets of the start values of the integer sums
/// (two per token), of the scales and of the sums of codes, which follow 32 * T bytes of codes; then the size.
template <int T>
struct BlockOffsets {
    static constexpr int kStart0 = 32 * T;
    static constexpr int kStart1 = 36 * T;
    static constexpr int kD = 40 * T;
    static constexpr int kSum = 44 * T;
    static constexpr int kBytes = 48 * T;
};

/// Returns the scale d of a run of activations (the 32 or 256 that share it): the largest magnitude of the run / 127,
/// or 0 if 1 / d would overflow. `largest`: the float bits of that magnitude.
SLIPSTREAM_PORTABLE_INLINE float activation_step(std::uint32_t largest) {
    const float d = std::bit_cast<float>(largest) / 127.0F;
    return d < 0x1p-126F ? 0.0F : d;  // below this, 1 / d would overflow
}

/// Writes what belongs to 32 quantised activations of one token beside their codes: start values, scale `d` and sums,
/// to the block of a tile of `n_tile` tokens. `words`: the token's first 32-bit word of codes in the block; its next
/// word is n_tile words further on. `halves`: sums of its codes 0 to 15 and 16 to 31. Only for runs of 256:
/// `sum_before`, the sum of the codes of the preceding block, and `second`, whether this block has an odd index in its
/// run.
SLIPSTREAM_PORTABLE_INLINE void put_block_sums(const CodeTraits& traits, const std::int32_t (&halves)[2],
                                               std::int32_t sum_before, bool second, float d, int n_tile,
                                               std::uint32_t* words) {
    const int minus_offset = -traits.code_offset;
    const std::int32_t sum = halves[0] + halves[1];
    const bool apart = traits.scale_run == 16;
    words[8 * n_tile] = static_cast<std::uint32_t>(minus_offset * (apart ? halves[0] : sum));
    words[9 * n_tile] = static_cast<std::uint32_t>(apart ? minus_offset * halves[1] : 0);
    words[10 * n_tile] = std::bit_cast<std::uint32_t>(d);
    const auto pair = [](std::int32_t low, std::int32_t high) {
        return (static_cast<std::uint32_t>(low) & 0xffffU) | static_cast<std::uint32_t>(high) << 16;
    };
    if (traits.activation_run == 32) {
        words[11 * n_tile] = std::bit_cast<std::uint32_t>(d * static_cast<float>(sum));
    } else if (apart) {
        words[11 * n_tile] = pair(halves[0], halves[1]);
    } else {
        words[11 * n_tile] = second ? pair(sum_before, sum) : 0U;
    }
}

/// Rounds the activations x[k] of one token to 8 bits and writes them to lane `t` of a tile of `n_tile` tokens (k / 32
/// blocks at `tile`). k must be a multiple of the type's activation run (the 32 or 256 activations that share a scale).
SLIPSTREAM_PORTABLE_INLINE void quantize_token(const float* x, std::int64_t k, int t, int n_tile,
                                               const CodeTraits& traits, std::byte* tile) {
    for (const float* const end = x + k; x < end;) {
        std::uint32_t largest = 0;  // float bits; as integers, magnitudes have the order of their values, NaN above all
        for (int i = 0; i < traits.activation_run; ++i) {
            const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(x[i]) & 0x7fffffffU;
            largest = magnitude > largest ? magnitude : largest;
        }
        const float d = activation_step(largest);
        const float inverse = d == 0.0F ? 0.0F : 1.0F / d;
        std::int32_t sum_before = 0;
        for (int block = 0; block < traits.activation_run / 32;
             ++block, x += 32, tile += kBlockBytesPerToken * n_tile) {
            std::int32_t q[32];
            std::int8_t bytes[32];
            std::int32_t halves[2] = {0, 0};
            for (int i = 0; i < 32; ++i) {  // adding 1.5 * 2^23 rounds to the nearest integer, in the low bits
                const std::uint32_t bits = std::bit_cast<std::uint32_t>(x[i] * inverse + 0x1.8p23F);
                q[i] = static_cast<std::int8_t>(bits);
                bytes[i] = static_cast<std::int8_t>(bits);
            }
            for (int i = 0; i < 16; ++i) halves[0] += q[i];
            for (int i = 16; i < 32; ++i) halves[1] += q[i];
            auto* words = reinterpret_cast<std::uint32_t*>(tile) + t;
            for (int g = 0; g < 8; ++g) std::memcpy(words + g * n_tile, bytes + 4 * g, 4);
            put_block_sums(traits, halves, sum_before, block % 2 != 0, d, n_tile, words);
            sum_before = halves[0] + halves[1];
        }
    }
}

}  // namespace slipstream::cpu
