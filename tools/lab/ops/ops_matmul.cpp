#include <fmt/format.h>

#include "kernels/base/error.h"
#include "kernels/matmul.h"
#include "tools/lab/ops/ops_bench.h"

namespace slipstream::tools::ops {

void time_matmul(const Bench& bench, DType type) {
    const Options& options = bench.options;
    if (options.cols % dtype_info(type).block_elements != 0) {
        if (!options.type) return;
        throw RequestError(fmt::format("--cols {}: {} comes in blocks of {}", options.cols, dtype_name(type),
                                       dtype_info(type).block_elements));
    }
    const std::size_t matrix_bytes = packed_bytes(type, options.rows, options.cols);
    if (matrix_bytes > kMemoryBytes)
        throw RequestError(fmt::format("--rows {} --cols {}: a matrix of {} bytes, at most {}", options.rows,
                                       options.cols, matrix_bytes, kMemoryBytes));
    for (const std::int64_t n : options.n_tokens) {
        if (bench.skips(n)) continue;
        const std::size_t all = kMemoryBytes / matrix_bytes;
        const bool few = bench.device.form() == CpuForm::Scalar || n > kTokensFromMemory;
        const std::size_t n_matrices = few ? std::min<std::size_t>(all, 2) : all;
        const Buffer x = float_rows(bench, n, options.cols);
        const Buffer y = float_rows(bench, n, options.rows);
        const Timing timing = time_runs(options.n_threads, [&] {
            for (std::size_t i = 0; i < n_matrices; ++i) {
                // The bytes of bench.memory are valid weights in either layout.
                ConstTensorView weights =
                    matrix_view<const std::byte>(bench.memory + i * matrix_bytes, type, options.rows, options.cols);
                weights.layout = options.layout;
                matmul(bench.exec(), {.weights = weights,
                                      .x = matrix_view<const std::byte>(x.data(), DType::F32, n, options.cols),
                                      .y = matrix_view(y.data(), DType::F32, n, options.rows),
                                      .bias = {}});
            }
        });
        bench.report({.op = "matmul",
                      .shape = fmt::format("[{}, {}]", options.rows, options.cols),
                      .type = std::string(dtype_name(type)),
                      .n_tokens = n,
                      .bytes = static_cast<double>(matrix_bytes),
                      .operations = 2.0 * static_cast<double>(options.rows * options.cols * n),
                      .n_calls = n_matrices,
                      .timing = timing});
    }
}

}  // namespace slipstream::tools::ops
