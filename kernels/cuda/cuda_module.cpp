#include "kernels/cuda/cuda_module.h"

#include <dlfcn.h>

#include <algorithm>
#include <optional>
#include <system_error>

#include <fmt/format.h>

#include "kernels/cuda/table_bytes.h"

namespace slipstream {

namespace {

namespace fs = std::filesystem;

std::optional<fs::path> module_path(std::span<const fs::path> folders) {
    for (const fs::path& folder : folders) {
        std::error_code error;
        const fs::path path = folder / cuda::kModuleFile;
        if (fs::is_regular_file(path, error)) return path;
    }
    return std::nullopt;
}

// What the loader says, without its line breaks.
std::string loader_error() {
    const char* error = ::dlerror();
    std::string text = error == nullptr ? "no reason given" : error;
    std::ranges::replace(text, '\n', ' ');
    return text;
}

CudaCards nothing(std::string why_not) {
    CudaCards found;
    found.why_not = std::move(why_not);
    return found;
}

}  // namespace

std::string cuda_version_text(std::int32_t version) {
    return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

CudaCards find_cuda_cards(std::span<const fs::path> folders) {
    const std::optional<fs::path> path = module_path(folders);
    if (!path) return nothing(fmt::format("this build has no CUDA module ({})", cuda::kModuleFile));
    // Never unloaded: the runtime inside it ends with the process.
    void* library = ::dlopen(path->c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library == nullptr) return nothing(fmt::format("the CUDA module does not load: {}", loader_error()));
    const auto entry = reinterpret_cast<cuda::ModuleEntry>(::dlsym(library, cuda::kModuleEntry));
    const cuda::Module* module = entry == nullptr ? nullptr : entry();
    if (module == nullptr || module->version != cuda::kModuleVersion || module->table_bytes != cuda::kTableBytes)
        return nothing(
            fmt::format("{} belongs to another build of slipstream; install both of one version", path->string()));
    return cards_of(*module);
}

CudaCards cards_of(const cuda::Module& module) {
    cuda::ErrorText error{};
    std::int32_t n = 0;
    switch (module.count_devices(&n, &error)) {
        case cuda::Status::Ok:
            break;
        case cuda::Status::NoDriver:
            return nothing(fmt::format("no NVIDIA driver is installed ({})", error.text));
        case cuda::Status::DriverTooOld:
            return nothing(fmt::format("the NVIDIA driver is too old ({}); install a newer one", error.text));
        case cuda::Status::NoDevice:
            return nothing(fmt::format("the NVIDIA driver shows no card ({})", error.text));
        default:
            return nothing(fmt::format("the NVIDIA driver does not answer ({})", error.text));
    }
    if (n <= 0) return nothing("the NVIDIA driver shows no card");
    CudaCards found;
    found.module = &module;
    bool any_serves = false;
    for (std::int32_t i = 0; i < n; ++i) {
        cuda::DeviceProperties& card = found.cards.emplace_back();
        if (module.device_properties(i, &card, &error) != cuda::Status::Ok)
            return nothing(fmt::format("the NVIDIA driver tells nothing of card {} ({})", i, error.text));
        any_serves = any_serves || card.sm >= cuda::kLeastSm;
    }
    if (!any_serves)
        found.why_not = fmt::format("the card is too old ({}, sm_{}): sm_{} and newer are served", found.cards[0].name,
                                    found.cards[0].sm, cuda::kLeastSm);
    return found;
}

}  // namespace slipstream
