// y = x W^T (+ bias) (+ y): the only matmul of the runtime, with weights in any DType and activations in float. If
// weights are quantised, the CPU rounds activations to 8 bits in quantisation blocks of 32 (K formats: of 256), as the
// reference of these formats does. It is made for packed weights (kernels/pack_weights.h); row-major weights give the
// same bits, slower.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "kernels/base/tensor_view.h"
#include "kernels/device.h"

namespace slipstream {

enum class MatmulStore : std::uint8_t {
    Overwrite,  // y  = result
    Add,        // y += result, added after the whole reduction (residual connections)
};

/// Tokens of a prefill chunk. Prefill chunks begin at absolute positions that are multiples of it.
inline constexpr std::int64_t kPrefillChunkTokens = 512;

/// Where the operands of a product over prompt tokens are in their prefill chunk and matrix. It allows a backend to
/// have special kernels for whole prefill chunks: if the bits of such a kernel depend on the place of a row, it
/// multiplies a prefill chunk in one shape whatever part of it is wanted.
struct PrefillChunk {
    // Position of the first token of x, mod kPrefillChunkTokens. x must stay inside one prefill chunk.
    std::int64_t first_token = 0;
    // First row of the weights, counted in the whole matrix whose rows they are; a multiple of 16.
    std::int64_t first_row = 0;
    std::int64_t matrix_rows = 0;  // rows of the whole matrix
};

struct MatmulArgs {
    ConstTensorView weights{};  // [M, K], any DType and layout; row-major rows may start at any byte
    ConstTensorView x{};        // [n_tokens, K], F32
    TensorView y;               // [n_tokens, M], F32; must not overlap x
    ConstTensorView bias{};     // [M], F32, or empty; added after the reduction
    MatmulStore store = MatmulStore::Overwrite;
    std::optional<PrefillChunk> prompt{};  // given if x is prompt; the CPU has no special kernels for it and ignores it
};

/// Computes y = x W^T (+ bias) (+ y) in stream order. Batch invariance (E1): an output element is reduced over K in an
/// order that depends only on K and the kernel variant, so its bits do not change with n_tokens, the tile, or the
/// threads. If `prompt` is given, the bits may be others and depend on its numbers as well: on the place of the row in
/// its prefill chunk and matrix, never on what else is multiplied. M, K and n_tokens may be 0.
void matmul(ExecRef exec, const MatmulArgs& args);

/// Computes matmul() of each product. All products must have the same x, and no y may overlap an operand of another
/// product. A device may compute several at once.
void matmuls(ExecRef exec, std::span<const MatmulArgs> products);

}  // namespace slipstream
