// The plan of a product over a prefill chunk by cuBLASLt: which types it supports, in which shapes, and what scratch
// holds. Plain numbers, for the host and for launches.
//
// Batch invariance (E1): the bits of cuBLASLt may depend on the shape of a product and on the place of a row in it. So
// a prefill chunk is always multiplied in one shape: all 512 tokens, with zeros for those that are not wanted, times a
// slab of the matrix's rows. The borders of slabs depend on the matrix alone. Rows of a slab that are missing (a
// streamed item ends in a slab) are computed from whatever scratch holds, and not used. So an element is at the same
// place of the same product however matrix and prompt were divided.
//
// Supported matrices: every type but F32, if K is a multiple of 32. The cost of a weight against 512 tokens, estimated:
// 1024 FLOP, 6 ps at 165 TFLOP/s (RTX 4090) and 1 ps at 990 TFLOP/s (H200). matmul_tiles uses mma.sync, half of what an
// H200 has or less, and reads tokens from shared memory for every 16 rows. Unpacking writes and reads 2 bytes, in slabs
// that fit L2 in part: 1 to 4 ps at 1 TB/s, 0.3 to 1.2 ps at 4.8 TB/s. So the library is faster where tensor cores are
// fast compared to memory, for every stored type, and about as fast on desktop GPUs. `slipstream-lab card` measures
// both ("matmul" and "prompt" at 512 tokens); figures of an H200: kernels/cuda/NOTES.md.
//
// Scratch: | activations | factors | weights | product | workspace of cuBLASLt |:
// clang-format off
//   activations  [512][K] bfloat16, or binary16 for F16 weights
//   factors      [512] floats, for F16: undo the power of two that a token was multiplied by
//   weights      [slab][K], of the same type
//   product      [512][slab] floats
// clang-format on
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/base/dtype.h"

namespace slipstream::cuda {

/// Tokens (columns) of each product that cuBLASLt computes: 512, a whole prefill chunk. Must be equal to
/// kPrefillChunkTokens. A call with fewer tokens gets zeros for the others, so bits do not depend on the number of
/// tokens.
inline constexpr std::int64_t kPromptTokens = 512;
/// Most rows of a slab of a matrix: times 512 tokens they are 128 tiles of 128 x 64, as many as a large GPU computes at
/// once.
inline constexpr std::int64_t kPromptSlabRows = 2048;
/// Bytes of the workspace of cuBLASLt. Its heuristics choose an algorithm by this size, so bits may depend on it.
inline constexpr std::size_t kPromptBlasBytes = std::size_t{4} << 20;

/// Whether cuBLASLt computes products over prompt with weights of `type` and K = `k`.
[[nodiscard]] constexpr bool prompt_uses_blas(DType type, std::int64_t k) {
    return type != DType::F32 && k > 0 && k % 32 == 0;
}

/// Returns the rows of a slab, a range of a matrix with `matrix_rows` rows (at least 1): all slabs have the same size,
/// a multiple of 128.
[[nodiscard]] constexpr std::int64_t prompt_slab_rows(std::int64_t matrix_rows) {
    const std::int64_t n_slabs = (matrix_rows + kPromptSlabRows - 1) / kPromptSlabRows;
    return ((matrix_rows + n_slabs - 1) / n_slabs + 127) / 128 * 128;
}

/// Layout of scratch. Offsets and size in bytes, all multiples of 256; the activations begin at 0.
struct PromptScratch {
    std::size_t factors = 0;
    std::size_t weights = 0;
    std::size_t product = 0;
    std::size_t workspace = 0;
    std::size_t bytes = 0;
};
/// Returns the layout of scratch for products with K = `k` and slabs of slab_rows rows.
[[nodiscard]] constexpr PromptScratch prompt_scratch(std::int64_t k, std::int64_t slab_rows) {
    const auto round = [](std::int64_t bytes) { return static_cast<std::size_t>((bytes + 255) / 256 * 256); };
    PromptScratch out;
    out.factors = round(kPromptTokens * k * 2);
    out.weights = out.factors + round(kPromptTokens * 4);
    out.product = out.weights + round(slab_rows * k * 2);
    out.workspace = out.product + round(kPromptTokens * slab_rows * 4);
    out.bytes = out.workspace + kPromptBlasBytes;
    return out;
}

/// Returns bytes of scratch that are enough for any matrix of at most `matrix_rows` rows and `k` columns; 0 if either
/// is 0.
[[nodiscard]] constexpr std::size_t prompt_scratch_bytes(std::int64_t matrix_rows, std::int64_t k) {
    if (matrix_rows == 0 || k == 0) return 0;
    return prompt_scratch(k, std::min((matrix_rows + 127) / 128 * 128, kPromptSlabRows)).bytes;
}

}  // namespace slipstream::cuda
