// Weights into the layout that a device's matmul reads fastest: once, when a model is loaded, by the host, which then
// sends the pack to where it will lie.
#pragma once

#include "kernels/base/tensor_view.h"
#include "kernels/device.h"

namespace slipstream {

/// Bytes of a packed matrix [rows, cols]: those of its rows, with the last group of 16 rows filled up.
[[nodiscard]] std::size_t packed_bytes(DType type, std::int64_t rows, std::int64_t cols);

/// How matrices are packed for a kind of device. Groups of 16 rows, and bytes, are the same for all.
[[nodiscard]] constexpr Layout packed_layout(DeviceKind kind) {
    return kind == DeviceKind::Cuda ? Layout::Fragments16 : Layout::Interleaved16;
}

/// View of a packed matrix [rows, cols] of packed_bytes() bytes at `data`.
template <typename Byte>
[[nodiscard]] BasicTensorView<Byte> packed_view(Byte* data, DType type, std::int64_t rows, std::int64_t cols,
                                                Layout layout = Layout::Interleaved16) {
    return {data, type, 2, {rows, cols}, row_bytes(type, cols), layout};
}

struct PackWeightsArgs {
    ConstTensorView weights;  // [M, K], any DType, row-major; rows may start at any byte
    TensorView packed;        // [M, K], the same type, packed_view() in the device's layout; 64-byte aligned; must not
                              // overlap weights. Host memory, as `weights` is
};

/// Rearranges, and loses nothing: a matmul gives the same bits for both. Rows behind M in the last group become zeros.
/// Runs in stream order; all threads of the device's pool take part.
void pack_weights(ExecRef exec, const PackWeightsArgs& args);

}  // namespace slipstream
