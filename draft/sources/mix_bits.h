// Spreads the bits of a key over a word: what hash tables of this folder take their slots from.
#pragma once

#include <cstdint>

namespace slipstream::draft {

/// A bijection; each bit of `key` changes about half of the result's. Two rounds of multiply and fold.
[[nodiscard]] constexpr std::uint64_t mix_bits(std::uint64_t key) {
    key = (key ^ (key >> 32)) * 0x9e3779b97f4a7c15U;
    key = (key ^ (key >> 29)) * 0xd6e8feb86659fd93U;
    return key ^ (key >> 32);
}

}  // namespace slipstream::draft
