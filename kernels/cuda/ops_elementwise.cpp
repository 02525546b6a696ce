// The small ops on a CUDA device. Nothing is launched if there are no rows.
#include <cstdint>

#include <fmt/format.h>

#include "kernels/cuda/elementwise_launch.h"
#include "kernels/cuda/host/cuda_op.h"
#include "kernels/cuda/host/preparation.h"
#include "kernels/cuda/op_table.h"
#include "kernels/elementwise.h"

namespace slipstream::cuda {

namespace {

template <typename View>
std::int64_t stride_floats(const View& view) {
    return static_cast<std::int64_t>(view.row_stride_bytes / sizeof(float));
}

GateKind gate_kind(GatedActivation kind) {
    switch (kind) {
        case GatedActivation::Silu:
            return GateKind::Silu;
        case GatedActivation::GeluTanh:
            return GateKind::GeluTanh;
        case GatedActivation::Sigmoid:
            return GateKind::Sigmoid;
        case GatedActivation::ClampedSilu:
            return GateKind::ClampedSilu;
    }
    check_failed(__FILE__, __LINE__, "kind", "no such gate");
}

}  // namespace

void rms_norm(ExecRef exec, const RmsNormArgs& args) {
    Op op(exec);
    if (args.x.rows() == 0 || args.x.cols() == 0) return;
    Preparation preparation(op, args.next, args.y);
    const RmsNormLaunch launch{.n_rows = args.x.rows(),
                               .d = args.x.cols(),
                               .x = float_row(args.x, 0),
                               .x_stride = stride_floats(args.x),
                               .weight = args.weight.empty() ? nullptr : float_row(args.weight, 0),
                               .y = float_row(args.y, 0),
                               .y_stride = stride_floats(args.y),
                               .eps = args.eps,
                               .prepare = preparation.target()};
    op.launch(&Module::rms_norm, launch,
              [&] { return fmt::format("rms_norm [{}, {}]", args.x.rows(), args.x.cols()); });
    preparation.keep();
}

void rope(ExecRef exec, const RopeArgs& args) {
    Op op(exec);
    if (args.x.rows() == 0 || args.x.cols() == 0 || args.cos_sin.cols() == 0) return;
    const RopeLaunch launch{.n_tokens = args.x.rows(),
                            .n_heads = static_cast<std::int32_t>(args.x.cols() / args.head_dim),
                            .head_dim = static_cast<std::int32_t>(args.head_dim),
                            .n_rotated = static_cast<std::int32_t>(args.cos_sin.cols()),
                            .pairs = args.layout == RopeLayout::Half ? RopePairs::Half : RopePairs::Interleaved,
                            .x = float_row(args.x, 0),
                            .x_stride = stride_floats(args.x),
                            .cos_sin = float_row(args.cos_sin, 0),
                            .cos_sin_stride = stride_floats(args.cos_sin)};
    op.launch(&Module::rope, launch, [&] {
        return fmt::format("rope of [{}, {}] in heads of {}", args.x.rows(), args.x.cols(), args.head_dim);
    });
}

void gated_activation(ExecRef exec, const GatedActivationArgs& args) {
    Op op(exec);
    if (args.y.rows() == 0 || args.y.cols() == 0) return;
    Preparation preparation(op, args.next, args.y);
    const GatedActivationLaunch launch{.n_rows = args.y.rows(),
                                       .d = args.y.cols(),
                                       .gate = float_row(args.gate, 0),
                                       .gate_stride = stride_floats(args.gate),
                                       .up = float_row(args.up, 0),
                                       .up_stride = stride_floats(args.up),
                                       .y = float_row(args.y, 0),
                                       .y_stride = stride_floats(args.y),
                                       .prepare = preparation.target(),
                                       .kind = gate_kind(args.kind),
                                       .limit = args.limit};
    op.launch(&Module::gated_activation, launch,
              [&] { return fmt::format("gated_activation [{}, {}]", args.y.rows(), args.y.cols()); });
    preparation.keep();
}

void add(ExecRef exec, const AddArgs& args) {
    Op op(exec);
    if (args.y.rows() == 0 || args.y.cols() == 0) return;
    const AddLaunch launch{.n_rows = args.y.rows(),
                           .d = args.y.cols(),
                           .x = float_row(args.x, 0),
                           .x_stride = stride_floats(args.x),
                           .y = float_row(args.y, 0),
                           .y_stride = stride_floats(args.y),
                           .scale = args.scale,
                           .factor = args.factor.empty() ? nullptr : float_row(args.factor, 0)};
    op.launch(&Module::add, launch, [&] { return fmt::format("add [{}, {}]", args.y.rows(), args.y.cols()); });
}

void softcap(ExecRef exec, const SoftcapArgs& args) {
    Op op(exec);
    if (args.y.rows() == 0 || args.y.cols() == 0) return;
    const SoftcapLaunch launch{.n_rows = args.y.rows(),
                               .d = args.y.cols(),
                               .y = float_row(args.y, 0),
                               .y_stride = stride_floats(args.y),
                               .cap = args.cap};
    op.launch(&Module::softcap, launch, [&] { return fmt::format("softcap [{}, {}]", args.y.rows(), args.y.cols()); });
}

}  // namespace slipstream::cuda
