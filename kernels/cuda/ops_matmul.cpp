// Matmul on a CUDA device, and the packing that it wants of weights.
//
// Activations are rounded and laid out in scratch by each launch. Matrices that meet the same x one after the other (q,
// k and v; gate and up; parts of one matrix) find them there: nothing but matmuls came between, and none writes its x.
#include <algorithm>
#include <cstdint>

#include <fmt/format.h>

#include "kernels/cuda/cuda_op.h"
#include "kernels/cuda/fragments.h"
#include "kernels/cuda/matmul_launch.h"
#include "kernels/cuda/matmul_plan.h"
#include "kernels/cuda/op_table.h"
#include "kernels/cuda/ops_prompt.h"
#include "kernels/matmul.h"
#include "kernels/pack_weights.h"

namespace slipstream::cuda {

namespace {

template <typename View>
std::int64_t stride_floats(const View& view) {
    return static_cast<std::int64_t>(view.row_stride_bytes / sizeof(float));
}

}  // namespace

void matmul(ExecRef exec, const MatmulArgs& args) {
    const ConstTensorView& weights = args.weights;
    const std::int64_t m = weights.shape[0];
    const std::int64_t k = weights.shape[1];
    const std::int64_t n_tokens = args.x.shape[0];
    CHECK(weights.layout == Layout::Fragments16 && n_tokens <= std::int64_t{1} << 30, "matmul by weights of layout {}",
          static_cast<int>(weights.layout));
    if (prompt_takes(static_cast<CudaDevice&>(exec.device), args)) return prompt_matmul(exec, args);
    Op op(exec);
    MatmulLaunch launch{.dtype = static_cast<std::int32_t>(weights.dtype),
                        .n_tokens = static_cast<std::int32_t>(n_tokens),
                        .m = m,
                        .k = k,
                        .weights = weights.data,
                        .x = float_row(args.x, 0),
                        .x_stride = stride_floats(args.x),
                        .y = float_row(args.y, 0),
                        .y_stride = stride_floats(args.y),
                        .bias = args.bias.empty() ? nullptr : float_row(args.bias, 0),
                        .scratch = op.scratch(matmul_scratch_bytes(weights.dtype, k, n_tokens)),
                        .store = args.store == MatmulStore::Add ? MatmulStoreForm::Add : MatmulStoreForm::Overwrite,
                        .n_multiprocessors = op.device().properties().n_multiprocessors};
    constexpr std::int64_t kFewTokens = 64;  // more may go by tiles
    if (op.device().weights_by_registers() && n_tokens <= kFewTokens) launch.form = MatmulForm::SplitRegisters;
    PreparedActivations prepared{.x = launch.x,
                                 .x_stride = launch.x_stride,
                                 .k = k,
                                 .n_tokens = n_tokens,
                                 .kind = static_cast<std::int32_t>(matmul_scratch_kind(weights.dtype)),
                                 .scratch = launch.scratch,
                                 .change = op.device().n_changes()};
    if (op.device().finds_prepared(prepared)) launch.activations = MatmulActivations::Prepared;
    op.device().keep_prepared({});  // until the launch has come to its end
    op.launch(&Module::matmul, launch,
              [&] { return fmt::format("matmul {} [{}, {}] x {} tokens", dtype_name(weights.dtype), m, k, n_tokens); });
    op.device().keep_prepared(prepared);
}

// Both in host memory; groups are dealt out among the device's host threads.
void pack_weights(ExecRef exec, const PackWeightsArgs& args) {
    const FileRows rows{.dtype = args.weights.dtype,
                        .data = args.weights.data,
                        .stride_bytes = args.weights.row_stride_bytes,
                        .n_rows = args.weights.shape[0],
                        .k = args.weights.shape[1]};
    const std::int64_t n_groups = (rows.n_rows + kInterleavedRows - 1) / kInterleavedRows;
    static_cast<CudaDevice&>(exec.device).pool().run(n_groups, 4, [&](std::int64_t begin, std::int64_t end, int) {
        pack_fragments(rows, begin, end, args.packed.data);
    });
}

}  // namespace slipstream::cuda
