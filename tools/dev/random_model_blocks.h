// Random weights of every type, straight as the blocks of a file: fast enough to fill a disk, zero in the mean, and of
// a deviation that is asked for. Not made by quantising anything: codes are random bits, scales follow from the
// deviation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/base/dtype.h"

namespace slipstream::tools {

/// A stream of random words: splitmix64 (Steele, Lea, Flood 2014), a counter behind a mixing function.
class RandomWords {
public:
    explicit RandomWords(std::uint64_t seed) : state_(seed) {}
    std::uint64_t next() {
        state_ += 0x9e3779b97f4a7c15U;
        return mixed(state_);
    }
    /// A word in which every bit depends on every bit of `word`.
    [[nodiscard]] static constexpr std::uint64_t mixed(std::uint64_t word) {
        word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9U;
        word = (word ^ (word >> 27)) * 0x94d049bb133111ebU;
        return word ^ (word >> 31);
    }

private:
    std::uint64_t state_;
};

/// Weights of one type and deviation: normal where the type is a float, uniform codes where it is quantised.
class RandomBlocks {
public:
    RandomBlocks(DType type, double deviation);

    /// `n_blocks` blocks of the type, a function of `seed` alone.
    void fill(std::byte* dst, std::int64_t n_blocks, std::uint64_t seed) const;

private:
    DType type_;
    float scale_;                            // `d` of a block, before it varies from block to block
    std::vector<std::uint32_t> float_bits_;  // floats: equally likely values, in the type's own bits
};

}  // namespace slipstream::tools
