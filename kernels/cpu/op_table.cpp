#include "kernels/cpu/op_table.h"

#include "kernels/cpu/attention/attention.h"
#include "kernels/cpu/attention/kv_view.h"
#include "kernels/cpu/attention/view_pages.h"
#include "kernels/cpu/delta_net.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/experts.h"
#include "kernels/cpu/matmul/interleaved.h"
#include "kernels/cpu/matmul/matmul.h"
#include "kernels/cpu/sampling.h"
#include "kernels/cpu/workspace.h"

namespace slipstream::cpu {

namespace {

constexpr OpTable kScalar{
    .add = add,
    .attention = attention_scalar,
    .choose_experts = choose_experts_scalar,
    .combine_experts = combine_experts_scalar,
    .delta_net = delta_net_scalar,
    .embed = embed,
    .gated_activation = gated_activation_scalar,
    .gather_columns = gather_columns,
    .grouped_matmul = grouped_matmul_scalar,
    .kv_commit = kv_commit,
    .kv_gather = kv_gather,
    .kv_score = kv_score_scalar,
    .kv_write = kv_write_scalar,
    .logit_argmax = logit_argmax,
    .logit_gumbel = logit_gumbel,
    .logit_sum = logit_sum,
    .logit_top_k = logit_top_k,
    .matmul = matmul_scalar,
    .move_rows = move_rows,
    .pack_weights = pack_weights,
    .reserve_workspace = reserve_workspace,
    .rms_norm = rms_norm_scalar,
    .rope = rope,
    .rope_table = rope_table,
    .softcap = softcap_scalar,
    .view_pages_attention = view_pages_attention_scalar,
    .view_pages_write = view_pages_write_scalar,
    .workspace_bytes = workspace_bytes,
};

#if defined(__x86_64__)
constexpr OpTable kAvx2{
    .add = add,
    .attention = attention_avx2,
    .choose_experts = choose_experts_avx2,
    .combine_experts = combine_experts_avx2,
    .delta_net = delta_net_avx2,
    .embed = embed,
    .gated_activation = gated_activation_avx2,
    .gather_columns = gather_columns,
    .grouped_matmul = grouped_matmul_avx2,
    .kv_commit = kv_commit,
    .kv_gather = kv_gather,
    .kv_score = kv_score_avx2,
    .kv_write = kv_write_avx2,
    .logit_argmax = logit_argmax,
    .logit_gumbel = logit_gumbel,
    .logit_sum = logit_sum,
    .logit_top_k = logit_top_k,
    .matmul = matmul_avx2,
    .move_rows = move_rows,
    .pack_weights = pack_weights,
    .reserve_workspace = reserve_workspace,
    .rms_norm = rms_norm_avx2,
    .rope = rope,
    .rope_table = rope_table,
    .softcap = softcap_avx2,
    .view_pages_attention = view_pages_attention_avx2,
    .view_pages_write = view_pages_write_avx2,
    .workspace_bytes = workspace_bytes,
};
constexpr OpTable kAvx512{
    .add = add,
    .attention = attention_avx512,
    .choose_experts = choose_experts_avx512,
    .combine_experts = combine_experts_avx512,
    .delta_net = delta_net_avx512,
    .embed = embed,
    .gated_activation = gated_activation_avx512,
    .gather_columns = gather_columns,
    .grouped_matmul = grouped_matmul_avx512,
    .kv_commit = kv_commit,
    .kv_gather = kv_gather,
    .kv_score = kv_score_avx512,
    .kv_write = kv_write_avx2,
    .logit_argmax = logit_argmax,
    .logit_gumbel = logit_gumbel,
    .logit_sum = logit_sum,
    .logit_top_k = logit_top_k,
    .matmul = matmul_avx512,
    .move_rows = move_rows,
    .pack_weights = pack_weights,
    .reserve_workspace = reserve_workspace,
    .rms_norm = rms_norm_avx512,
    .rope = rope,
    .rope_table = rope_table,
    .softcap = softcap_avx512,
    .view_pages_attention = view_pages_attention_avx512,
    .view_pages_write = view_pages_write_avx2,
    .workspace_bytes = workspace_bytes,
};
constexpr OpTable avx512_vnni() {
    OpTable table = kAvx512;
    table.attention = attention_avx512_vnni;
    table.grouped_matmul = grouped_matmul_avx512_vnni;
    table.matmul = matmul_avx512_vnni;
    table.view_pages_attention = view_pages_attention_avx512_vnni;
    return table;
}
constexpr OpTable avx512_bf16() {
    OpTable table = kAvx512;
    table.attention = attention_avx512_bf16;
    table.grouped_matmul = grouped_matmul_avx512_bf16;
    table.matmul = matmul_avx512_bf16;
    table.view_pages_attention = view_pages_attention_avx512_vnni;
    return table;
}
constexpr OpTable kAvx512Vnni = avx512_vnni();
constexpr OpTable kAvx512Bf16 = avx512_bf16();
#endif

}  // namespace

const OpTable& op_table(CpuForm form) {
    switch (form) {
#if defined(__x86_64__)
        case CpuForm::Avx2:
            return kAvx2;
        case CpuForm::Avx512:
            return kAvx512;
        case CpuForm::Avx512Vnni:
            return kAvx512Vnni;
        case CpuForm::Avx512Bf16:
            return kAvx512Bf16;
#endif
        default:
            return kScalar;
    }
}

}  // namespace slipstream::cpu
