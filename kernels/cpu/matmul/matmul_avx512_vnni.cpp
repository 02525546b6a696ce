// Matmul for AVX-512 with VNNI, in the form that is fastest on Intel's cores.

#if defined(__x86_64__)
#include "kernels/cpu/matmul/matmul_vnni.h"

namespace slipstream::cpu {

const InterleavedForm& interleaved_form_avx512_vnni() {
    static const InterleavedForm form = vnni::make_form<vnni::CodeGroups::Three>();
    return form;
}

CpuScratch matmul_scratch_avx512_vnni(const WorkspaceShapes& shapes) {
    return matmul_scratch_interleaved(shapes, interleaved_form_avx512_vnni());
}

void matmul_avx512_vnni(ExecRef exec, const MatmulArgs& args) {
    matmul_interleaved(exec, args, interleaved_form_avx512_vnni());
}

}  // namespace slipstream::cpu
#endif
