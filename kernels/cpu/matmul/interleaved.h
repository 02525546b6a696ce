// The layout of packed weights on the CPU (Layout::Interleaved16), and rows into it and back.
//
// A group is 16 rows; groups follow one another, each 16 * row_bytes(type, K) bytes. Within a group K ascends, and one
// 32-bit lane of a vector belongs to one row:
//
//   F32    k:      16 floats                                                      64 bytes an element
//   F16    k:      16 halves                                                      32 bytes an element
//   BF16   k, k+1: 16 words, element k in the low half, k + 1 in the high half    64 bytes a pair
//          where K is odd, the last element: 16 halves                            32 bytes
//   quantised, a block (dequantize.cpp names the fields), 16 * its bytes:
//          its binary16 fields in file order, each 16 halves, then the rest of the block as 32-bit words in file order,
//          each 16 words: | d x 16 | (m x 16) | word 0 x 16 | word 1 x 16 | ...
//
// So word w of a run of codes holds four consecutive k of each row. Some fields are stored so that kernels need not
// rearrange them: codes of Q8_0 are q + 128 (unsigned); bit i = 4 g + j of h in Q5_0 and Q5_1 stands at bit 8 j + g.
// And words whose order in the file is not that of their use, so that a kernel reads straight on:
//   Q3_K   the scales, then h, then the codes
//   Q6_K   the scales; then of each half of the block for w = 0..7, four k of four runs of 32: the low bits of runs 0
//   and
//          2, those of runs 1 and 3, the high bits of all
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/base/dtype.h"
#include "kernels/base/tensor_view.h"
#include "kernels/pack_weights.h"

namespace slipstream::cpu {

/// How a block is cut into the fields above.
struct BlockFields {
    int n_halves = 0;              // binary16 fields
    std::size_t half_offset[2]{};  // bytes into the block
    std::size_t words_offset = 0;  // bytes into the block
    int n_words = 0;
};
[[nodiscard]] const BlockFields& block_fields(DType type);

/// Rows [n_rows <= 16, k], `stride_bytes` apart, into one group of 16 * row_bytes(type, k) bytes at `group`, 4-byte
/// aligned. Missing rows become zeros.
void interleave_rows(DType type, const std::byte* rows, std::size_t stride_bytes, int n_rows, std::int64_t k,
                     std::byte* group);

/// Row `row` of a group back to the file's layout: row_bytes(type, k) bytes at `dst`.
void deinterleave_row(DType type, const std::byte* group, int row, std::int64_t k, std::byte* dst);

/// The op (kernels/pack_weights.h), in all forms.
void pack_weights(ExecRef exec, const PackWeightsArgs& args);

}  // namespace slipstream::cpu
