// Argument checks of the ops of delta nets, and dispatch to the device's backend.
#include "kernels/delta_net.h"

#include "kernels/float_views.h"
#include "kernels/op_table.h"

namespace slipstream {

void delta_net(ExecRef exec, const DeltaNetArgs& args) {
    const DeltaNetShape& shape = args.shape;
    const std::int64_t n_rows = args.rows.rows();
    const std::int64_t n_steps = std::ssize(args.steps);
    CHECK(!shape.empty() && shape.n_value_heads % shape.n_key_heads == 0 && shape.conv_width >= 2 &&
              shape.conv_width <= kMostTaps && is_floats(args.rows, n_rows, shape.row_cols()) &&
              is_floats(args.out, n_rows, shape.value_cols()) && args.n_kept >= 0 && args.n_kept <= n_steps,
          "delta_net of {} rows, {} of {} steps kept", n_rows, args.n_kept, n_steps);
    std::int64_t n_results = 0;
    for (std::int64_t i = 0; i < n_steps; ++i) {
        const DeltaStep& step = args.steps[i];
        n_results += step.row >= 0 ? 1 : 0;
        CHECK(step.row < n_rows && step.parent < i && step.parent >= -1 && step.from >= 0 && step.to >= 0 &&
                  step.from < args.n_working && step.to < args.n_working && (step.row >= 0 || args.stored != nullptr),
              "step {}: row {} of {}, parent {}, states {} to {} of {}", i, step.row, n_rows, step.parent, step.from,
              step.to, args.n_working);
        CHECK(i >= args.n_kept || (step.parent == i - 1 && step.from == 0 && step.to == 0), "kept step {} of {}", i,
              args.n_kept);
    }
    CHECK(n_results == n_rows && (args.n_kept == 0 || (args.kept_state != nullptr && args.kept_taps != nullptr)),
          "{} results for {} rows", n_results, n_rows);
    if (n_steps == 0) return;
    CHECK(args.conv != nullptr && args.decay_rates != nullptr && args.decay_bias != nullptr && args.state != nullptr &&
          args.taps != nullptr && args.convolved != nullptr);
    exec.device.ops().delta_net(exec, args);
}

void gather_columns(ExecRef exec, const GatherColumnsArgs& args) {
    const std::int64_t n_rows = args.y.rows();
    const std::int64_t n_runs = args.run > 0 ? args.y.cols() / args.run : 0;
    CHECK(args.run > 0 && args.y.cols() == n_runs * args.run && is_floats(args.y, n_rows, args.y.cols()) &&
              is_floats(args.x, n_rows, args.x.cols()) && args.first >= 0 && args.stride >= args.run &&
              args.first + (n_runs - 1) * args.stride + args.run <= args.x.cols(),
          "gather_columns: {} runs of {} from {} every {} of {}", n_runs, args.run, args.first, args.stride,
          args.x.cols());
    exec.device.ops().gather_columns(exec, args);
}

}  // namespace slipstream
