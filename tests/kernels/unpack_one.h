// The unpacking of packed weights as this compiler makes it without any form's attributes, by a type known at run time.
#pragma once

#include "kernels/cpu/matmul/unpack_codes.h"

namespace slipstream::testing_matmul {

/// Replaces each byte of the codes of `n_sub` sub-blocks, a place in the table of `type`, by the value + code_offset.
inline void look_up(DType type, int n_sub, cpu::UnpackedChunk& out) {
    for (int s = 0; s < n_sub; ++s)
        for (auto& word : out.codes[s])
            for (std::uint32_t& row : word) {
                std::uint32_t codes = 0;
                for (int j = 0; j < 32; j += 8) {
                    const int value = code_values(type)[row >> j & 255U];
                    codes |= static_cast<std::uint32_t>(value + cpu::code_traits(type).code_offset) << j;
                }
                row = codes;
            }
}

/// One block (of 16 rows) at `src` into `out`: sub-block 0, or all of a K format.
inline void unpack_one(DType type, const std::byte* src, cpu::UnpackedChunk& out) {
    switch (type) {
        case DType::Q8_0:
            return cpu::unpack_block<DType::Q8_0>(src, 0, out);
        case DType::Q4_0:
            return cpu::unpack_block<DType::Q4_0>(src, 0, out);
        case DType::Q4_1:
            return cpu::unpack_block<DType::Q4_1>(src, 0, out);
        case DType::Q5_0:
            return cpu::unpack_block<DType::Q5_0>(src, 0, out);
        case DType::Q5_1:
            return cpu::unpack_block<DType::Q5_1>(src, 0, out);
        case DType::Q3_K:
            return cpu::unpack_block<DType::Q3_K>(src, 0, out);
        case DType::Q4_K:
            return cpu::unpack_block<DType::Q4_K>(src, 0, out);
        case DType::Q5_K:
            return cpu::unpack_block<DType::Q5_K>(src, 0, out);
        case DType::Q6_K:
            return cpu::unpack_block<DType::Q6_K>(src, 0, out);
        case DType::IQ4_NL:
            cpu::unpack_block<DType::IQ4_NL>(src, 0, out);
            return look_up(type, 1, out);
        case DType::MXFP4:
            cpu::unpack_block<DType::MXFP4>(src, 0, out);
            return look_up(type, 1, out);
        case DType::IQ4_XS:
            cpu::unpack_block<DType::IQ4_XS>(src, 0, out);
            return look_up(type, cpu::kSubBlocks, out);
        case DType::Q2_K:
            return cpu::unpack_block<DType::Q2_K>(src, 0, out);
        default:
            return;
    }
}

}  // namespace slipstream::testing_matmul
