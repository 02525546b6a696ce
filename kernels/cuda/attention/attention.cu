// A call of attention: the whole fold in one kernel, or waves of KV chunks, each joined to the fold of the previous
// waves.
#include "gpu.cuh"
#include "kernels/cuda/attention/attention_launch.h"
#include "kernels/cuda/attention/attention_parts.h"

namespace slipstream::cuda {

void launch_attention(const AttentionLaunch& a, void* stream) {
    const bool tiles = attention_on_tensor_cores(a.type, a.head_dim, a.softcap_log2);
    const auto folded = !tiles                   ? folded_plain
                        : a.type == KvType::F16  ? folded_f16
                        : a.type == KvType::BF16 ? folded_bf16
                                                 : folded_q8;
    const auto parallel = !tiles                   ? parallel_plain
                          : a.type == KvType::F16  ? parallel_f16
                          : a.type == KvType::BF16 ? parallel_bf16
                                                   : parallel_q8;
    if (a.way == AttentionWay::Folded) {
        folded(a, stream);
        return;
    }
    launch_waves(
        a, [&](int first_chunk, int n_chunks) { parallel(a, first_chunk, n_chunks, stream); }, stream);
}

}  // namespace slipstream::cuda
