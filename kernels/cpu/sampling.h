// Choosing tokens on the CPU: one form, plain loops; rows side by side.
#pragma once

#include "kernels/sampling.h"

namespace slipstream::cpu {

void logit_argmax(ExecRef exec, const LogitArgmaxArgs& args);
void logit_top_k(ExecRef exec, const LogitTopKArgs& args);
void logit_gumbel(ExecRef exec, const LogitGumbelArgs& args);
void logit_sum(ExecRef exec, const LogitSumArgs& args);

}  // namespace slipstream::cpu
