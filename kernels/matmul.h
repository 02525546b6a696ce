// y = x W^T (+ bias) (+ y): the one matmul of the runtime, weights in any DType, activations in float. Where weights
// are quantised, activations are rounded to 8 bits in blocks of 32, as the formats' own reference does. Packed weights
// (kernels/pack_weights.h) are what it is made for; row-major ones give the same bits, slower.
#pragma once

#include "kernels/base/tensor_view.h"
#include "kernels/device.h"

namespace slipstream {

enum class MatmulStore : std::uint8_t {
    Overwrite,  // y  = result
    Add,        // y += result, the sum formed after the whole reduction (residual connections)
};

struct MatmulArgs {
    ConstTensorView weights{};  // [M, K], any DType and layout; row-major rows may start at any byte
    ConstTensorView x{};        // [n_tokens, K], F32
    TensorView y;               // [n_tokens, M], F32; must not overlap x
    ConstTensorView bias{};     // [M], F32, or empty: added to the reduced sum
    MatmulStore store = MatmulStore::Overwrite;
};

/// E1: an output element is reduced over K in an order that depends on K and the instruction form alone, so its bits do
/// not change with n_tokens, the tile, or the threads. M, K, n_tokens may be 0. Runs in stream order.
void matmul(ExecRef exec, const MatmulArgs& args);

}  // namespace slipstream
