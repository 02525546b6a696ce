// The KV ops on the CPU. Storage: kv_layout.h; order of the reduction: kernels/attention.h.
#pragma once

#include "kernels/attention.h"

namespace slipstream::cpu {

void attention_scalar(ExecRef exec, const AttentionArgs& args);
void attention_avx2(ExecRef exec, const AttentionArgs& args);
void attention_avx512(ExecRef exec, const AttentionArgs& args);

void kv_write_scalar(ExecRef exec, const KvWriteArgs& args);
void kv_write_avx2(ExecRef exec, const KvWriteArgs& args);  // bit-equal to scalar
void kv_commit(ExecRef exec, const KvCommitArgs& args);

}  // namespace slipstream::cpu
