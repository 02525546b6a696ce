// The small ops on the CPU, one set a form (see elementwise.cpp).
#pragma once

#include "kernels/elementwise.h"

namespace slipstream::cpu {

void rms_norm_scalar(ExecRef exec, const RmsNormArgs& args);
void rms_norm_avx2(ExecRef exec, const RmsNormArgs& args);
void rms_norm_avx512(ExecRef exec, const RmsNormArgs& args);

void swiglu_scalar(ExecRef exec, const SwigluArgs& args);
void swiglu_avx2(ExecRef exec, const SwigluArgs& args);
void swiglu_avx512(ExecRef exec, const SwigluArgs& args);

// Memory-bound or rare: one form serves all.
void rope_table(ExecRef exec, const RopeTableArgs& args);
void rope(ExecRef exec, const RopeArgs& args);
void add(ExecRef exec, const AddArgs& args);
void embed(ExecRef exec, const EmbedArgs& args);

}  // namespace slipstream::cpu
