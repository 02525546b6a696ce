// The kernel variants of matmul (kernels/matmul.h) on the CPU, for the op tables. Their caller, matmul(), has checked
// the arguments.
//
// An output, in every variant:
// - float weights: the sum of w[k] x[k].
// - quantised weights: the sum of w[k] d q[k], with activations rounded to 8 bits (activations.h): one scale d for each
//   32 of them, for the K formats for each 256, as the reference of these formats has it.
// - BF16 weights in avx512_bf16: the sum of w[k] x[k], with activations rounded to bfloat16.
//
// The scalar variant adds in double, except the products of experts with quantised weights (grouped_matmul()). The
// vector variants agree with each other to the bit, for either layout of the weights, except that avx512_bf16 differs
// for BF16 weights. Batch invariance (E1) holds since the operations of an output have one order:
// - float weights: one chain of fused multiply-adds from 0 over k, ascending.
// - BF16 weights in avx512_bf16: one chain of vdpbf16ps from 0 over pairs of k, ascending. A step adds the product of
//   the odd k, then that of the even k (the odd one is 0 past the last element of an odd K), and treats subnormal
//   operands and results as 0.
// - quantised weights: the chain that code_chain.h defines, of which matmul_code_chain() is the plain loop.
#pragma once

#include "kernels/cpu_device.h"
#include "kernels/matmul.h"
#include "kernels/workspace.h"

namespace slipstream::cpu {

/// These return the scratch memory of a CPU device that any matmul within `shapes` needs, per kernel variant.
[[nodiscard]] CpuScratch matmul_scratch_scalar(const WorkspaceShapes& shapes);
[[nodiscard]] CpuScratch matmul_scratch_avx2(const WorkspaceShapes& shapes);
[[nodiscard]] CpuScratch matmul_scratch_avx512(const WorkspaceShapes& shapes);
[[nodiscard]] CpuScratch matmul_scratch_avx512_vnni(const WorkspaceShapes& shapes);
[[nodiscard]] CpuScratch matmul_scratch_avx512_bf16(const WorkspaceShapes& shapes);

void matmul_scalar(ExecRef exec, const MatmulArgs& args);
void matmul_avx2(ExecRef exec, const MatmulArgs& args);
void matmul_avx512(ExecRef exec, const MatmulArgs& args);
void matmul_avx512_vnni(ExecRef exec, const MatmulArgs& args);
void matmul_avx512_bf16(ExecRef exec, const MatmulArgs& args);

/// Returns the value to store for an output: `sum` plus the bias of matrix row `row`, if there is a bias; then, if
/// args.store is Add, that is added to `y_before`, the value of y before. Every kernel variant adds in this order.
[[nodiscard]] inline float finish_output(const MatmulArgs& args, float sum, std::int64_t row, float y_before) {
    const float result = args.bias.empty() ? sum : sum + float_row(args.bias, 0)[row];
    return args.store == MatmulStore::Add ? y_before + result : result;
}

}  // namespace slipstream::cpu
