#include "kernels/cpu/workspace.h"

#include "kernels/cpu/attention/attention.h"
#include "kernels/cpu/delta_net.h"
#include "kernels/cpu/matmul/matmul.h"
#include "kernels/cpu_device.h"

namespace slipstream::cpu {

namespace {

CpuScratch matmul_scratch(CpuForm form, const WorkspaceShapes& shapes) {
    switch (form) {
#if defined(__x86_64__)
        case CpuForm::Avx2:
            return matmul_scratch_avx2(shapes);
        case CpuForm::Avx512:
            return matmul_scratch_avx512(shapes);
        case CpuForm::Avx512Vnni:
            return matmul_scratch_avx512_vnni(shapes);
        case CpuForm::Avx512Bf16:
            return matmul_scratch_avx512_bf16(shapes);
#endif
        default:
            return matmul_scratch_scalar(shapes);
    }
}

CpuScratch scratch_of(CpuDevice& device, const WorkspaceShapes& shapes) {
    CpuScratch most;
    if (shapes.n_tokens > 0 && shapes.max_cols > 0) most = matmul_scratch(device.form(), shapes);
    if (shapes.n_tokens > 0)
        for (const auto& [kv, n_q_heads] : shapes.attention)
            most = larger_of(most, kv.state.empty() ? attention_scratch(kv, n_q_heads, device.pool().n_threads())
                                                    : delta_net_scratch(kv.state, shapes.delta_steps));
    return most;
}

}  // namespace

std::size_t workspace_bytes(Device& device, const WorkspaceShapes& shapes) {
    auto& cpu = static_cast<CpuDevice&>(device);
    return cpu.scratch_bytes(scratch_of(cpu, shapes));
}

void reserve_workspace(Device& device, const WorkspaceShapes& shapes) {
    auto& cpu = static_cast<CpuDevice&>(device);
    cpu.reserve_scratch(scratch_of(cpu, shapes));
}

}  // namespace slipstream::cpu
