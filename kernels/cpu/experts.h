// The ops of kernels/experts.h on the CPU, for the op tables. The variants of choose_experts and combine_experts give
// the same bits (experts.cpp).
#pragma once

#include "kernels/experts.h"

namespace slipstream::cpu {

/// Chooses for one token, in the bits of all variants. For devices that leave the choice to the host: `logits`, `bias`
/// and `scales` must be host memory.
void choose_row(const ChooseExpertsArgs& args, std::int64_t token);

void choose_experts_scalar(ExecRef exec, const ChooseExpertsArgs& args);
void choose_experts_avx2(ExecRef exec, const ChooseExpertsArgs& args);
void choose_experts_avx512(ExecRef exec, const ChooseExpertsArgs& args);

void combine_experts_scalar(ExecRef exec, const CombineExpertsArgs& args);
void combine_experts_avx2(ExecRef exec, const CombineExpertsArgs& args);
void combine_experts_avx512(ExecRef exec, const CombineExpertsArgs& args);

void grouped_matmul_scalar(ExecRef exec, std::span<const MatmulArgs> products);
void grouped_matmul_avx2(ExecRef exec, std::span<const MatmulArgs> products);
void grouped_matmul_avx512(ExecRef exec, std::span<const MatmulArgs> products);
void grouped_matmul_avx512_vnni(ExecRef exec, std::span<const MatmulArgs> products);
void grouped_matmul_avx512_bf16(ExecRef exec, std::span<const MatmulArgs> products);

}  // namespace slipstream::cpu
