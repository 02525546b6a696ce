// A check that ops make of their arguments.
#pragma once

#include "kernels/base/tensor_view.h"

namespace slipstream {

/// Whether `view` is row-major floats of this shape.
template <typename Byte>
[[nodiscard]] bool is_floats(const BasicTensorView<Byte>& view, std::int64_t rows, std::int64_t cols) {
    return view.dtype == DType::F32 && view.layout == Layout::RowMajor && view.rows() == rows && view.cols() == cols &&
           (view.data != nullptr || rows * cols == 0);
}

}  // namespace slipstream
