// Kernels of matmul for AVX2 and few tokens (matmul_avx2_few.h), of types with blocks of 256.

#if defined(__x86_64__)
#include "kernels/cpu/matmul/matmul_avx2_few.h"

namespace slipstream::cpu {

void set_few_avx2_k(FewTokenKernelsOfTypes& all) {
    avx2::set_few_token_kernels<DType::Q3_K, DType::Q4_K, DType::Q5_K, DType::Q6_K, DType::IQ4_XS, DType::Q2_K>(all);
}

}  // namespace slipstream::cpu
#endif
