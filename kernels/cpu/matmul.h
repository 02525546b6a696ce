// The CPU forms of matmul (kernels/matmul.h), for the op tables. Arguments are checked by the caller (matmul()).
//
// The vector forms define an output's bits the same way, so that E1 holds by construction and AVX2 and AVX-512 agree
// to the bit: 32 partial sums, sum j being one chain of fused multiply-adds over k = j, j + 32, j + 64, ... (missing
// elements of the last step are zero times zero), then halving: 32 sums to 16 by adding j and j + 16, to 8, 4, 2, 1.
// The scalar form is the readable reference: one sum in double.
#pragma once

#include "kernels/matmul.h"

namespace slipstream::cpu {

void matmul_scalar(ExecRef exec, const MatmulArgs& args);
void matmul_avx2(ExecRef exec, const MatmulArgs& args);
void matmul_avx512(ExecRef exec, const MatmulArgs& args);

/// What happens behind the reduction, in this order in every form: + bias, then y + that.
[[nodiscard]] inline float finish_output(const MatmulArgs& args, float sum, std::int64_t row, float y_before) {
    const float result = args.bias.empty() ? sum : sum + float_row(args.bias, 0)[row];
    return args.store == MatmulStore::Add ? y_before + result : result;
}

}  // namespace slipstream::cpu
