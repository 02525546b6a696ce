// Argument checks of the ops that choose tokens, and dispatch to the device's backend.
#include "kernels/sampling.h"

#include <cmath>
#include <limits>

#include "kernels/op_table.h"

namespace slipstream {

namespace {

// Whether `logits` are row-major rows of floats over a vocabulary of at most 2^31 - 1 tokens: token ids have 32 bits on
// every device.
bool is_logits(const ConstTensorView& logits) {
    return logits.dtype == DType::F32 && logits.rank == 2 && logits.layout == Layout::RowMajor && logits.cols() > 0 &&
           logits.cols() <= std::numeric_limits<std::int32_t>::max() && (!logits.empty() || logits.rows() == 0);
}

bool is_temperature(double temperature) {
    return std::isfinite(temperature) && temperature > 0.0;
}

}  // namespace

void logit_argmax(ExecRef exec, const LogitArgmaxArgs& args) {
    const std::int64_t n = args.logits.rows();
    CHECK(is_logits(args.logits) && (n == 0 || (args.ids != nullptr && args.values != nullptr)),
          "logit_argmax of [{}, {}]", n, args.logits.cols());
    exec.device.ops().logit_argmax(exec, args);
}

void logit_top_k(ExecRef exec, const LogitTopKArgs& args) {
    const std::int64_t n = args.logits.rows();
    CHECK(is_logits(args.logits) && args.k >= 1 && args.k <= kMostTopLogits &&
              (n == 0 || (args.ids != nullptr && args.values != nullptr)),
          "the {} best of [{}, {}]", args.k, n, args.logits.cols());
    exec.device.ops().logit_top_k(exec, args);
}

void logit_gumbel(ExecRef exec, const LogitGumbelArgs& args) {
    const std::int64_t n = args.logits.rows();
    CHECK(is_logits(args.logits) && is_temperature(args.temperature) &&
              (n == 0 || (args.positions != nullptr && args.ids != nullptr && args.scores != nullptr)),
          "logit_gumbel of [{}, {}], temperature {}", n, args.logits.cols(), args.temperature);
    for (std::int64_t i = 0; i < n; ++i) CHECK(args.positions[i] >= 0, "position {}", args.positions[i]);
    exec.device.ops().logit_gumbel(exec, args);
}

void logit_sum(ExecRef exec, const LogitSumArgs& args) {
    const std::int64_t n = args.logits.rows();
    CHECK(is_logits(args.logits) && is_temperature(args.temperature) && args.greatest_stride >= 1 &&
              (n == 0 || (args.greatest != nullptr && args.sums != nullptr)),
          "logit_sum of [{}, {}], temperature {}", n, args.logits.cols(), args.temperature);
    exec.device.ops().logit_sum(exec, args);
}

}  // namespace slipstream
