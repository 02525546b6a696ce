// The KV ops on the CPU. Storage: kv_layout.h; order of the reduction: kernels/attention.h.
#pragma once

#include "kernels/attention.h"
#include "kernels/cpu_device.h"

namespace slipstream::cpu {

/// What attention takes of a device with that many threads, whatever the pass and the text.
[[nodiscard]] CpuScratch attention_scratch(const KvShape& shape, std::int64_t n_q_heads, int n_threads);

void attention_scalar(ExecRef exec, const AttentionArgs& args);
void attention_avx2(ExecRef exec, const AttentionArgs& args);
void attention_avx512(ExecRef exec, const AttentionArgs& args);
/// The bits of attention_avx512; rows come as suits the machines that avx512_bf16 is chosen for.
void attention_avx512_bf16(ExecRef exec, const AttentionArgs& args);

void kv_write_scalar(ExecRef exec, const KvWriteArgs& args);
void kv_write_avx2(ExecRef exec, const KvWriteArgs& args);  // bit-equal to scalar
void kv_commit(ExecRef exec, const KvCommitArgs& args);

}  // namespace slipstream::cpu
