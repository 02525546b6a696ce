// Choosing tokens on a CUDA device, kSamplingRows rows per launch.
#include <algorithm>
#include <cstdint>

#include <fmt/format.h>

#include "kernels/cuda/host/cuda_op.h"
#include "kernels/cuda/op_table.h"
#include "kernels/cuda/sampling_launch.h"
#include "kernels/cuda/sampling_plan.h"
#include "kernels/sampling.h"

namespace slipstream::cuda {

static_assert(kMostTopLogits == kMaxTopK);

namespace {

// Calls launch(op, rows, first) for one range of rows after another; `first` is the number of the range's first row.
template <typename Launch>
void for_launches(ExecRef exec, const ConstTensorView& logits, const Launch& launch) {
    const std::int64_t n_rows = logits.rows();
    for (std::int64_t first = 0; first < n_rows; first += kSamplingRows) {
        Op op(exec);
        launch(op,
               LogitRows{.logits = float_row(logits, first),
                         .stride = static_cast<std::int64_t>(logits.row_stride_bytes / sizeof(float)),
                         .n = static_cast<std::int32_t>(std::min(kSamplingRows, n_rows - first)),
                         .vocab = static_cast<std::int32_t>(logits.cols())},
               first);
    }
}

}  // namespace

void logit_argmax(ExecRef exec, const LogitArgmaxArgs& args) {
    for_launches(exec, args.logits, [&](Op& op, const LogitRows& rows, std::int64_t first) {
        op.launch(&Module::argmax,
                  ArgmaxLaunch{.rows = rows,
                               .ids = args.ids + first,
                               .values = args.values + first,
                               .scratch = op.scratch(argmax_scratch_bytes(rows.n, rows.vocab))},
                  [&] { return fmt::format("logit_argmax of [{}, {}]", rows.n, rows.vocab); });
    });
}

void logit_top_k(ExecRef exec, const LogitTopKArgs& args) {
    const auto k = static_cast<std::int32_t>(args.k);
    for_launches(exec, args.logits, [&](Op& op, const LogitRows& rows, std::int64_t first) {
        op.launch(&Module::top_k,
                  TopKLaunch{.rows = rows,
                             .k = k,
                             .ids = args.ids + first * k,
                             .values = args.values + first * k,
                             .scratch = op.scratch(top_k_scratch_bytes(rows.n, rows.vocab, k))},
                  [&] { return fmt::format("the {} best of [{}, {}]", k, rows.n, rows.vocab); });
    });
}

void logit_gumbel(ExecRef exec, const LogitGumbelArgs& args) {
    for_launches(exec, args.logits, [&](Op& op, const LogitRows& rows, std::int64_t first) {
        op.launch(&Module::gumbel,
                  GumbelLaunch{.rows = rows,
                               .positions = op.stage(args.positions + first, rows.n),
                               .seed = args.seed,
                               .temperature = args.temperature,
                               .ids = args.ids + first,
                               .scores = args.scores + first,
                               .scratch = op.scratch(gumbel_scratch_bytes(rows.n, rows.vocab))},
                  [&] { return fmt::format("logit_gumbel of [{}, {}]", rows.n, rows.vocab); });
    });
}

void logit_sum(ExecRef exec, const LogitSumArgs& args) {
    for_launches(exec, args.logits, [&](Op& op, const LogitRows& rows, std::int64_t first) {
        op.launch(&Module::logit_sum,
                  LogitSumLaunch{.rows = rows,
                                 .greatest = args.greatest + first * args.greatest_stride,
                                 .greatest_stride = args.greatest_stride,
                                 .inverse_temperature = static_cast<float>(1.0 / args.temperature),
                                 .sums = args.sums + first,
                                 .scratch = op.scratch(logit_sum_scratch_bytes(rows.n, rows.vocab))},
                  [&] { return fmt::format("logit_sum of [{}, {}]", rows.n, rows.vocab); });
    });
}

}  // namespace slipstream::cuda
