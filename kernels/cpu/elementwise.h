// The small ops of kernels/elementwise.h on the CPU, for the op tables: rms_norm, gated_activation
// and softcap for each kernel variant, the others for all variants. The variants of an op give the same bits
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

void softcap_scalar(ExecRef exec, const SoftcapArgs& args);
void softcap_avx2(ExecRef exec, const SoftcapArgs& args);
void softcap_avx512(ExecRef exec, const SoftcapArgs& args);

// This op and the next three have one version for all kernel variants, since they are limited by memory bandwidth or
// rarely run.
void rope_table(ExecRef exec, const RopeTableArgs& args);
void rope(ExecRef exec, const RopeArgs& args);
void add(ExecRef exec, const AddArgs& args);
void embed(ExecRef exec, const EmbedArgs& args);
/// Writes row t of the output of rope_table() to `row`, [n_rotated]; for devices whose angles are made on the host.
void rope_row(const RopeTableArgs& args, std::int64_t t, float* row);
/// Writes row t of the output of embed() to `y`, [d_model]; for devices whose rows are gathered on the host.
void embed_row(const EmbedArgs& args, std::int64_t t, float* y);

}  // namespace slipstream::cpu
