#include "tests/cuda/under_test.h"
#include "tests/cuda_emulation/emulated_machine.h"

namespace slipstream::testing_cuda {

ModuleUnderTest module_under_test() {
    auto machine = std::make_shared<emulation::Machine>(emulation::MachineOptions{
        .memory_bytes = std::size_t{3} << 30, .timing = emulation::Timing::Latest, .nccl = emulation::Nccl::Serves});
    const cuda::Module* module = &machine->table();
    return {.module = module, .machine = std::move(machine)};
}

}  // namespace slipstream::testing_cuda
