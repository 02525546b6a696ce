// A block of a quantised type taken apart into whole numbers, and put together again: the file's side of packing into
// fragments (fragments.h). Bit layouts as kernels/cpu/matmul/dequantize.cpp tells; nothing is lost either way.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/base/dtype.h"

namespace slipstream::cuda {

struct BlockParts {
    std::uint8_t codes[256];  // the first block_elements; Q8_0: two's complement, others unsigned
    std::uint16_t d;          // bits of binary16
    std::uint16_t m;          // of types with a minimum or an offset, as it stands in the file
    std::uint8_t scales[16];  // K formats: 6 bits each; Q6_K: two's complement
    std::uint8_t mins[8];     // Q4_K, Q5_K
};

/// `block`: block_bytes of `type`, at any address. Parts that the type lacks are not set.
void read_block(DType type, const std::byte* block, BlockParts& parts);
void write_block(DType type, const BlockParts& parts, std::byte* block);

}  // namespace slipstream::cuda
