// The table of op_table.h.
#include "kernels/cuda/op_table.h"

namespace slipstream::cuda {

namespace {

constexpr OpTable kOps{
    .add = add,
    .attention = attention,
    .choose_experts = choose_experts,
    .combine_experts = combine_experts,
    .delta_net = delta_net,
    .embed = embed,
    .gated_activation = gated_activation,
    .gather_columns = gather_columns,
    .grouped_matmul = grouped_matmul,
    .kv_commit = kv_commit,
    .kv_gather = kv_gather,
    .kv_score = kv_score,
    .kv_write = kv_write,
    .logit_argmax = logit_argmax,
    .logit_gumbel = logit_gumbel,
    .logit_sum = logit_sum,
    .logit_top_k = logit_top_k,
    .matmul = matmul,
    .matmuls = matmuls,
    .move_rows = move_rows,
    .pack_weights = pack_weights,
    .reserve_workspace = reserve_workspace,
    .rms_norm = rms_norm,
    .rope = rope,
    .rope_table = rope_table,
    .rotate_write = rotate_write,
    .softcap = softcap,
    .view_pages_attention = view_pages_attention,
    .view_pages_write = view_pages_write,
    .workspace_bytes = workspace_bytes,
};

}  // namespace

const OpTable& op_table() {
    return kOps;
}

}  // namespace slipstream::cuda
