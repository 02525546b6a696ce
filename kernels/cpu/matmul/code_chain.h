// Products with quantised weights, defined to the bit. All vector variants of matmul() compute them so, and all
// variants of grouped_matmul(): the experts of a mixture have the same bits in every CPU variant, the scalar one
// included. A kernel of any other device that follows this definition gives these bits as well.
//
// Floats are IEEE binary32, rounded to the nearest, ties to even; subnormal numbers are kept. fma(a, b, c) = a * b + c,
// rounded once. No other operation is fused, reordered or cut into parts; a * b and a / b are rounded on their own.
// Sums of codes are exact integers below 2^24, so int32 holds them and a float has the same value.
//
// 1. Activations of a token are rounded once, in runs of A (32 or 256, see the table) that begin at multiples of A:
//      d = largest |x| of the run / 127; 0 if that is below 2^-126
//      r = 1 / d; 0 if d is 0
//      q[k] = x[k] * r, rounded to float and then to the nearest integer, ties to even: -127 to 127
//    d of a run with an infinity or NaN is infinite or NaN. grouped_matmul() refuses such rows (nonfinite_row.h).
//
// 2. A weight is scale * v[k] (+ m, - dmin * min), v[k] an integer. R consecutive weights share a scale; types whose
//    blocks are 256 weights have a scale for each run of R weights of a block. Read from a block: D, m and dmin are its
//    binary16 fields as floats, e its 8-bit exponent; c, s and min are unsigned integers of the given bits, s8 is
//    signed; c of a type with a fifth (sixth, ...) bit elsewhere in the block includes it. Where each is:
//    dequantize.cpp in a file's block, interleaved.h in packed rows.
// clang-format off
//      type     block    A    R    v[k]                             scale                       offset, minimum
//      Q8_0        32   32   32    c, 8 bits, signed                D
//      Q4_0        32   32   32    c - 8, 4 bits                    D
//      Q4_1        32   32   32    c, 4 bits                        D                           m
//      Q5_0        32   32   32    c - 16, 5 bits                   D
//      Q5_1        32   32   32    c, 5 bits                        D                           m
//      IQ4_NL      32   32   32    kIq4Values[c] (code_tables.h)    D
//      MXFP4       32   32   32    kMxfp4Values[c]                  2^(e - 128), e = 255 too
//      Q2_K       256  256   16    c, 2 bits                        D * float(s), 4 bits        dmin, min of 4 bits
//      Q3_K       256  256   16    c - 4, 3 bits                    D * float(s - 32), 6 bits
//      Q4_K       256  256   32    c, 4 bits                        D * float(s), 6 bits        dmin, min of 6 bits
//      Q5_K       256  256   32    c, 5 bits                        D * float(s), 6 bits        dmin, min of 6 bits
//      Q6_K       256  256   16    c - 32, 6 bits                   D * float(s8)
//      IQ4_XS     256  256   32    kIq4Values[c]                    D * float(s - 32), 6 bits
// clang-format on
//
// 3. The sum f of an output is one chain from 0 over the blocks of its row, K ascending.
//    A block of 32, with i = the sum of v[k] q[k] over the block:
//      f = fma(float(i), scale * d, f)
//      types with m, then: f = fma(m, d * float(sum of q[k] over the block), f)
//    A block of 256: b is a chain from 0 over the block's runs of R weights, ascending, with i = the sum of v[k] q[k]
//    over the run:
//      b = fma(float(i), scale, b)
//    After the last run, for types with minimums, with j = the sum over the runs of min * (sum of q[k] over the run):
//      b = fma(float(j), -dmin, b)
//    and at the end of the block:
//      f = fma(b, d, f)
//
// 4. The output is f, or f + bias if there is a bias; MatmulStore::Add then stores y + that (finish_output()).
//
// Between the products of an expert its row is float: gated_activation() (kernels/elementwise.h), whose operations are
// the same in every CPU variant (kernels/cpu/elementwise.cpp, exp.h). That row is rounded by 1. for the next product.
#pragma once

#include "kernels/matmul.h"

namespace slipstream::cpu {

/// Computes matmul() with quantised weights, of either layout, by plain loops over this definition. Takes no more
/// scratch memory than matmul_scratch_scalar() returns.
void matmul_code_chain(ExecRef exec, const MatmulArgs& args);

}  // namespace slipstream::cpu
