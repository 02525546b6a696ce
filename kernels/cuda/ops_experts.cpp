// The ops of a mixture of experts on a CUDA device.
//
// The choice is the host's, since the host enqueues the products of the chosen experts: the router's logits are copied
// to pinned memory, waited for, and go through the code of CPU devices.
#include <cstdint>

#include <fmt/format.h>

#include "kernels/cpu/experts.h"
#include "kernels/cuda/experts_launch.h"
#include "kernels/cuda/host/cuda_op.h"
#include "kernels/cuda/op_table.h"
#include "kernels/experts.h"

namespace slipstream::cuda {

void choose_experts(ExecRef exec, const ChooseExpertsArgs& args) {
    const std::int64_t n_tokens = args.logits.rows();
    const std::int64_t n_experts = args.logits.cols();
    CHECK(args.logits.packed() || n_tokens == 1, "logits in rows of {} bytes", args.logits.row_stride_bytes);
    Op op(exec);
    CHECK(op.graph() == nullptr, "a choice of experts in a graph: the host waits for it");
    const std::size_t row = row_bytes(DType::F32, n_experts);
    const std::size_t logit_bytes = static_cast<std::size_t>(n_tokens) * row;
    std::byte* const host = op.device().staging().inbox(choice_bytes(n_tokens, n_experts));
    op.stream().copy(host, args.logits.data, logit_bytes);
    if (!args.bias.empty()) op.stream().copy(host + logit_bytes, args.bias.data, row);
    if (!args.scales.empty()) op.stream().copy(host + logit_bytes + row, args.scales.data, row);
    op.stream().synchronize();
    ChooseExpertsArgs read = args;
    read.logits = matrix_view<const std::byte>(host, DType::F32, n_tokens, n_experts);
    if (!args.bias.empty()) read.bias = vector_view<const std::byte>(host + logit_bytes, DType::F32, n_experts);
    if (!args.scales.empty())
        read.scales = vector_view<const std::byte>(host + logit_bytes + row, DType::F32, n_experts);
    constexpr std::int64_t kTokensPerTask = 16;
    op.device().pool().run(n_tokens, kTokensPerTask, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t token = begin; token < end; ++token) cpu::choose_row(read, token);
    });
}

void combine_experts(ExecRef exec, const CombineExpertsArgs& args) {
    Op op(exec);
    const auto stride_floats = [](const auto& view) {
        return static_cast<std::int64_t>(view.row_stride_bytes / sizeof(float));
    };
    const CombineExpertsLaunch launch{.n_rows = args.rows.rows(),
                                      .n_tokens = args.sums.rows(),
                                      .d = args.sums.cols(),
                                      .rows = float_row(args.rows, 0),
                                      .row_stride = stride_floats(args.rows),
                                      .tokens = op.stage(args.tokens, args.rows.rows()),
                                      .weights = op.stage(args.weights, args.rows.rows()),
                                      .sums = float_row(args.sums, 0),
                                      .sum_stride = stride_floats(args.sums),
                                      .from_zero = args.from_zero};
    op.launch(&Module::combine_experts, launch, [&] {
        return fmt::format("combine_experts of {} rows to [{}, {}]", launch.n_rows, launch.n_tokens, launch.d);
    });
}

}  // namespace slipstream::cuda
