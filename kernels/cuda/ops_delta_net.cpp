// The ops of delta nets on a CUDA device.
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include <fmt/format.h>

#include "kernels/cuda/delta_net_launch.h"
#include "kernels/cuda/delta_net_plan.h"
#include "kernels/cuda/host/cuda_op.h"
#include "kernels/cuda/op_table.h"
#include "kernels/delta_net.h"

namespace slipstream::cuda {

namespace {

// Most elements of a head, and most rows of the grid's second dimension times the steps of a row of blocks.
constexpr std::int64_t kMostHeadElements = 1024;
constexpr std::int64_t kMostSteps = std::int64_t{65535} * 8;

template <typename View>
std::int64_t stride_floats(const View& view) {
    return static_cast<std::int64_t>(view.row_stride_bytes / sizeof(float));
}

// Returns the last step before `step` that left its state in working state `state`; -1: none did.
std::int64_t last_writer(std::span<const DeltaStep> steps, std::int64_t step, std::int32_t state) {
    for (--step; step >= 0 && steps[step].to != state;) --step;
    return step;
}

// Writes to `planned` where each step finds the state before its token. A state that is read by the next step alone
// never leaves the registers; the others are saved. Returns whether any is.
bool plan_steps(const DeltaNetArgs& args, std::vector<DeltaNetStep>& planned) {
    planned.clear();
    bool any_saved = false;
    for (std::int64_t i = 0; i < std::ssize(args.steps); ++i) {
        const DeltaStep& step = args.steps[i];
        planned.push_back({.row = step.row, .parent = step.parent});
        const std::int64_t writer = last_writer(args.steps, i, step.from);
        CHECK(writer >= 0 || step.from == 0, "step {} reads working state {}, which none has written", i, step.from);
        if (writer == i - 1) continue;
        std::int32_t& from = planned.back().from;
        if (writer < 0) {
            from = kStateBefore;
        } else if (writer == args.n_kept - 1) {
            from = kKeptState;
        } else {
            from = step.from;
            planned[writer].save = step.from;
            any_saved = true;
        }
    }
    return any_saved;
}

std::size_t state_bytes(const DeltaNetShape& shape, std::int64_t n_working) {
    return static_cast<std::size_t>(shape.state_floats() * n_working) * sizeof(float);
}

bool on_8_bytes(const float* data) {
    return reinterpret_cast<std::uintptr_t>(data) % 8 == 0;
}

}  // namespace

std::size_t delta_net_scratch_bytes(const DeltaNetShape& shape, std::int64_t n_steps) {
    return state_bytes(shape, working_states(n_steps));
}

void delta_net(ExecRef exec, const DeltaNetArgs& args) {
    Op op(exec);
    const DeltaNetShape& shape = args.shape;
    const std::int64_t n_steps = std::ssize(args.steps);
    CHECK(shape.key_dim <= kMostHeadElements && shape.value_dim <= kMostHeadElements && n_steps <= kMostSteps,
          "delta_net of heads of {} and {}, {} steps", shape.key_dim, shape.value_dim, n_steps);
    CHECK(on_8_bytes(args.state) && on_8_bytes(args.kept_state), "states that are not aligned to 8 bytes");
    std::vector<DeltaNetStep>& steps = op.device().delta_steps();
    const bool any_saved = plan_steps(args, steps);
    float* const working =
        any_saved ? reinterpret_cast<float*>(op.scratch(state_bytes(shape, args.n_working))) : nullptr;
    const DeltaNetLaunch launch{.n_key_heads = static_cast<std::int32_t>(shape.n_key_heads),
                                .n_value_heads = static_cast<std::int32_t>(shape.n_value_heads),
                                .key_dim = static_cast<std::int32_t>(shape.key_dim),
                                .value_dim = static_cast<std::int32_t>(shape.value_dim),
                                .conv_width = static_cast<std::int32_t>(shape.conv_width),
                                .tiled = shape.tiled,
                                .n_steps = static_cast<std::int32_t>(n_steps),
                                .n_kept = static_cast<std::int32_t>(args.n_kept),
                                .steps = op.stage(steps.data(), n_steps),
                                .rows = args.rows.rows() > 0 ? float_row(args.rows, 0) : nullptr,
                                .rows_stride = stride_floats(args.rows),
                                .stored = args.stored,
                                .conv = args.conv,
                                .decay_rates = args.decay_rates,
                                .decay_bias = args.decay_bias,
                                .state = args.state,
                                .taps = args.taps,
                                .kept_state = args.kept_state,
                                .kept_taps = args.kept_taps,
                                .convolved = args.convolved,
                                .working = working,
                                .out = args.out.rows() > 0 ? float_row(args.out, 0) : nullptr,
                                .out_stride = stride_floats(args.out),
                                .eps = args.eps,
                                .query_scale = 1.0F / std::sqrt(static_cast<float>(shape.key_dim))};
    op.launch(&Module::delta_net, launch, [&] {
        return fmt::format("delta_net of {} steps, {} heads of {} over {} of {}", n_steps, shape.n_value_heads,
                           shape.value_dim, shape.n_key_heads, shape.key_dim);
    });
}

void gather_columns(ExecRef exec, const GatherColumnsArgs& args) {
    Op op(exec);
    if (args.y.rows() == 0 || args.y.cols() == 0) return;
    const GatherColumnsLaunch launch{.n_rows = args.y.rows(),
                                     .n_cols = static_cast<std::int32_t>(args.y.cols()),
                                     .run = static_cast<std::int32_t>(args.run),
                                     .first = static_cast<std::int32_t>(args.first),
                                     .stride = static_cast<std::int32_t>(args.stride),
                                     .x = float_row(args.x, 0),
                                     .x_stride = stride_floats(args.x),
                                     .y = float_row(args.y, 0),
                                     .y_stride = stride_floats(args.y)};
    op.launch(&Module::gather_columns, launch,
              [&] { return fmt::format("gather_columns [{}, {}]", args.y.rows(), args.y.cols()); });
}

}  // namespace slipstream::cuda
