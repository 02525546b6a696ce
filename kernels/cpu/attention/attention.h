// The KV ops of kernels/attention.h on the CPU, for the op tables. Layout of KV chunks: kv_layout.h; order of the
// reduction: kernels/attention.h.
#pragma once

#include "kernels/attention.h"
#include "kernels/cpu_device.h"

namespace slipstream::cpu {

/// Returns the scratch that attention needs on a device with `n_threads` threads: the most that any pass over a
/// sequence of any length takes, so that no later pass allocates. `n_q_heads` must be a multiple of shape.n_kv_heads.
[[nodiscard]] CpuScratch attention_scratch(const KvLayout& shape, std::int64_t n_q_heads, int n_threads);

void attention_scalar(ExecRef exec, const AttentionArgs& args);
void attention_avx2(ExecRef exec, const AttentionArgs& args);
void attention_avx512(ExecRef exec, const AttentionArgs& args);
/// Gives the same bits as attention_avx512(), except for Q8_0, whose codes it multiplies as integers.
void attention_avx512_vnni(ExecRef exec, const AttentionArgs& args);
/// Gives the same bits as attention_avx512_vnni(). Only the prefetching of KV rows differs: it suits the machines for
/// which the kernel variant avx512_bf16 is chosen.
void attention_avx512_bf16(ExecRef exec, const AttentionArgs& args);

void kv_write_scalar(ExecRef exec, const KvWriteArgs& args);
void kv_write_avx2(ExecRef exec, const KvWriteArgs& args);  // gives the bits of kv_write_scalar()
void kv_commit(ExecRef exec, const KvCommitArgs& args);

}  // namespace slipstream::cpu
