// Random weights of every type, generated directly as the blocks of a file: fast enough to fill a disk, with mean zero
// and a given deviation. Nothing is quantised: codes are random bits, and scales follow from the deviation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/base/dtype.h"

namespace slipstream::tools {

/// A stream of random words: splitmix64 (Steele, Lea, Flood 2014), a mixing function over a counter.
class RandomWords {
public:
    explicit RandomWords(std::uint64_t seed) : state_(seed) {}
    std::uint64_t next() {
        state_ += 0x9e3779b97f4a7c15U;
        return mixed(state_);
    }
    /// Returns a word in which every bit depends on every bit of `word`.
    [[nodiscard]] static constexpr std::uint64_t mixed(std::uint64_t word) {
        word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9U;
        word = (word ^ (word >> 27)) * 0x94d049bb133111ebU;
        return word ^ (word >> 31);
    }

private:
    std::uint64_t state_;
};

/// Weights of one type and deviation: normally distributed if the type is a float, uniform codes if it is quantised.
class RandomBlocks {
public:
    RandomBlocks(DType type, double deviation);

    /// Writes `n_blocks` blocks of the type (elements, if the type has no blocks). They depend only on type, deviation
    /// and `seed`.
    void fill(std::byte* dst, std::int64_t n_blocks, std::uint64_t seed) const;

private:
    DType type_;
    float scale_;                            // mean `d` of a block; `d` varies from block to block
    std::vector<std::uint32_t> float_bits_;  // float types: equally likely values, in the bits of the type
};

}  // namespace slipstream::tools
