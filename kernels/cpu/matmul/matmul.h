// The CPU forms of matmul (kernels/matmul.h), for the op tables. Arguments are checked by the caller (matmul()).
//
// What an output is, in every form:
//   float weights: the sum of w[k] x[k].
//   quantised weights: the sum of w[k] d q[k], activations rounded to 8 bits (activations.h), with a scale d to each
//   32 of them, for the K formats to each 256, as the formats' own reference has it.
//   BF16 weights in the form avx512_bf16: the same of activations rounded to bfloat16.
// The scalar form adds in double. The vector forms agree with each other to the bit (avx512_bf16 but for BF16 weights),
// for either layout of the weights, and E1 holds by construction, since an output has one order of operations:
//   float weights: one chain of fused multiply-adds from 0 over k, ascending.
//   BF16 weights in avx512_bf16: one chain of vdpbf16ps from 0 over pairs of k, ascending; a step adds the product of
//   the odd k, then that of the even one (0 behind the last of an odd K), and takes and gives subnormals as 0.
//   quantised: one chain from 0 over the blocks of 32, ascending. With i = the sum of (code - code_offset) q, exact in
//   integers, the step is f = fma(float(i), scale * d, f), and where there are offsets f = fma(offset, s, f) with
//   s = d * float(sum of q).
//   K formats: one chain over the blocks of 256; the step is f = fma(b, d, f) with b a chain from 0 over the runs that
//   share a scale, 16 or 32 weights, b = fma(float(i), scale, b), and where there are minimums b = fma(float(j), -dmin,
//   b) at its end, j = the sum of min * q, exact in integers.
#pragma once

#include "kernels/cpu_device.h"
#include "kernels/matmul.h"
#include "kernels/workspace.h"

namespace slipstream::cpu {

/// What any matmul within the shapes takes of a device, in each form.
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

/// What happens behind the reduction, in this order in every form: + bias, then y + that.
[[nodiscard]] inline float finish_output(const MatmulArgs& args, float sum, std::int64_t row, float y_before) {
    const float result = args.bias.empty() ? sum : sum + float_row(args.bias, 0)[row];
    return args.store == MatmulStore::Add ? y_before + result : result;
}

}  // namespace slipstream::cpu
