// The ops of kernels/sampling.h, which choose tokens from logits, on the CPU: plain loops, one version for all kernel
// variants. Threads work on different rows.
#pragma once

#include "kernels/sampling.h"

namespace slipstream::cpu {

void logit_argmax(ExecRef exec, const LogitArgmaxArgs& args);
void logit_top_k(ExecRef exec, const LogitTopKArgs& args);
void logit_gumbel(ExecRef exec, const LogitGumbelArgs& args);
void logit_sum(ExecRef exec, const LogitSumArgs& args);

}  // namespace slipstream::cpu
