// What the CUDA module says of NCCL, as it opens it; no driver is needed. In two lines: the version, or why there is
// none; and what comes of a communicator.
//
//   nccl_library MODULE
#include <dlfcn.h>

#include <cstdint>

#include <fmt/format.h>

#include "kernels/cuda/host/nccl_sums.h"
#include "kernels/cuda/host/table_bytes.h"

int main(int argc, char** argv) {
    using namespace slipstream;
    if (argc != 2) return 2;
    void* library = ::dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return 1;
    const auto entry = reinterpret_cast<cuda::ModuleEntry>(::dlsym(library, cuda::kModuleEntry));
    const cuda::Module* module = entry == nullptr ? nullptr : entry();
    if (module == nullptr || module->version != cuda::kModuleVersion || module->table_bytes != cuda::kTableBytes)
        return 1;
    std::int64_t version = 0;
    cuda::ErrorText error{};
    switch (module->nccl_version(&version, &error)) {
        case cuda::Status::Ok:
            fmt::print("version {}\n", nccl_version_text(version));
            break;
        case cuda::Status::NotInstalled:
            fmt::print("not installed: {}\n", error.text);
            return 0;
        default:
            fmt::print("failed: {}\n", error.text);
            return 0;
    }
    const std::int32_t first = 0;
    void* communicator = nullptr;
    if (module->make_communicators(1, &first, &communicator, &error) != cuda::Status::Ok) {
        fmt::print("no communicator: {}\n", error.text);
        return 0;
    }
    fmt::print("a communicator\n");
    return module->free_communicator(0, communicator, &error) == cuda::Status::Ok ? 0 : 1;
}
