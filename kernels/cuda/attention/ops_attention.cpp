// Attention on a CUDA device: makes the launch plan of a call, brings its arrays to device memory, takes scratch, and
// launches.
#include <algorithm>
#include <cstdint>

#include <fmt/format.h>

#include "kernels/attention.h"
#include "kernels/cuda/attention/attention_launch.h"
#include "kernels/cuda/attention/attention_plan.h"
#include "kernels/cuda/attention/attention_planner.h"
#include "kernels/cuda/host/cuda_op.h"
#include "kernels/cuda/host/preparation.h"
#include "kernels/cuda/op_table.h"

namespace slipstream::cuda {

namespace {

// Stages the host arrays of a call and sets their addresses in `launch`.
void stage_arrays(Op& op, const AttentionArgs& args, const AttentionPlan& plan, AttentionLaunch& launch) {
    launch.positions = op.stage(launch.positions, launch.n_tokens);
    launch.chunks = op.stage(launch.chunks, plan.n_table());
    if (attention_on_tensor_cores(launch.type, launch.head_dim, launch.softcap_log2)) {
        launch.tiles = op.stage(launch.tiles, launch.n_tiles);
        launch.gathers = op.stage(launch.gathers, std::ssize(plan.gathers));
        launch.rows = op.stage(launch.rows, std::ssize(plan.rows));
    } else {
        launch.path_begin = op.stage(launch.path_begin, launch.n_tokens);
        launch.path_rows = op.stage(launch.path_rows, n_path_rows(args));
    }
}

// For a captured call: sets the addresses from which launches of the graph read the arrays.
void place_arrays(CudaGraph& graph, const AttentionArgs& args, const GraphAttention& of, AttentionLaunch& launch) {
    launch.place = graph.at<AttentionPlace>(of.place);
    launch.positions = graph.at<std::int32_t>(of.positions);
    launch.chunks = graph.at<const std::byte*>(graph.arrays().add_table(args.chunks, of));
    if (attention_on_tensor_cores(launch.type, launch.head_dim, launch.softcap_log2)) {
        launch.tiles = graph.at<AttentionTile>(of.tiles);
        launch.gathers = graph.at<AttentionGather>(of.gathers);
        launch.rows = graph.at<std::int32_t>(of.rows);
    } else {
        launch.path_begin = graph.at<std::int32_t>(of.path_begin);
        launch.path_rows = graph.at<std::int32_t>(of.path_rows);
    }
}

}  // namespace

void attention(ExecRef exec, const AttentionArgs& args) {
    Op op(exec);
    const GraphAttention* captured = op.graph() == nullptr ? nullptr : &op.graph()->arrays().add_attention(args);
    const AttentionPlan& plan =
        captured == nullptr ? op.device().planner().plan(args, op.device().attention_card()) : captured->at_capture;
    AttentionLaunch launch = attention_launch(args, plan);
    if (captured == nullptr) {
        stage_arrays(op, args, plan, launch);
    } else {
        place_arrays(*op.graph(), args, *captured, launch);
    }
    // Only the join of KV chunks prepares its output for matmuls. Calls of many tokens fold in registers; for them
    // preparing is a small part of the work.
    const bool prepares = plan.way == AttentionWay::Parallel && launch.out != nullptr &&
                          launch.n_tokens <= kMostPreparedTokens && launch.head_dim % 32 == 0;
    Preparation preparation(op, prepares ? args.next : NextWeights{}, args.out,
                            attention_scratch_floats(plan, args) * sizeof(float));
    place_scratch(plan, reinterpret_cast<float*>(preparation.more()), launch);
    launch.prepare = preparation.target();
    op.launch(&Module::attention, launch, [&] {
        return fmt::format("attention of {} tokens, {} heads over {} of {} in {}, {} positions committed",
                           args.q.rows(), args.n_q_heads, args.shape.n_kv_heads, args.shape.head_dim,
                           kv_type_name(args.shape.dtype), args.n_committed);
    });
    preparation.keep();
}

}  // namespace slipstream::cuda
