#include <array>
#include <filesystem>

#include "kernels/cuda/host/cuda_module.h"
#include "tests/cuda/under_test.h"

namespace slipstream::testing_cuda {

namespace {

// The module lies beside the test, or where the build put it.
CudaCards find_cards() {
    const std::filesystem::path beside = std::filesystem::read_symlink("/proc/self/exe").parent_path();
    const std::array<std::filesystem::path, 2> folders{beside, SLIPSTREAM_MODULE_DIR};
    return find_cuda_cards(folders);
}

}  // namespace

ModuleUnderTest module_under_test() {
    static const CudaCards kCards = find_cards();
    if (!kCards.why_not.empty()) return {.why_not = kCards.why_not};
    return {.module = kCards.module, .is_card = true};
}

}  // namespace slipstream::testing_cuda
