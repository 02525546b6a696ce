// Places of the fields in a packed block of quantised weights (interleaved.h), for kernels that unpack in registers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "kernels/base/code_tables.h"
#include "kernels/base/dtype.h"
#include "kernels/cpu/matmul/unpack_codes.h"

namespace slipstream::cpu {

/// Whether each sub-block is a quantisation block with a scale of its own, a field that needs no unpacking: all
/// quantised types except the K formats.
constexpr bool has_plain_scales(DType type) {
    return code_traits(type).activation_run == 32;
}

/// The unsigned codes of a type with a code table (code_tables.h), in the order of the table: its 16 values +
/// code_offset, which makes them at least 0.
template <DType type>
inline constexpr std::array<std::uint8_t, 16> kCodeTable = [] {
    std::array<std::uint8_t, 16> codes{};
    for (std::size_t i = 0; i < codes.size(); ++i)
        codes[i] = static_cast<std::uint8_t>(code_values(type)[i] + code_traits(type).code_offset);
    return codes;
}();

/// Places of fields in a packed quantisation block of a row group: its 32-bit words, which follow the shorter fields,
/// and runs of these words. A word here means the words of all 16 rows, 64 bytes.
struct PackedBlock {
    std::int64_t bytes;  // size of the block of 16 rows
    int words;           // bytes from the start of the block to its first word
    int high;            // words before the first word of high bits, if these are separate
    int low;             // words before the first word of low bits
};
constexpr PackedBlock packed_block(DType type) {
    switch (type) {
        case DType::Q8_0:
            return {16 * 34, 32, 0, 0};
        case DType::Q4_0:
        case DType::IQ4_NL:
            return {16 * 18, 32, 0, 0};
        case DType::MXFP4:
            return {16 * 17, 16, 0, 0};
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
            // Low and high bits are one run: two words (64 bytes each) of low bits, one of high bits, and so on.
            return {16 * 210, 32, 4, 4};
        case DType::IQ4_XS:
            return {16 * 136, 64, 0, 1};
        case DType::Q2_K:
            return {16 * 84, 64, 0, 4};
        default:
            return {};
    }
}

/// Returns the bytes of 256 elements of a packed row group.
constexpr std::int64_t bytes_of_256(DType type) {
    return packed_block(type).bytes * (has_plain_scales(type) ? kSubBlocks : 1);
}

}  // namespace slipstream::cpu
