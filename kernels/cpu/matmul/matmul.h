// The kernel variants of matmul (kernels/matmul.h) on the CPU, for the op tables. Their caller, matmul(), has checked
// the arguments.
//
// An output, in every variant:
// - float weights: the sum of w[k] x[k].
// - quantised weights: the sum of w[k] d q[k], with activations rounded to 8 bits (activations.h): one scale d for each
//   32 of them, for the K formats for each 256, as the reference of these formats has it.
// - BF16 weights in avx512_bf16: the sum of w[k] x[k], with activations rounded to bfloat16.
//
// The scalar variant adds in double. The vector variants agree with each other to the bit, for either layout of the
// weights, except that avx512_bf16 differs for BF16 weights. Batch invariance (E1) holds since the operations of an
// output have one order:
// - float weights: one chain of fused multiply-adds from 0 over k, ascending.
// - BF16 weights in avx512_bf16: one chain of vdpbf16ps from 0 over pairs of k, ascending. A step adds the product of
//   the odd k, then that of the even k (the odd one is 0 past the last element of an odd K), and treats subnormal
//   operands and results as 0.
// - quantised weights: one chain from 0 over the blocks of 32, ascending. With i = the sum of (code - code_offset) q,
//   exact in integers, a step is f = fma(float(i), scale * d, f), and for types with offsets then f = fma(offset, s, f)
//   with s = d * float(sum of q). IQ4_NL and MXFP4 are such types: code - code_offset is the value in the type's table
//   (code_tables.h), of 8 bits, and the scale of MXFP4 is 2^(exponent - 128), subnormal for exponents 0 and 1.
// - K formats, to which IQ4_XS and Q2_K belong: one chain over the blocks of 256. A step is f = fma(b, d, f), where
//   b is:
//   a chain from 0 over the runs of 16 or 32 weights that share a scale, b = fma(float(i), scale, b); for types with
//   minimums it ends with b = fma(float(j), -dmin, b), j = the sum of min * q, exact in integers. The scale of IQ4_XS
//   is d of the block * (6-bit number - 32), rounded once.
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
