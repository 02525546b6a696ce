// Attention on the CPU: units of work (attention_unit.h), folded by attention_fold.h.
#include "kernels/cpu/attention/attention.h"

#include <algorithm>

#include "kernels/cpu/attention/attention_fold.h"
#include "kernels/cpu/attention/attention_unit.h"
#include "kernels/cpu_device.h"
#include "kernels/workspace.h"

namespace slipstream::cpu {

namespace {

void fold(ExecRef exec, const AttentionArgs& args, const AttentionForm& form) {
    auto& device = static_cast<CpuDevice&>(exec.device);
    device.reserve_scratch(attention_scratch(args.shape, args.n_q_heads, device.pool().n_threads()));
    const auto make_unit = [&](std::byte* tiles, std::int64_t head, std::int64_t first_token, std::int64_t n_tokens) {
        return AttentionUnit(args, form, tiles, head, first_token, n_tokens);
    };
    AttentionFold(exec,
                  {.shape = args.shape,
                   .q = args.q,
                   .out = args.out,
                   .n_q_heads = args.n_q_heads,
                   .sinks = args.sinks,
                   .part = args.part,
                   .state = args.state},
                  attention_tiles_bytes(args.shape), make_unit)
        .run();
}

}  // namespace

// Returns what the largest pass over the longest sequence takes, so that a later pass never allocates: run_by_chunk()
// has fewer units than kUnitsPerThread per thread, and after the totals kWaveBytes, or the states of one KV chunk if
// they are larger.
CpuScratch attention_scratch(const KvLayout& shape, std::int64_t n_q_heads, int n_threads) {
    const std::int64_t group = n_q_heads / shape.n_kv_heads;
    const std::size_t whole_unit = states_bytes(tokens_per_unit(group) * group, shape.head_dim);
    CpuScratch scratch{.thread_bytes = attention_tiles_bytes(shape) + 2 * whole_unit};
    if (n_threads == 1) return scratch;
    const std::size_t most_chunk = static_cast<std::size_t>(kUnitsPerThread * n_threads) * whole_unit;
    scratch.shared_bytes = std::max(kWaveBytes, most_chunk) + most_chunk;
    return scratch;
}

void attention_scalar(ExecRef exec, const AttentionArgs& args) {
    fold(exec, args, {reduce_step_scalar, widen_step_scalar});
}
#if defined(__x86_64__)
void attention_avx2(ExecRef exec, const AttentionArgs& args) {
    fold(exec, args, {reduce_step_avx2, widen_step_avx2});
}
void attention_avx512(ExecRef exec, const AttentionArgs& args) {
    fold(exec, args, {reduce_step_avx512, widen_step_avx512});
}
void attention_avx512_vnni(ExecRef exec, const AttentionArgs& args) {
    if (args.shape.dtype != DType::Q8_0) return attention_avx512(exec, args);
    fold(exec, args, {reduce_step_q8_vnni, nullptr, kMaxQ8Batch});
}
void attention_avx512_bf16(ExecRef exec, const AttentionArgs& args) {
    if (args.shape.dtype == DType::Q8_0) return attention_avx512_vnni(exec, args);
    fold(exec, args, {reduce_step_avx512_near, nullptr});
}
#endif

}  // namespace slipstream::cpu
