// Spreads the bits of a key over a word, for the hash tables of this folder.
#pragma once

#include <cstdint>

namespace slipstream::draft {

/// Returns a bijective mix of `key`, by two rounds of multiply and fold. Each bit of `key` changes about half of the
/// result's bits.
[[nodiscard]] constexpr std::uint64_t mix_bits(std::uint64_t key) {
    key = (key ^ (key >> 32)) * 0x9e3779b97f4a7c15U;
    key = (key ^ (key >> 29)) * 0xd6e8feb86659fd93U;
    return key ^ (key >> 32);
}

}  // namespace slipstream::draft
