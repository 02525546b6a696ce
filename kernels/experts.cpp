// Argument checks of the ops of a mixture of experts, and dispatch to the device's backend.
#include "kernels/experts.h"

#include "kernels/float_views.h"
#include "kernels/op_table.h"

namespace slipstream {

void choose_experts(ExecRef exec, const ChooseExpertsArgs& args) {
    const std::int64_t n_tokens = args.logits.rows();
    const std::int64_t n_experts = args.logits.cols();
    CHECK(args.logits.rank == 2 && is_floats(args.logits, n_tokens, n_experts) && args.n_chosen >= 1 &&
              args.n_chosen <= n_experts,
          "choose_experts: {} of {}, {} tokens", args.n_chosen, n_experts, n_tokens);
    CHECK(args.bias.empty() || (args.weighting.score == ExpertScore::Sigmoid && is_floats(args.bias, 1, n_experts)),
          "choose_experts: a bias of {} numbers", args.bias.cols());
    CHECK(args.scales.empty() || is_floats(args.scales, 1, n_experts), "choose_experts: {} scales", args.scales.cols());
    if (n_tokens == 0) return;
    CHECK(args.ids != nullptr && args.weights != nullptr);
    exec.device.ops().choose_experts(exec, args);
}

void combine_experts(ExecRef exec, const CombineExpertsArgs& args) {
    const std::int64_t n_rows = args.rows.rows();
    const std::int64_t d = args.sums.cols();
    CHECK(is_floats(args.sums, args.sums.rows(), d) && is_floats(args.rows, n_rows, d) &&
              (n_rows == 0 || (args.tokens != nullptr && args.weights != nullptr)),
          "combine_experts of {} rows to [{}, {}]", n_rows, args.sums.rows(), d);
    for (std::int64_t row = 0; row < n_rows; ++row)
        CHECK(args.tokens[row] >= 0 && args.tokens[row] < args.sums.rows(), "row {} of token {} of {}", row,
              args.tokens[row], args.sums.rows());
    exec.device.ops().combine_experts(exec, args);
}

}  // namespace slipstream
