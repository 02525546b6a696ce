// Copies rows between planes one after another on the calling thread, since a call moves few rows.
#include <cstring>

#include "kernels/cpu/op_table.h"
#include "kernels/move_rows.h"

namespace slipstream::cpu {

void move_rows(ExecRef, const MoveRowsArgs& args) {
    for (std::int64_t plane = 0; plane < args.n_planes; ++plane) {
        const std::byte* src = args.src + plane * args.src_plane_bytes;
        std::byte* dst = args.dst + plane * args.dst_plane_bytes;
        for (std::int64_t i = 0; i < args.n_rows; ++i)
            std::memcpy(dst + args.dst_rows[i] * args.row_bytes, src + args.src_rows[i] * args.row_bytes,
                        args.row_bytes);
    }
}

}  // namespace slipstream::cpu
