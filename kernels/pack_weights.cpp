#include "kernels/pack_weights.h"

#include <cstdint>

#include "kernels/base/checked_math.h"
#include "kernels/op_table.h"

namespace slipstream {

std::size_t packed_bytes(DType type, std::int64_t rows, std::int64_t cols) {
    return round_up(rows, kInterleavedRows) * row_bytes(type, cols);
}

void pack_weights(ExecRef exec, const PackWeightsArgs& args) {
    const ConstTensorView& from = args.weights;
    const TensorView& to = args.packed;
    CHECK(from.rank == 2 && to.rank == 2 && from.shape == to.shape && from.dtype == to.dtype,
          "{} [{}, {}] packed as {} [{}, {}]", dtype_name(from.dtype), from.shape[0], from.shape[1],
          dtype_name(to.dtype), to.shape[0], to.shape[1]);
    CHECK(multiplies(exec.device.kind(), from.dtype), "{} on a device without kernels for it", dtype_name(from.dtype));
    CHECK(from.layout == Layout::RowMajor && to.layout == packed_layout(exec.device.kind()), "layouts {} to {}",
          static_cast<int>(from.layout), static_cast<int>(to.layout));
    if (from.shape[0] == 0 || from.shape[1] == 0) return;
    CHECK(!from.empty() && !to.empty() && reinterpret_cast<std::uintptr_t>(to.data) % 64 == 0,
          "packed weights need memory aligned to 64 bytes");
    CHECK(to.packed() && (from.shape[0] == 1 || from.row_stride_bytes >= row_bytes(from.dtype, from.cols())),
          "rows of {} bytes every {}, packed every {}", row_bytes(from.dtype, from.cols()), from.row_stride_bytes,
          to.row_stride_bytes);
    exec.device.ops().pack_weights(exec, args);
}

}  // namespace slipstream
