#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "kernels/base/checked_math.h"
#include "kernels/elementwise.h"
#include "tools/lab/ops/ops_bench.h"

namespace slipstream::tools::ops {

namespace {

constexpr std::int64_t kModelCols = 4096;
constexpr std::int64_t kFeedForwardCols = 14336;
constexpr std::int64_t kHeadDim = 128;
constexpr std::size_t kCalls = 64;  // calls of an op in a run

}  // namespace

void time_row_ops(const Bench& bench) {
    const Options& options = bench.options;
    for (const std::int64_t n : options.n_tokens) {
        if (bench.skips(n)) continue;
        const auto report = [&](std::string op, std::int64_t cols, double rows_moved, const auto& call) {
            if (!options.wants(op)) return;
            const Timing timing = time_runs(options.n_threads, [&] {
                for (std::size_t i = 0; i < kCalls; ++i) call();
            });
            bench.report({.op = std::move(op),
                          .shape = fmt::format("[{}]", cols),
                          .type = "F32",
                          .n_tokens = n,
                          .bytes = rows_moved * static_cast<double>(n * cols) * sizeof(float),
                          .operations = 0,
                          .n_calls = kCalls,
                          .timing = timing});
        };
        const Buffer a = float_rows(bench, n, kFeedForwardCols);
        const Buffer b = float_rows(bench, n, kFeedForwardCols);
        const Buffer y = float_rows(bench, n, kFeedForwardCols);
        const Buffer angles = float_rows(bench, n, kHeadDim);
        // All rotations are by 45 degrees: the lengths of vectors stay the same from call to call.
        std::fill_n(reinterpret_cast<float*>(angles.data()), n * kHeadDim, std::sqrt(0.5F));
        const auto in = [&](const Buffer& buffer, std::int64_t cols) {
            return matrix_view<const std::byte>(buffer.data(), DType::F32, n, cols);
        };
        const auto out = [&](const Buffer& buffer, std::int64_t cols) {
            return matrix_view(buffer.data(), DType::F32, n, cols);
        };
        const ConstTensorView gains = vector_view<const std::byte>(b.data(), DType::F32, kModelCols);
        report("rms_norm", kModelCols, 2,
               [&] { rms_norm(bench.exec(), {.x = in(a, kModelCols), .weight = gains, .y = out(y, kModelCols)}); });
        report("add", kModelCols, 3, [&] { add(bench.exec(), {.x = in(a, kModelCols), .y = out(y, kModelCols)}); });
        report("rope", kModelCols, 2, [&] {
            rope(bench.exec(), {.x = out(y, kModelCols), .cos_sin = in(angles, kHeadDim), .head_dim = kHeadDim});
        });
        for (const GatedActivation kind : {GatedActivation::Silu, GatedActivation::GeluTanh})
            report(kind == GatedActivation::Silu ? "silu" : "gelu_tanh", kFeedForwardCols, 3, [&] {
                gated_activation(bench.exec(), {.gate = in(a, kFeedForwardCols),
                                                .up = in(b, kFeedForwardCols),
                                                .y = out(y, kFeedForwardCols),
                                                .kind = kind});
            });
        report("softcap", kFeedForwardCols, 2,
               [&] { softcap(bench.exec(), {.y = out(y, kFeedForwardCols), .cap = 30.0F}); });
        std::vector<std::int32_t> tokens;
        const auto vocab = static_cast<std::int64_t>(kMemoryBytes / row_bytes(DType::F32, kModelCols));
        for (std::int64_t t = 0; t < n; ++t) tokens.push_back(static_cast<std::int32_t>(t * 7919 % vocab));
        report("embed", kModelCols, 2, [&] {
            embed(bench.exec(), {.table = matrix_view<const std::byte>(bench.memory, DType::F32, vocab, kModelCols),
                                 .tokens = tokens.data(),
                                 .y = out(y, kModelCols)});
        });
    }
}

}  // namespace slipstream::tools::ops
