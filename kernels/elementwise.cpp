// Argument checks of the small ops, and dispatch to the device's backend.
#include "kernels/elementwise.h"

#include <cmath>

#include "kernels/float_views.h"
#include "kernels/op_table.h"

namespace slipstream {

void rms_norm(ExecRef exec, const RmsNormArgs& args) {
    const std::int64_t n_rows = args.x.rows();
    const std::int64_t d = args.x.cols();
    CHECK(is_floats(args.x, n_rows, d) && is_floats(args.y, n_rows, d) &&
              (args.weight.empty() || is_floats(args.weight, 1, d)),
          "rms_norm [{}, {}]", n_rows, d);
    exec.device.ops().rms_norm(exec, args);
}

void rope_table(ExecRef exec, const RopeTableArgs& args) {
    const TensorView& table = args.cos_sin;
    CHECK(table.rank == 2 && is_floats(table, table.rows(), table.cols()) && table.cols() % 2 == 0 &&
              (table.rows() == 0 || (args.positions != nullptr && args.inverse_frequency != nullptr)),
          "rope_table [{}, {}]", table.rows(), table.cols());
    exec.device.ops().rope_table(exec, args);
}

void rope(ExecRef exec, const RopeArgs& args) {
    CHECK(args.x.rank == 2 && is_floats(args.x, args.x.rows(), args.x.cols()) && args.head_dim > 0 &&
              args.x.cols() % args.head_dim == 0 && args.cos_sin.cols() <= args.head_dim &&
              args.cos_sin.cols() % 2 == 0 && is_floats(args.cos_sin, args.x.rows(), args.cos_sin.cols()),
          "rope of [{}, {}] in heads of {} by [{}, {}]", args.x.rows(), args.x.cols(), args.head_dim,
          args.cos_sin.rows(), args.cos_sin.cols());
    exec.device.ops().rope(exec, args);
}

void gated_activation(ExecRef exec, const GatedActivationArgs& args) {
    const std::int64_t n = args.y.rows();
    const std::int64_t d = args.y.cols();
    CHECK(is_floats(args.gate, n, d) && is_floats(args.up, n, d) && is_floats(args.y, n, d),
          "gated_activation [{}, {}]", n, d);
    CHECK(args.kind != GatedActivation::ClampedSilu || (args.limit > 0.0F && std::isfinite(args.limit)),
          "gated_activation clamped to {}", args.limit);
    exec.device.ops().gated_activation(exec, args);
}

void add(ExecRef exec, const AddArgs& args) {
    const std::int64_t n = args.y.rows();
    const std::int64_t d = args.y.cols();
    CHECK(is_floats(args.x, n, d) && is_floats(args.y, n, d) && (args.factor.empty() || is_floats(args.factor, 1, 1)),
          "add [{}, {}]", n, d);
    exec.device.ops().add(exec, args);
}

void softcap(ExecRef exec, const SoftcapArgs& args) {
    const std::int64_t n = args.y.rows();
    const std::int64_t d = args.y.cols();
    CHECK(is_floats(args.y, n, d) && args.cap > 0.0F && std::isfinite(args.cap), "softcap {} of [{}, {}]", args.cap, n,
          d);
    exec.device.ops().softcap(exec, args);
}

void embed(ExecRef exec, const EmbedArgs& args) {
    const std::int64_t n = args.y.rows();
    CHECK(args.table.rank == 2 && is_floats(args.y, n, args.table.cols()) && (n == 0 || args.tokens != nullptr),
          "embed [{}, {}] into [{}, {}]", args.table.rows(), args.table.cols(), n, args.y.cols());
    for (std::int64_t t = 0; t < n; ++t)
        CHECK(args.tokens[t] >= 0 && args.tokens[t] < args.table.rows(), "token {} of a vocabulary of {}",
              args.tokens[t], args.table.rows());
    exec.device.ops().embed(exec, args);
}

}  // namespace slipstream
