// The layout of packed weights on the CPU (Layout::Interleaved16), and conversions of rows to it and back.
//
// A row group is 16 rows. Row groups are contiguous, each of 16 * row_bytes(type, K) bytes. In a row group K ascends,
// and one 32-bit lane of a vector belongs to one row:
//
// clang-format off
//   F32        element k:         16 floats                                          64 bytes per element
//   F16        element k:         16 halves                                          32 bytes per element
//   BF16       elements k, k + 1: 16 words: k in the low half, k + 1 in the high     64 bytes per pair
//              last element of an odd K: 16 halves                                   32 bytes
//   quantised  a quantisation block (fields: dequantize.cpp) of 16 rows:             16 times the bytes of a block
//              its 16-bit fields in file order, 16 halves each (MXFP4: 16 bytes); then the rest of the block as 32-bit
//              words in file order, 16 words each:
//              | d x 16 | (m x 16) | word 0 x 16 | word 1 x 16 | ...
// clang-format on
//
// So a word of codes holds the codes of four consecutive k of a row. Some fields are changed so that kernels need not
// rearrange them: codes of Q8_0 are stored as q + 128 (unsigned); bit 4g+j of h in Q5_0 and Q5_1 is stored as bit 8j+g.
// The words of two types are reordered, so that a kernel reads them in ascending order:
//
// clang-format off
//   Q3_K       3 words of scales, 8 words of h, 16 words of codes
//   Q6_K       4 words of scales; then, for each half of the block and for w = 0 to 7, three words with four k of each
//              of the half's four runs of 32:
//              | low 4 bits of runs 0 and 2 | low 4 bits of runs 1 and 3 | upper 2 bits of runs 0 to 3 |
// clang-format on
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/base/dtype.h"
#include "kernels/base/tensor_view.h"
#include "kernels/pack_weights.h"

namespace slipstream::cpu {

/// How a quantisation block of a type is divided: 16-bit fields, and the rest as 32-bit words.
struct BlockFields {
    int n_halves = 0;               // number of 16-bit fields: binary16, and the upper bits of scales of IQ4_XS
    std::size_t half_offset[2]{};   // bytes from the start of the block to each 16-bit field
    std::size_t words_offset = 0;   // bytes from the start of the block to the first word, in the file
    int n_words = 0;                // number of 32-bit words
    bool begins_with_byte = false;  // whether the block begins with an 8-bit field, which is stored first (MXFP4)
};
/// Returns the fields of a quantised type; all zero for F32, F16 and BF16.
[[nodiscard]] const BlockFields& block_fields(DType type);

/// Packs `n_rows` rows (1 to 16), [n_rows, k], `stride_bytes` apart, into one row group of 16 * row_bytes(type, k)
/// bytes at `group`, which must be 4-byte aligned. Rows may start at any byte. Missing rows become zeros.
void interleave_rows(DType type, const std::byte* rows, std::size_t stride_bytes, int n_rows, std::int64_t k,
                     std::byte* group);

/// Unpacks row `row` (0 to 15) of a row group to the layout of the file: row_bytes(type, k) bytes at `dst`.
void deinterleave_row(DType type, const std::byte* group, int row, std::int64_t k, std::byte* dst);

/// Packs weights into row groups (the op of kernels/pack_weights.h). All kernel variants of the CPU use it.
void pack_weights(ExecRef exec, const PackWeightsArgs& args);

}  // namespace slipstream::cpu
