// Weights into the layout that a device's matmul reads fastest: once, when a model is loaded.
#pragma once

#include "kernels/base/tensor_view.h"
#include "kernels/device.h"

namespace slipstream {

/// Bytes of a packed matrix [rows, cols]: those of its rows, with the last group of 16 rows filled up.
[[nodiscard]] std::size_t packed_bytes(DType type, std::int64_t rows, std::int64_t cols);

/// View of a packed matrix [rows, cols] of packed_bytes() bytes at `data`.
template <typename Byte>
[[nodiscard]] BasicTensorView<Byte> packed_view(Byte* data, DType type, std::int64_t rows, std::int64_t cols) {
    return {data, type, 2, {rows, cols}, row_bytes(type, cols), Layout::Interleaved16};
}

struct PackWeightsArgs {
    ConstTensorView weights;  // [M, K], any DType, row-major; rows may start at any byte
    TensorView packed;        // [M, K], the same type, packed_view(); 64-byte aligned; must not overlap weights
};

/// Rearranges, and loses nothing: a matmul gives the same bits for both. Rows behind M in the last group become zeros.
/// Runs in stream order; all threads of the device's pool take part.
void pack_weights(ExecRef exec, const PackWeightsArgs& args);

}  // namespace slipstream
