#include "runtime/model/stored_matrix.h"

#include <algorithm>
#include <cstring>

#include "kernels/base/check.h"

namespace slipstream {

namespace {

constexpr std::int64_t kBlock = 32;           // elements of a block of MXFP4
constexpr std::size_t kCodeBytes = 16;        // of a block
constexpr std::size_t kPackedBytes = 1 + 16;  // of a block in ggml's order

// Floats are copied in tiles, since one of the two sides is not contiguous.
constexpr std::int64_t kTileRows = 16;
constexpr std::int64_t kTileCols = 64;

template <std::size_t kBytes>
void gather(const StoredMatrix& matrix, std::int64_t first_row, std::int64_t n_rows, std::int64_t cols,
            std::byte* out) {
    for (std::int64_t row = 0; row < n_rows; row += kTileRows)
        for (std::int64_t col = 0; col < cols; col += kTileCols)
            for (std::int64_t c = col; c < std::min(col + kTileCols, cols); ++c)
                for (std::int64_t r = row; r < std::min(row + kTileRows, n_rows); ++r)
                    std::memcpy(out + static_cast<std::size_t>(r * cols + c) * kBytes,
                                matrix.data + static_cast<std::size_t>(first_row + r) * matrix.row_step +
                                    static_cast<std::size_t>(c) * matrix.col_step,
                                kBytes);
}

// Returns element `i` of the codes of a block.
std::uint8_t code(const std::byte* codes, std::size_t i) {
    const auto pair = std::to_integer<std::uint8_t>(codes[i / 2]);
    return i % 2 == 0 ? pair & 0x0fU : pair >> 4U;
}

void repack_block(const std::byte* codes, std::byte scale, std::byte* out) {
    out[0] = scale;
    for (std::size_t j = 0; j < kCodeBytes; ++j)
        out[1 + j] = static_cast<std::byte>(code(codes, j) | code(codes, j + kCodeBytes) << 4U);
}

}  // namespace

std::array<std::span<const std::byte>, 2> StoredMatrix::bytes_of(DType type, std::int64_t first_row,
                                                                 std::int64_t n_rows, std::int64_t cols) const {
    CHECK(!empty() && n_rows > 0 && cols > 0, "{} rows of {} stored elements", n_rows, cols);
    const std::byte* begin = data + static_cast<std::size_t>(first_row) * row_step;
    const std::size_t to_last_row = static_cast<std::size_t>(n_rows - 1) * row_step;
    if (scales == nullptr)
        return {std::span(begin,
                          to_last_row + static_cast<std::size_t>(cols - 1) * col_step + dtype_info(type).block_bytes),
                {}};
    const auto n_blocks = static_cast<std::size_t>(cols / kBlock);
    return {std::span(begin, to_last_row + n_blocks * kCodeBytes),
            std::span(scales + static_cast<std::size_t>(first_row) * scale_row_step,
                      static_cast<std::size_t>(n_rows - 1) * scale_row_step + n_blocks)};
}

void StoredMatrix::read_rows(DType type, std::int64_t first_row, std::int64_t n_rows, std::int64_t cols,
                             std::byte* out) const {
    CHECK(!empty() && (scales != nullptr) == (type == DType::MXFP4) && cols % dtype_info(type).block_elements == 0,
          "{} stored columns of {}", cols, dtype_name(type));
    if (scales == nullptr) {
        const std::size_t bytes = dtype_info(type).block_bytes;
        CHECK(bytes == 2 || bytes == 4, "stored elements of {} bytes", bytes);
        return bytes == 2 ? gather<2>(*this, first_row, n_rows, cols, out)
                          : gather<4>(*this, first_row, n_rows, cols, out);
    }
    for (std::int64_t row = first_row; row < first_row + n_rows; ++row)
        for (std::int64_t block = 0; block < cols / kBlock; ++block, out += kPackedBytes)
            repack_block(data + static_cast<std::size_t>(row) * row_step + static_cast<std::size_t>(block) * kCodeBytes,
                         scales[static_cast<std::size_t>(row) * scale_row_step + static_cast<std::size_t>(block)], out);
}

}  // namespace slipstream
