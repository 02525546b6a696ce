// y = x W^T (+ bias) (+ y): the one matmul of the runtime, weights in any DType, activations in float. Where weights
// are quantised, the CPU rounds activations to 8 bits in blocks of 32 (K formats: of 256), as the formats' own
// reference does. Packed weights (kernels/pack_weights.h) are what it is made for; row-major ones give the same bits,
// slower.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "kernels/base/tensor_view.h"
#include "kernels/device.h"

namespace slipstream {

enum class MatmulStore : std::uint8_t {
    Overwrite,  // y  = result
    Add,        // y += result, the sum formed after the whole reduction (residual connections)
};

/// Prefill chunks begin at multiples of it, at absolute positions.
inline constexpr std::int64_t kPrefillChunkTokens = 512;

/// Where the operands of a product over prompt stand, so that a backend may have kernels of its own for whole prefill
/// chunks: one whose bits depend on a row's place multiplies a prefill chunk in one shape whatever part of it is
/// wanted.
struct PrefillChunk {
    std::int64_t first_token =
        0;  // of x, in its prefill chunk: position % kPrefillChunkTokens; x does not reach into the next
    std::int64_t first_row = 0;    // of the weights, in the matrix that they are rows of; a multiple of 16
    std::int64_t matrix_rows = 0;  // of that matrix
};

struct MatmulArgs {
    ConstTensorView weights{};  // [M, K], any DType and layout; row-major rows may start at any byte
    ConstTensorView x{};        // [n_tokens, K], F32
    TensorView y;               // [n_tokens, M], F32; must not overlap x
    ConstTensorView bias{};     // [M], F32, or empty: added to the reduced sum
    MatmulStore store = MatmulStore::Overwrite;
    std::optional<PrefillChunk> prompt{};  // x is prompt; the CPU has one family of kernels for all tokens
};

/// E1: an output element is reduced over K in an order that depends on K and the instruction form alone, so its bits do
/// not change with n_tokens, the tile, or the threads. Where `prompt` is given they may be others, and depend on its
/// numbers as well: on the row's place in its prefill chunk and matrix, never on what else is multiplied. M, K,
/// n_tokens may be 0. Runs in stream order.
void matmul(ExecRef exec, const MatmulArgs& args);

/// matmul() of each: all have one x, and no y overlaps another product's operands. A device may compute several at
/// once.
void matmuls(ExecRef exec, std::span<const MatmulArgs> products);

}  // namespace slipstream
