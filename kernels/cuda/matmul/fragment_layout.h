// Byte offsets in a packed row group (layout: fragments.h), for the packer and the kernels. Plain numbers; no CUDA
// header.
#pragma once

#include <cstdint>

namespace slipstream::cuda {

/// Rows of a row group: 16, the rows of an mma.
inline constexpr int kGroupRows = 16;
/// k of one mma (m16n8k16), called a step.
inline constexpr int kStepK = 16;
/// F16, BF16: bytes of a step of 16 k of a row group, 4 words for each of 32 lanes.
inline constexpr int kFloatStepBytes = 32 * 16;
/// Bytes of a run of 4 words for each of 32 lanes: what a warp reads with one wide load.
inline constexpr int kQuadBytes = 32 * 16;
/// Bytes of a binary16 field of one block of 16 rows: 8 words, with the halves of rows g and g + 8 for g < 8.
inline constexpr int kPairedScaleBytes = 8 * 4;
/// MXFP4: bytes of the exponents of one block of 16 rows: 8 halves, with the bytes of rows g and g + 8 for g < 8.
inline constexpr int kPairedExponentBytes = 8 * 2;
/// Q5_0, Q5_1: bytes of the fifth bits of a block of 32 of 16 rows, two for each of 32 lanes.
inline constexpr int kBlock32HighBytes = 32 * 2;
/// Bytes of the codes of a block of 32 of 16 rows, 4 bits each.
inline constexpr int kBlock32NibbleBytes = 32 * 8;
/// Bytes of the codes of a block of 32 of 16 rows, 8 bits each.
inline constexpr int kBlock32ByteBytes = 32 * 16;

// This struct and the next three: layouts of a packed block (256 k of 16 rows) of Q4_K, Q5_K, Q6_K and Q3_K, in bytes:
// offsets of its fields, and its size (kBytes).
struct Q4KLayout {
    static constexpr int kScales = 4 * kQuadBytes;
    static constexpr int kBytes = kScales + 32 * 8;
};
struct Q5KLayout {
    static constexpr int kHigh = 4 * kQuadBytes;
    static constexpr int kScales = kHigh + kQuadBytes;
    static constexpr int kBytes = kScales + 32 * 8;
};
struct Q6KLayout {
    static constexpr int kHigh = 4 * kQuadBytes;
    static constexpr int kScales = kHigh + 2 * kQuadBytes;
    static constexpr int kD = kScales + 32 * 8;
    static constexpr int kBytes = kD + kPairedScaleBytes;
};
struct Q3KLayout {
    static constexpr int kLow = 0;
    static constexpr int kHigh = 2 * kQuadBytes;
    static constexpr int kScaleLow = kHigh + kQuadBytes;
    static constexpr int kScaleHigh = kScaleLow + 32 * 4;
    static constexpr int kD = kScaleHigh + 32 * 2;
    static constexpr int kBytes = kD + kPairedScaleBytes;
};

}  // namespace slipstream::cuda
