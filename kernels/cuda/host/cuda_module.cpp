#include "kernels/cuda/host/cuda_module.h"

#include <dlfcn.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <system_error>

#include <fmt/format.h>

#include "kernels/cuda/host/table_bytes.h"

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

// Returns the loader's error without line breaks.
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

bool has_code_for(std::string_view architectures, std::int32_t sm) {
    bool any = false;
    for (std::size_t begin = 0; begin < architectures.size();) {
        const std::size_t end = std::min(architectures.find_first_of(",;", begin), architectures.size());
        const std::string_view name = architectures.substr(begin, end - begin);
        begin = end + 1;
        std::int32_t of = 0;
        const auto [rest, error] = std::from_chars(name.data(), name.data() + name.size(), of);
        if (error != std::errc()) continue;
        any = true;
        const std::string_view kind(rest, static_cast<std::size_t>(name.data() + name.size() - rest));
        const bool own_alone = !kind.empty() && kind.front() != '-';
        if (own_alone) {
            if (of == sm) return true;
            continue;
        }
        if (kind != "-virtual" && of / 10 == sm / 10 && of <= sm) return true;
        if (kind != "-real" && of <= sm) return true;
    }
    return !any;
}

std::string no_code_line(const cuda::Module& module, const cuda::DeviceProperties& card) {
    return fmt::format(
        "the CUDA module has no code for the GPU ({}, sm_{}): it is built for {}; build one with "
        "tools/build_module {}",
        card.name, card.sm, *module.architectures == '\0' ? "others" : module.architectures, card.sm);
}

std::string CudaCards::why_not_card(std::size_t ordinal) const {
    if (module == nullptr) return why_not;
    if (ordinal >= cards.size()) return fmt::format("the driver shows {} of them, numbered from 0", cards.size());
    const cuda::DeviceProperties& card = cards[ordinal];
    if (card.sm < cuda::kLeastSm)
        return fmt::format("the GPU is too old ({}, sm_{}): sm_{} and newer are served", card.name, card.sm,
                           cuda::kLeastSm);
    if (!has_code_for(module->architectures, card.sm)) return no_code_line(*module, card);
    return {};
}

bool CudaCards::serves(std::size_t ordinal) const {
    return ordinal < cards.size() && why_not_card(ordinal).empty();
}

std::string cuda_version_text(std::int32_t version) {
    return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

CudaCards find_cuda_cards(std::span<const fs::path> folders) {
    const std::optional<fs::path> path = module_path(folders);
    if (!path) return nothing(fmt::format("this build has no CUDA module ({})", cuda::kModuleFile));
    // The module is never unloaded: the CUDA runtime in it ends with the process.
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
            return nothing(fmt::format("the NVIDIA driver shows no GPU ({})", error.text));
        default:
            return nothing(fmt::format("the NVIDIA driver does not answer ({})", error.text));
    }
    if (n <= 0) return nothing("the NVIDIA driver shows no GPU");
    CudaCards found;
    found.module = &module;
    for (std::int32_t i = 0; i < n; ++i) {
        cuda::DeviceProperties& card = found.cards.emplace_back();
        if (module.device_properties(i, &card, &error) != cuda::Status::Ok)
            return nothing(fmt::format("the NVIDIA driver reports no properties of GPU {} ({})", i, error.text));
    }
    for (std::size_t i = 0; i < found.cards.size(); ++i)
        if (found.serves(i)) return found;
    found.why_not = found.why_not_card(0);
    return found;
}

}  // namespace slipstream
