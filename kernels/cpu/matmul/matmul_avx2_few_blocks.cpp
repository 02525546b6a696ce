// Kernels of matmul for AVX2 and few tokens (matmul_avx2_few.h), of types with blocks of 32.

#if defined(__x86_64__)
#include "kernels/cpu/matmul/matmul_avx2_few.h"

namespace slipstream::cpu {

void set_few_avx2_blocks(FewTokenKernelsOfTypes& all) {
    avx2::set_few_token_kernels<DType::Q8_0, DType::Q4_0, DType::Q4_1, DType::Q5_0, DType::Q5_1, DType::IQ4_NL,
                                DType::MXFP4>(all);
}

}  // namespace slipstream::cpu
#endif
