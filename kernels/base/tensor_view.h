// Non-owning typed views. Row-major, last dimension fastest. A view never allocates, converts or copies; the owner of
// the memory must keep it alive. Rows may be padded (row_stride_bytes); the elements of a row are contiguous. Views of
// packed weights (Layout) are the exception: only the ops that read packed weights know the order of their elements.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/base/check.h"
#include "kernels/base/dtype.h"

namespace slipstream {

inline constexpr int kMaxRank = 4;

/// Order of the elements of a matrix in memory.
enum class Layout : std::uint8_t {
    RowMajor,
    Interleaved16,  // weights packed for a CPU device: groups of 16 rows, one 32-bit lane per row
                    // (kernels/cpu/matmul/interleaved.h)
    Fragments16,    // weights packed for a CUDA device: groups of 16 rows, in the order of mma fragments
                    // (kernels/cuda/matmul/fragments.h)
};
inline constexpr std::int64_t kInterleavedRows = 16;  // rows of a row group, in every packed layout

/// The members of both kinds of view. `Byte` is std::byte in TensorView and const std::byte in ConstTensorView.
template <typename Byte>
struct BasicTensorView {
    Byte* data = nullptr;
    DType dtype = DType::F32;
    int rank = 0;
    std::array<std::int64_t, kMaxRank> shape{};  // e.g. [n_tokens, d_model]
    std::size_t row_stride_bytes = 0;            // from the start of a row (last dimension) to the start of the next
    Layout layout = Layout::RowMajor;            // if packed: rank is 2, row groups are 16 * row_stride_bytes apart

    [[nodiscard]] bool empty() const { return data == nullptr; }
    /// Length of the last dimension.
    [[nodiscard]] std::int64_t cols() const { return rank == 0 ? 0 : shape[rank - 1]; }
    /// Product of all dimensions but the last.
    [[nodiscard]] std::int64_t rows() const {
        std::int64_t n = rank == 0 ? 0 : 1;
        for (int i = 0; i + 1 < rank; ++i) n *= shape[i];
        return n;
    }
    [[nodiscard]] Byte* row(std::int64_t index) const {
        DCHECK(layout == Layout::RowMajor);
        return data + static_cast<std::size_t>(index) * row_stride_bytes;
    }
    /// Whether the rows follow one another without padding (not whether `layout` is a packed one).
    [[nodiscard]] bool packed() const { return row_stride_bytes == row_bytes(dtype, cols()); }
    /// Returns a view of rows [begin, begin + count). The rank must be 2, and in a packed layout `begin` must be a
    /// multiple of kInterleavedRows (both CHECKed).
    [[nodiscard]] BasicTensorView slice_rows(std::int64_t begin, std::int64_t count) const {
        CHECK(rank == 2 && begin >= 0 && count >= 0 && begin + count <= shape[0], "rows [{}, +{}) of {}", begin, count,
              shape[0]);
        CHECK(layout == Layout::RowMajor || begin % kInterleavedRows == 0, "packed rows from {}", begin);
        BasicTensorView part = *this;
        part.data = data + static_cast<std::size_t>(begin) * row_stride_bytes;
        part.shape[0] = count;
        return part;
    }
    // Implicit: a view of mutable memory can be passed where a read-only view is expected.
    operator BasicTensorView<const std::byte>() const requires(!std::is_const_v<Byte>) {
        return {data, dtype, rank, shape, row_stride_bytes, layout};
    }
};

using TensorView = BasicTensorView<std::byte>;
using ConstTensorView = BasicTensorView<const std::byte>;

/// Returns a row-major view of rank 2, [rows, cols], without padding.
template <typename Byte>
[[nodiscard]] BasicTensorView<Byte> matrix_view(Byte* data, DType dtype, std::int64_t rows, std::int64_t cols) {
    return {data, dtype, 2, {rows, cols}, row_bytes(dtype, cols), Layout::RowMajor};
}

/// Returns a view of rank 1, [cols].
template <typename Byte>
[[nodiscard]] BasicTensorView<Byte> vector_view(Byte* data, DType dtype, std::int64_t cols) {
    return {data, dtype, 1, {cols}, row_bytes(dtype, cols), Layout::RowMajor};
}

/// Returns a row-major F32 view, [rows, cols], without padding.
[[nodiscard]] inline TensorView matrix_view(float* data, std::int64_t rows, std::int64_t cols) {
    return matrix_view(reinterpret_cast<std::byte*>(data), DType::F32, rows, cols);
}
[[nodiscard]] inline ConstTensorView matrix_view(const float* data, std::int64_t rows, std::int64_t cols) {
    return matrix_view(reinterpret_cast<const std::byte*>(data), DType::F32, rows, cols);
}

/// Returns a pointer to the floats of a row. The view must be F32 (checked by DCHECK only).
template <typename Byte>
[[nodiscard]] auto* float_row(const BasicTensorView<Byte>& view, std::int64_t row) {
    DCHECK(view.dtype == DType::F32);
    using Float = std::conditional_t<std::is_const_v<Byte>, const float, float>;
    return reinterpret_cast<Float*>(view.row(row));
}

}  // namespace slipstream
