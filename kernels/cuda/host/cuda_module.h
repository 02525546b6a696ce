// Finds the CUDA module and the cards behind it. It is a library of its own, opened when a card may be wanted, so that
// a program without one, or on a machine without a driver, loses nothing: then there is one line that says why.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/cuda/module_api.h"

namespace slipstream {

/// What there is of CUDA for this process. `CUDA_VISIBLE_DEVICES` is the driver's to honour.
struct CudaCards {
    const cuda::Module* module = nullptr;       // valid until the process ends; null where there is none to use
    std::vector<cuda::DeviceProperties> cards;  // all that the driver shows, also those too old to serve
    /// Why no card serves: not built, no driver, no card, driver or cards too old, no code for them. Empty where one
    /// does.
    std::string why_not;

    /// Whether card `ordinal` is there, young enough, and one that the module has code for.
    [[nodiscard]] bool serves(std::size_t ordinal) const;
    /// Why it does not, in a line; empty where it does.
    [[nodiscard]] std::string why_not_card(std::size_t ordinal) const;
};

/// Whether kernels compiled for `architectures` (Module::architectures) run on a card of compute capability `sm`:
/// machine code serves its generation from its own number on, PTX all that is newer, names with a letter their own card
/// alone. True where nothing is known.
[[nodiscard]] bool has_code_for(std::string_view architectures, std::int32_t sm);

/// A line on a card that the module has no code for.
[[nodiscard]] std::string no_code_line(const cuda::Module& module, const cuda::DeviceProperties& card);

/// Looks for the module's file in `folders`, in order; the first that is there is opened.
[[nodiscard]] CudaCards find_cuda_cards(std::span<const std::filesystem::path> folders);

/// The same for a module that is there already.
[[nodiscard]] CudaCards cards_of(const cuda::Module& module);

/// 13000 as "13.0".
[[nodiscard]] std::string cuda_version_text(std::int32_t version);

}  // namespace slipstream
