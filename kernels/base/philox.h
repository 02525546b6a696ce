// Philox 4x32-10: the counter-based generator of Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2,
// 3" (SC 2011), section 3 and table 2. A pure function of (key, counter) without state, so any draw can be made
// anywhere, in any order. One source for host and device code, so it uses only <cstdint> and plain constexpr functions.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define SLIPSTREAM_HOST_DEVICE __host__ __device__
#else
#define SLIPSTREAM_HOST_DEVICE
#endif

namespace slipstream {

/// Four 32-bit words: the counter as input, or the random words as output.
struct PhiloxBlock {
    std::uint32_t word[4];
};

struct PhiloxKey {
    std::uint32_t low;
    std::uint32_t high;
};

/// Returns the four random words of (counter, key), after ten rounds. They equal the published known answers.
[[nodiscard]] SLIPSTREAM_HOST_DEVICE constexpr PhiloxBlock philox4x32_10(PhiloxBlock counter, PhiloxKey key) {
    constexpr std::uint64_t multiplier_0 = 0xD2511F53U;
    constexpr std::uint64_t multiplier_1 = 0xCD9E8D57U;
    constexpr std::uint32_t weyl_0 = 0x9E3779B9U;  // golden ratio - 1, times 2^32
    constexpr std::uint32_t weyl_1 = 0xBB67AE85U;  // sqrt(3) - 1, times 2^32
    for (int round = 0; round < 10; ++round) {
        const std::uint64_t product_0 = multiplier_0 * counter.word[0];
        const std::uint64_t product_1 = multiplier_1 * counter.word[2];
        counter = {{static_cast<std::uint32_t>(product_1 >> 32) ^ counter.word[1] ^ key.low,
                    static_cast<std::uint32_t>(product_1),
                    static_cast<std::uint32_t>(product_0 >> 32) ^ counter.word[3] ^ key.high,
                    static_cast<std::uint32_t>(product_0)}};
        key = {key.low + weyl_0, key.high + weyl_1};
    }
    return counter;
}

}  // namespace slipstream
