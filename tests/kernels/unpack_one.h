// The unpacking of packed weights as this compiler makes it without any form's attributes, by a type known at run time.
#pragma once

#include "kernels/cpu/matmul/unpack_codes.h"

namespace slipstream::testing_matmul {

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
        default:
            return;
    }
}

}  // namespace slipstream::testing_matmul
