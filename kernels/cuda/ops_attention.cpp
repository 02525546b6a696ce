// Attention on a CUDA device: the plan of a call, its arrays and scratch into device memory, the launch.
#include <algorithm>
#include <cstdint>

#include <fmt/format.h>

#include "kernels/attention.h"
#include "kernels/cuda/attention_launch.h"
#include "kernels/cuda/attention_plan.h"
#include "kernels/cuda/cuda_op.h"
#include "kernels/cuda/op_table.h"

namespace slipstream::cuda {

namespace {

// Rows of all paths.
std::int64_t n_path_rows(const AttentionArgs& args) {
    std::int64_t end = 0;
    for (std::int64_t t = 0; t < args.q.rows(); ++t)
        end = std::max(end, args.path_begin[t] + (args.positions[t] - args.n_committed) + 1);
    return end;
}

}  // namespace

void attention(ExecRef exec, const AttentionArgs& args) {
    Op op(exec);
    const AttentionPlan plan = plan_attention(args, op.device().properties().n_multiprocessors);
    AttentionLaunch launch = attention_launch(args, plan);
    launch.positions = op.stage(launch.positions, launch.n_tokens);
    launch.chunks = op.stage(launch.chunks, plan.n_table());
    if (attention_on_tensor_cores(launch.type, launch.head_dim)) {
        launch.tiles = op.stage(launch.tiles, launch.n_tiles);
        launch.gathers = op.stage(launch.gathers, std::ssize(plan.gathers));
        launch.rows = op.stage(launch.rows, std::ssize(plan.rows));
    } else {
        launch.path_begin = op.stage(launch.path_begin, launch.n_tokens);
        launch.path_rows = op.stage(launch.path_rows, n_path_rows(args));
    }
    if (const std::size_t floats = attention_scratch_floats(plan, args); floats > 0)
        place_scratch(plan, reinterpret_cast<float*>(op.scratch(floats * sizeof(float))), launch);
    op.launch(&Module::attention, launch, [&] {
        return fmt::format("attention of {} tokens, {} heads over {} of {} in {}, {} positions committed",
                           args.q.rows(), args.n_q_heads, args.shape.n_kv_heads, args.shape.head_dim,
                           dtype_name(args.shape.dtype), args.n_committed);
    });
}

}  // namespace slipstream::cuda
