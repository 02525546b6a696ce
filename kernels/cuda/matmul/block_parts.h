// Splits a quantisation block into integers, and builds it from them: the file's side of packing into fragments
// (fragments.h). Bit layouts: kernels/cpu/matmul/dequantize.cpp. Lossless in both directions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/base/dtype.h"

namespace slipstream::cuda {

/// The numbers in a quantisation block.
struct BlockParts {
    std::uint8_t
        codes[256];   // one for each of the block's 32 or 256 elements; Q8_0: two's complement, others as stored
    std::uint16_t d;  // scale: bits of binary16; MXFP4: the exponent
    std::uint16_t m;  // bits of binary16, as in the file; only types with a minimum or an offset
    std::uint8_t scales[16];  // K formats: 6 bits each; Q6_K: two's complement
    std::uint8_t mins[8];     // Q4_K, Q5_K
};

/// Reads the block of `type` at `block`, any address, into `parts`. Parts that the type does not have are not set.
/// `type` must be quantised and one that GPUs multiply (CHECKed).
void read_block(DType type, const std::byte* block, BlockParts& parts);
/// Inverse of read_block(): writes all block_bytes bytes of a block of `type` to `block`, any address.
void write_block(DType type, const BlockParts& parts, std::byte* block);

}  // namespace slipstream::cuda
