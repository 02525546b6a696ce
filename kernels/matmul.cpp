#include "kernels/matmul.h"

#include <cstdint>

#include "kernels/base/checked_math.h"
#include "kernels/experts.h"
#include "kernels/op_table.h"

namespace slipstream {

namespace {

/// Whether the bytes that two views of rank 1 or 2 cover overlap, from the first byte of each to its last.
template <typename Byte>
bool overlap(const BasicTensorView<Byte>& a, const TensorView& b) {
    const auto first = [](const auto& view) { return reinterpret_cast<std::uintptr_t>(view.data); };
    const auto last = [&](const auto& view) {
        const std::int64_t rows =
            view.layout == Layout::RowMajor ? view.rows() : round_up(view.rows(), kInterleavedRows);
        return first(view) + (rows - 1) * view.row_stride_bytes + row_bytes(view.dtype, view.cols());
    };
    if (a.rows() == 0 || a.cols() == 0 || b.rows() == 0 || b.cols() == 0) return false;
    return first(a) < last(b) && first(b) < last(a);
}

template <typename Byte>
void check_matrix(const BasicTensorView<Byte>& view, std::int64_t rows, std::int64_t cols, const char* what) {
    CHECK(view.rank == 2 && view.shape[0] == rows && view.shape[1] == cols,
          "{} has {} dimensions, shape [{}, {}], not [{}, {}]", what, view.rank, view.shape[0], view.shape[1], rows,
          cols);
    CHECK(rows >= 0 && cols >= 0, "{} has shape [{}, {}]", what, rows, cols);
    if (rows == 0 || cols == 0) return;
    CHECK(!view.empty(), "{} [{}, {}] without memory", what, rows, cols);
    CHECK(rows == 1 || view.row_stride_bytes >= row_bytes(view.dtype, cols), "{} rows of {} bytes every {}", what,
          row_bytes(view.dtype, cols), view.row_stride_bytes);
}

template <typename Byte>
void check_floats(const BasicTensorView<Byte>& view, const char* what) {
    CHECK(view.dtype == DType::F32, "{} is {}, not F32", what, dtype_name(view.dtype));
    CHECK(reinterpret_cast<std::uintptr_t>(view.data) % alignof(float) == 0 &&
              (view.rows() <= 1 || view.row_stride_bytes % alignof(float) == 0),
          "{} is not aligned to float", what);
}

void check_product(const MatmulArgs& args) {
    const std::int64_t m = args.weights.shape[0];
    const std::int64_t k = args.weights.shape[1];
    const std::int64_t n_tokens = args.x.shape[0];
    check_matrix(args.weights, m, k, "weights");
    check_matrix(args.x, n_tokens, k, "x");
    check_matrix(args.y, n_tokens, m, "y");
    CHECK(k % dtype_info(args.weights.dtype).block_elements == 0, "K = {} in blocks of {}", k,
          dtype_name(args.weights.dtype));
    CHECK(args.x.layout == Layout::RowMajor && args.y.layout == Layout::RowMajor, "only weights are interleaved");
    CHECK(args.weights.layout == Layout::RowMajor || args.weights.packed(), "packed rows of {} bytes every {}",
          row_bytes(args.weights.dtype, k), args.weights.row_stride_bytes);
    check_floats(args.x, "x");
    check_floats(args.y, "y");
    CHECK(!overlap(args.x, args.y) && !overlap(args.weights, args.y), "y overlaps an input");
    if (!args.bias.empty()) {
        CHECK(args.bias.rank == 1 && args.bias.shape[0] == m, "bias has {} dimensions, length {}, not {}",
              args.bias.rank, args.bias.cols(), m);
        check_floats(args.bias, "bias");
        CHECK(!overlap(args.bias, args.y), "y overlaps the bias");
    }
    if (const std::optional<PrefillChunk>& chunk = args.prompt)
        CHECK(chunk->first_token >= 0 && chunk->first_token + n_tokens <= kPrefillChunkTokens &&
                  chunk->first_row >= 0 && chunk->first_row % kInterleavedRows == 0 &&
                  chunk->first_row + m <= chunk->matrix_rows,
              "{} tokens from {} of a prefill chunk, {} rows from {} of {}", n_tokens, chunk->first_token, m,
              chunk->first_row, chunk->matrix_rows);
}

}  // namespace

void matmul(ExecRef exec, const MatmulArgs& args) {
    check_product(args);
    if (args.weights.shape[0] == 0 || args.x.shape[0] == 0) return;
    exec.device.ops().matmul(exec, args);
}

void grouped_matmul(ExecRef exec, std::span<const MatmulArgs> products) {
    for (const MatmulArgs& args : products) {
        check_product(args);
        CHECK(args.weights.shape[0] > 0 && args.x.shape[0] > 0, "a grouped product of [{}, {}] by {} rows",
              args.weights.shape[0], args.weights.shape[1], args.x.shape[0]);
    }
    if (!products.empty()) exec.device.ops().grouped_matmul(exec, products);
}

void matmuls(ExecRef exec, std::span<const MatmulArgs> products) {
    const OpTable& ops = exec.device.ops();
    for (const MatmulArgs& args : products) {
        check_product(args);
        CHECK(args.x.data == products[0].x.data && args.x.shape == products[0].x.shape &&
                  args.x.row_stride_bytes == products[0].x.row_stride_bytes,
              "products of several x");
        if (ops.matmuls == nullptr && args.weights.shape[0] > 0 && args.x.shape[0] > 0) ops.matmul(exec, args);
    }
    if (ops.matmuls != nullptr && !products.empty() && products[0].x.shape[0] > 0) ops.matmuls(exec, products);
}

}  // namespace slipstream
