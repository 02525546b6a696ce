// Workspace of a CUDA device's ops: scratch for the op that needs most, and room for the arrays that ops stage.
#include <algorithm>

#include "kernels/cuda/attention/attention_plan.h"
#include "kernels/cuda/delta_net_launch.h"
#include "kernels/cuda/delta_net_plan.h"
#include "kernels/cuda/experts_launch.h"
#include "kernels/cuda/host/cuda_device.h"
#include "kernels/cuda/host/preparation.h"
#include "kernels/cuda/host/staging.h"
#include "kernels/cuda/matmul/matmul_plan.h"
#include "kernels/cuda/matmul/prompt_plan.h"
#include "kernels/cuda/op_table.h"
#include "kernels/cuda/sampling_plan.h"
#include "kernels/workspace.h"

namespace slipstream::cuda {

namespace {

std::size_t scratch_bytes(const CudaDevice& device, const WorkspaceShapes& shapes) {
    std::size_t most = 0;
    if (shapes.n_logit_rows > 0) most = sampling_scratch_bytes(shapes.n_logit_rows, shapes.vocab);
    if (shapes.n_tokens == 0) return most;
    if (shapes.max_cols > 0)
        for (std::int32_t type = 0; type < kDTypeCount; ++type)
            most = std::max(most, matmul_scratch_bytes(static_cast<DType>(type), shapes.max_cols, shapes.n_tokens));
    if (device.blas() != nullptr) most = std::max(most, prompt_scratch_bytes(shapes.prompt_rows, shapes.max_cols));
    for (const auto& [kv, n_q_heads] : shapes.attention)
        if (!kv.state.empty()) {
            most = std::max(most, delta_net_scratch_bytes(kv.state, shapes.delta_steps));
        } else {
            most = std::max(
                most, attention_scratch_bytes(kv, n_q_heads, shapes.n_tokens, device.attention_card()) +
                          preparation_bytes(n_q_heads * kv.head_dim, std::min(shapes.n_tokens, kMostPreparedTokens)));
        }
    return most;
}

// Returns the bytes that one call stages: what its paths gather, its tiles, and 64 KiB for positions, tables of KV
// chunks and small arrays. That is more than what choosing tokens stages. The steps of delta nets are counted apart.
std::size_t staged_bytes(const WorkspaceShapes& shapes) {
    if (shapes.n_tokens == 0 || shapes.attention.empty()) return sampling_staged_bytes(shapes.n_logit_rows);
    const std::int64_t n = shapes.n_tokens;
    const auto [rows, gathers] = gather_bounds(n);
    std::int64_t group = 0;  // most query heads that share a kv head
    bool recurs = false;
    for (const auto& [kv, n_q_heads] : shapes.attention) {
        recurs = recurs || !kv.state.empty();
        if (kv.state.empty()) group = std::max(group, n_q_heads / kv.n_kv_heads);
    }
    const std::int64_t tiles = n * group + 1;
    // Bytes for small arrays, such as a table of 8192 KV chunks: 2 million positions.
    constexpr std::size_t kSmallArrays = std::size_t{64} << 10;
    return rows * sizeof(std::int32_t) + gathers * sizeof(AttentionGather) + tiles * sizeof(AttentionTile) +
           kSmallArrays + (recurs ? static_cast<std::size_t>(shapes.delta_steps) * sizeof(DeltaNetStep) : 0);
}

}  // namespace

std::size_t workspace_bytes(Device& device, const WorkspaceShapes& shapes) {
    const auto& cuda = static_cast<const CudaDevice&>(device);
    return CudaDevice::scratch_size(scratch_bytes(cuda, shapes)) + Staging::device_bytes(staged_bytes(shapes));
}

void reserve_workspace(Device& device, const WorkspaceShapes& shapes) {
    auto& cuda = static_cast<CudaDevice&>(device);
    cuda.reserve_scratch(scratch_bytes(cuda, shapes));
    cuda.reserve_staging(staged_bytes(shapes));
    cuda.delta_steps().reserve(static_cast<std::size_t>(shapes.delta_steps));
    if (shapes.n_experts > 0) static_cast<void>(cuda.staging().inbox(choice_bytes(shapes.n_tokens, shapes.n_experts)));
}

}  // namespace slipstream::cuda
