// Copies rows of one memory region to rows of another, or of the same, in many planes at once, instead of a copy per
// row.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/device.h"

namespace slipstream {

/// Copies row src_rows[i] of `src` to row dst_rows[i] of `dst`, in each plane. Both are device memory. A row that is
/// written must not be read, or written twice.
struct MoveRowsArgs {
    const std::byte* src = nullptr;  // [n_planes] planes, src_plane_bytes apart, of rows that follow one another
    std::size_t src_plane_bytes = 0;
    std::byte* dst = nullptr;  // [n_planes] planes, dst_plane_bytes apart, of rows that follow one another
    std::size_t dst_plane_bytes = 0;
    std::int64_t n_planes = 0;
    std::size_t row_bytes = 0;               // a multiple of 4, as are planes and addresses
    const std::int32_t* src_rows = nullptr;  // [n_rows]
    const std::int32_t* dst_rows = nullptr;  // [n_rows]
    std::int64_t n_rows = 0;
};
void move_rows(ExecRef exec, const MoveRowsArgs& args);

}  // namespace slipstream
