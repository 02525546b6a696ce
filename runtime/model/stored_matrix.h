// Matrices whose rows their file does not have one after another: gpt-oss in Hugging Face directories. Their rows are
// put together while a model is loaded.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/base/dtype.h"

namespace slipstream {

/// Where the elements of a matrix [rows, cols] are. Elements of a float type may be at any regular distance: then
/// element (r, c) is at data + r * row_step + c * col_step. MXFP4 has codes and scales apart:
///
///     codes of block b of row r   data + r * row_step + b * 16    16 bytes; byte j: element 2 j low, 2 j + 1 high
///     its scale                   scales + r * scale_row_step + b    1 byte, E8M0 (bias 127)
///
/// (In ggml's blocks the scale precedes the codes, and byte j has elements j and j + 16.)
struct StoredMatrix {
    const std::byte* data = nullptr;    // null: the matrix is stored row by row, and its view has the rows
    std::size_t row_step = 0;           // bytes
    std::size_t col_step = 0;           // bytes; of floats
    const std::byte* scales = nullptr;  // of MXFP4; null: floats
    std::size_t scale_row_step = 0;     // bytes

    [[nodiscard]] bool empty() const { return data == nullptr; }
    /// Returns the bytes from the first to the last element of rows [first_row, first_row + n_rows), and of their
    /// scales (empty without).
    [[nodiscard]] std::array<std::span<const std::byte>, 2> bytes_of(DType type, std::int64_t first_row,
                                                                     std::int64_t n_rows, std::int64_t cols) const;
    /// Writes rows [first_row, first_row + n_rows) to `out`, row-major without padding, in `type`: F32, F16, BF16, or
    /// MXFP4 if there are scales. `cols` must be a multiple of the type's quantisation block.
    void read_rows(DType type, std::int64_t first_row, std::int64_t n_rows, std::int64_t cols, std::byte* out) const;
};

}  // namespace slipstream
