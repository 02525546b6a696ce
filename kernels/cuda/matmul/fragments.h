// The layout of packed weights on CUDA devices (Layout::Fragments16), and conversions of rows to it and back.
//
// A row group is 16 rows, 16 * row_bytes(type, K) bytes, so rows can be divided into row groups, slices and items as in
// Interleaved16. In a row group, weights have the order in which the lanes of a warp hold them as operand A of
// mma.m16n8k16. With g = lane / 4 and t = lane % 4 * 2, a lane has four pairs of each step of 16 k:
//
// clang-format off
//     h = 0: row g,     k = t, t + 1          h = 1: row g + 8, k = t, t + 1
//     h = 2: row g,     k = t + 8, t + 9      h = 3: row g + 8, k = t + 8, t + 9
//
//   F32        k: 16 floats, row by row                                                          (no mma)
//   F16, BF16  a step of 16 k: [32 lanes][h] pairs in 32-bit words; what K has past whole steps: [16 rows][K % 16] halves
//   codes      of a quantised type: a word of 32 bits per lane and step, low nibbles first. The field of n bits of pair h is
//              at bit n * h (first of the pair) and 16 + n * h (second), n = 4; a word holds 1 step
//   Q8_0       a step: [32 lanes][h] pairs of bytes: 8 bytes; the 2 steps of a block of 32 side by side: 16 bytes per lane
//   2 bits     n = 2, a word holds 2 steps: step s at bit 8 (s % 2);  1 bit: n = 1, 4 steps: step s at bit 4 (s % 4)
//
// Types with blocks of 32 (n = K / 32 blocks): | codes | d | (m) | (high bits) |
//   codes      two blocks (64 k) side by side: [32 lanes][4 words]; an odd last block: [32 lanes][2 words].
//              Q8_0: each block [32 lanes][4 words], word 2 s + i: bytes of pairs h = 2 i, 2 i + 1 of step s
//   d, m       [n][8] words: halves of rows g (low) and g + 8 (high); MXFP4: d is [n][8] halves, with exponents as bytes
//   high bits  [n][32 lanes] halves: low byte, bit 4 s + h: first of pair h of step s; high byte: second
// Blocks of 256 follow one another, 16 * their bytes each: codes as four times 64 k, then:
//   Q4_K       scales
//   Q5_K       1-bit words [32 lanes][4], scales
//   Q6_K       2-bit words 2 x [32 lanes][4]; scales [32 lanes] 8 bytes: of steps 4 (lane % 4) + i, rows g and g + 8
//              side by side; d: [8] words as above
//   Q3_K       no 4-bit codes; 2-bit words as in Q6_K, 1-bit words as in Q5_K; low 4 bits of scales: [32 lanes] words,
//              nibble 2 i + (0: row g, 1: g + 8) of step 4 (lane % 4) + i; upper 2 bits: [32 lanes] halves, in the same
//              order; d
//   scales     (Q4_K, Q5_K) [32 lanes][2 words]: the lane has sub-blocks of 32 number 2 j and 2 j + 1, j = lane % 4,
//              word 0: row g, word 1: row g + 8: 6 bits each scale 2 j, minimum 2 j, scale 2 j + 1, minimum 2 j + 1;
//              the top byte: a byte of the row's d (j = 0: low, 1: high) or dmin (j = 2: low, 3: high)
// clang-format on
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/base/dtype.h"

namespace slipstream::cuda {

/// Rows of a matrix in the file's layout, for packing. The caller keeps `data` alive.
struct FileRows {
    DType dtype = DType::F32;
    const std::byte* data = nullptr;  // any byte address
    std::size_t stride_bytes = 0;     // bytes from one row to the next
    std::int64_t n_rows = 0;
    std::int64_t k = 0;
};

/// Packs row groups [begin, end) of 16 rows to their places in `packed`, the memory of the whole matrix (packed_bytes()
/// of pack_weights.h), aligned to 16 bytes. Rows past the last in the last row group become zeros. Row groups are
/// independent: several threads may pack different ones.
void pack_fragments(const FileRows& rows, std::int64_t begin, std::int64_t end, std::byte* packed);

/// Unpacks row `row` (0 to 15) of a row group to the file's layout, row_bytes(type, k) bytes at `dst`. Slow; for tests
/// and tools.
void unpack_fragment_row(DType type, const std::byte* group, int row, std::int64_t k, std::byte* dst);

}  // namespace slipstream::cuda
