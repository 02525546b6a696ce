// Finds the CUDA module and the GPUs that it can use. The module is a library of its own, opened only when a GPU may be
// wanted. So a program without it, or on a machine without a driver, works all the same, and one line says why there is
// no GPU.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/cuda/module_api.h"

namespace slipstream {

/// The CUDA module and GPUs of this process. The driver applies `CUDA_VISIBLE_DEVICES`.
struct CudaCards {
    const cuda::Module* module = nullptr;       // valid until the process ends; null if there is no usable module
    std::vector<cuda::DeviceProperties> cards;  // all that the driver shows, also those that are too old
    /// Why no GPU can be used: no module in this build, no driver, no GPU, driver or GPUs too old, no code for them.
    /// Empty if one can be used.
    std::string why_not;

    /// Whether GPU `ordinal` exists, is new enough, and is one that the module has code for.
    [[nodiscard]] bool serves(std::size_t ordinal) const;
    /// Returns why serves(ordinal) is false, as one line; empty if it is true.
    [[nodiscard]] std::string why_not_card(std::size_t ordinal) const;
};

/// Whether kernels compiled for `architectures` (Module::architectures) run on a GPU of compute capability `sm` (89 for
/// 8.9). Machine code runs on its own generation from its own number on; PTX on everything newer; names with a letter
/// only on their own GPU. True if `architectures` names nothing.
[[nodiscard]] bool has_code_for(std::string_view architectures, std::int32_t sm);

/// Returns a one-line message for a GPU that the module has no code for.
[[nodiscard]] std::string no_code_line(const cuda::Module& module, const cuda::DeviceProperties& card);

/// Opens the module's file in the first of `folders` that has one, and lists the GPUs. The module is never unloaded.
/// Does not throw: why_not has the reason if no GPU can be used.
[[nodiscard]] CudaCards find_cuda_cards(std::span<const std::filesystem::path> folders);

/// Lists the GPUs of a module that is already open; `module` must outlive the result.
[[nodiscard]] CudaCards cards_of(const cuda::Module& module);

/// Returns a CUDA version as text: "13.0" for 13000.
[[nodiscard]] std::string cuda_version_text(std::int32_t version);

}  // namespace slipstream
