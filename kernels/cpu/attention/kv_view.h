// The ops of kernels/kv_view.h on the CPU, for the op tables. Layout of KV chunks: kv_layout.h.
#pragma once

#include "kernels/kv_view.h"

namespace slipstream::cpu {

void kv_score_scalar(ExecRef exec, const KvScoreArgs& args);
void kv_score_avx2(ExecRef exec, const KvScoreArgs& args);
void kv_score_avx512(ExecRef exec, const KvScoreArgs& args);

void kv_gather(ExecRef exec, const KvGatherArgs& args);

}  // namespace slipstream::cpu
