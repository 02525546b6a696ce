#include "kernels/cpu/op_table.h"

#include "kernels/cpu/attention.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/interleaved.h"
#include "kernels/cpu/matmul.h"
#include "kernels/cpu/sampling.h"
#include "kernels/cpu/workspace.h"

namespace slipstream::cpu {

namespace {

constexpr OpTable kScalar{
    .add = add,
    .attention = attention_scalar,
    .embed = embed,
    .kv_commit = kv_commit,
    .kv_write = kv_write_scalar,
    .logit_argmax = logit_argmax,
    .logit_gumbel = logit_gumbel,
    .logit_sum = logit_sum,
    .logit_top_k = logit_top_k,
    .matmul = matmul_scalar,
    .pack_weights = pack_weights,
    .reserve_workspace = reserve_workspace,
    .rms_norm = rms_norm_scalar,
    .rope = rope,
    .rope_table = rope_table,
    .swiglu = swiglu_scalar,
    .workspace_bytes = workspace_bytes,
};

#if defined(__x86_64__)
constexpr OpTable kAvx2{
    .add = add,
    .attention = attention_avx2,
    .embed = embed,
    .kv_commit = kv_commit,
    .kv_write = kv_write_avx2,
    .logit_argmax = logit_argmax,
    .logit_gumbel = logit_gumbel,
    .logit_sum = logit_sum,
    .logit_top_k = logit_top_k,
    .matmul = matmul_avx2,
    .pack_weights = pack_weights,
    .reserve_workspace = reserve_workspace,
    .rms_norm = rms_norm_avx2,
    .rope = rope,
    .rope_table = rope_table,
    .swiglu = swiglu_avx2,
    .workspace_bytes = workspace_bytes,
};
constexpr OpTable kAvx512{
    .add = add,
    .attention = attention_avx512,
    .embed = embed,
    .kv_commit = kv_commit,
    .kv_write = kv_write_avx2,
    .logit_argmax = logit_argmax,
    .logit_gumbel = logit_gumbel,
    .logit_sum = logit_sum,
    .logit_top_k = logit_top_k,
    .matmul = matmul_avx512,
    .pack_weights = pack_weights,
    .reserve_workspace = reserve_workspace,
    .rms_norm = rms_norm_avx512,
    .rope = rope,
    .rope_table = rope_table,
    .swiglu = swiglu_avx512,
    .workspace_bytes = workspace_bytes,
};
constexpr OpTable kAvx512Vnni{
    .add = add,
    .attention = attention_avx512,
    .embed = embed,
    .kv_commit = kv_commit,
    .kv_write = kv_write_avx2,
    .logit_argmax = logit_argmax,
    .logit_gumbel = logit_gumbel,
    .logit_sum = logit_sum,
    .logit_top_k = logit_top_k,
    .matmul = matmul_avx512_vnni,
    .pack_weights = pack_weights,
    .reserve_workspace = reserve_workspace,
    .rms_norm = rms_norm_avx512,
    .rope = rope,
    .rope_table = rope_table,
    .swiglu = swiglu_avx512,
    .workspace_bytes = workspace_bytes,
};
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
#endif
        default:
            return kScalar;
    }
}

}  // namespace slipstream::cpu
