// Kernels of matmul for AVX-512 with VNNI, of IQ4_NL.

#if defined(__x86_64__)
#include "kernels/cpu/matmul/matmul_vnni_few.h"
#include "kernels/cpu/matmul/matmul_vnni_kernels.h"

namespace slipstream::cpu::vnni {

template void set_kernels<DType::IQ4_NL, CodeGroups::Two>(InterleavedForm& form);
template void set_kernels<DType::IQ4_NL, CodeGroups::Three>(InterleavedForm& form);
template FewTokenKernels few_token_kernels<DType::IQ4_NL>();

}  // namespace slipstream::cpu::vnni
#endif
