// The small ops of kernels/elementwise.h on the CPU, for the op tables: rms_norm and
// gated_activation for each kernel variant, the others for all variants. The variants of an op give the same bits
// (elementwise.cpp).
#pragma once

#include "kernels/elementwise.h"

namespace slipstream::cpu {

void rms_norm_scalar(ExecRef exec, const RmsNormArgs& args);
void rms_norm_avx2(ExecRef exec, const RmsNormArgs& args);
void rms_norm_avx512(ExecRef exec, const RmsNormArgs& args);

void gated_activation_scalar(ExecRef exec, const GatedActivationArgs& args);
void gated_activation_avx2(ExecRef exec, const GatedActivationArgs& args);
void gated_activation_avx512(ExecRef exec, const GatedActivationArgs& args);

// One version for all kernel variants, since these ops are limited by memory bandwidth or rarely run.
void rope_table(ExecRef exec, const RopeTableArgs& args);
void rope(ExecRef exec, const RopeArgs& args);
void add(ExecRef exec, const AddArgs& args);
void embed(ExecRef exec, const EmbedArgs& args);

}  // namespace slipstream::cpu
