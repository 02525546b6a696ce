// Packs weights into the layout that the matmul of a device reads fastest. The host does this once, when a model is
// loaded, and then copies the packed weights to their place.
#pragma once

#include "kernels/base/tensor_view.h"
#include "kernels/device.h"

namespace slipstream {

/// Returns the bytes of a packed matrix [rows, cols]: the bytes of its rows, with the last group of 16 rows filled up.
[[nodiscard]] std::size_t packed_bytes(DType type, std::int64_t rows, std::int64_t cols);

/// Returns the layout of packed matrices for a kind of device. Groups of 16 rows, and the bytes of a matrix, are the
/// same for all kinds.
[[nodiscard]] constexpr Layout packed_layout(DeviceKind kind) {
    return kind == DeviceKind::Cuda ? Layout::Fragments16 : Layout::Interleaved16;
}

/// Whether devices of a kind have kernels for weights of `type`: the CPU for all, GPUs for all but IQ4_XS and Q2_K.
[[nodiscard]] constexpr bool multiplies(DeviceKind kind, DType type) {
    return kind != DeviceKind::Cuda || (type != DType::IQ4_XS && type != DType::Q2_K);
}

/// Returns a view of the packed matrix [rows, cols] at `data`, which has packed_bytes() bytes.
template <typename Byte>
[[nodiscard]] BasicTensorView<Byte> packed_view(Byte* data, DType type, std::int64_t rows, std::int64_t cols,
                                                Layout layout = Layout::Interleaved16) {
    return {data, type, 2, {rows, cols}, row_bytes(type, cols), layout};
}

struct PackWeightsArgs {
    ConstTensorView weights;  // [M, K], a DType that the device multiplies(), row-major; rows may start at any byte
    TensorView packed;  // [M, K], DType of `weights`, a packed_view() in the layout of the device; 64-byte aligned;
                        // must not overlap `weights`. Both are host memory
};

/// Rearranges weights without loss: a matmul gives the same bits for both layouts. Rows past M in the last group become
/// zeros. Runs in stream order, on all threads of the device's pool.
void pack_weights(ExecRef exec, const PackWeightsArgs& args);

}  // namespace slipstream
