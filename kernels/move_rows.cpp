#include "kernels/move_rows.h"

#include "kernels/base/check.h"
#include "kernels/op_table.h"

namespace slipstream {

void move_rows(ExecRef exec, const MoveRowsArgs& args) {
    const auto in_words = [](std::size_t bytes) { return bytes % 4 == 0; };
    CHECK(args.n_rows >= 0 && args.n_planes >= 0 && in_words(args.row_bytes) && in_words(args.src_plane_bytes) &&
              in_words(args.dst_plane_bytes) && in_words(reinterpret_cast<std::uintptr_t>(args.src)) &&
              in_words(reinterpret_cast<std::uintptr_t>(args.dst)),
          "move_rows of {} rows of {} bytes in {} planes, {} and {} bytes apart", args.n_rows, args.row_bytes,
          args.n_planes, args.src_plane_bytes, args.dst_plane_bytes);
    if (args.n_rows == 0 || args.n_planes == 0 || args.row_bytes == 0) return;
    CHECK(args.src != nullptr && args.dst != nullptr && args.src_rows != nullptr && args.dst_rows != nullptr);
    for (std::int64_t i = 0; i < args.n_rows; ++i)
        CHECK(args.src_rows[i] >= 0 && args.dst_rows[i] >= 0, "row {} to {}", args.src_rows[i], args.dst_rows[i]);
    exec.device.ops().move_rows(exec, args);
}

}  // namespace slipstream
