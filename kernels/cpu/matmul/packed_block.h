// Where the fields of a packed block of quantised weights lie (interleaved.h), for kernels that unpack in registers.
#pragma once

#include <cstdint>

#include "kernels/base/dtype.h"
#include "kernels/cpu/matmul/unpack_codes.h"

namespace slipstream::cpu {

/// Whether scales lie beside each sub-block's codes, as binary16: no unpacking at all.
constexpr bool has_plain_scales(DType type) {
    return type < DType::Q3_K;
}

/// Where the fields of a group's block lie: its words, behind the binary16 fields, and runs of them.
struct PackedBlock {
    std::int64_t bytes;  // of 16 rows
    int words;           // bytes before the first word
    int high;            // words before those of high bits, where they lie apart
    int low;             // words before those of low bits
};
constexpr PackedBlock packed_block(DType type) {
    switch (type) {
        case DType::Q8_0:
            return {16 * 34, 32, 0, 0};
        case DType::Q4_0:
            return {16 * 18, 32, 0, 0};
        case DType::Q4_1:
            return {16 * 20, 64, 0, 0};
        case DType::Q5_0:
            return {16 * 22, 32, 0, 1};
        case DType::Q5_1:
            return {16 * 24, 64, 0, 1};
        case DType::Q3_K:
            return {16 * 110, 32, 3, 11};
        case DType::Q4_K:
            return {16 * 144, 64, 0, 3};
        case DType::Q5_K:
            return {16 * 176, 64, 3, 11};
        case DType::Q6_K:
            return {16 * 210, 32, 4, 4};  // one beside the other
        default:
            return {};
    }
}

/// Bytes of 256 elements of a group.
constexpr std::int64_t bytes_of_256(DType type) {
    return packed_block(type).bytes * (has_plain_scales(type) ? kSubBlocks : 1);
}

}  // namespace slipstream::cpu
