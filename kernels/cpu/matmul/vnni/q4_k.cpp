// Kernels of matmul for AVX-512 with VNNI, of Q4_K.

#if defined(__x86_64__)
#include "kernels/cpu/matmul/matmul_vnni_few.h"
#include "kernels/cpu/matmul/matmul_vnni_kernels.h"

namespace slipstream::cpu::vnni {

template void set_kernels<DType::Q4_K, CodeGroups::Two>(InterleavedForm& form);
template void set_kernels<DType::Q4_K, CodeGroups::Three>(InterleavedForm& form);
template FewTokenKernels few_token_kernels<DType::Q4_K>();

}  // namespace slipstream::cpu::vnni
#endif
