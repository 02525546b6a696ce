// Finds the CUDA module and the cards behind it. It is a library of its own, opened when a card may be wanted, so that
// a program without one, or on a machine without a driver, loses nothing: then there is one line that says why.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "kernels/cuda/module_api.h"

namespace slipstream {

/// What there is of CUDA for this process. `CUDA_VISIBLE_DEVICES` is the driver's to honour.
struct CudaCards {
    const cuda::Module* module = nullptr;       // valid until the process ends; null where there is none to use
    std::vector<cuda::DeviceProperties> cards;  // all that the driver shows, also those too old to serve
    /// Why no card serves: not built, no driver, no card, driver or cards too old. Empty where one does.
    std::string why_not;

    /// Whether card `ordinal` is there and young enough.
    [[nodiscard]] bool serves(std::size_t ordinal) const {
        return ordinal < cards.size() && cards[ordinal].sm >= cuda::kLeastSm;
    }
};

/// Looks for the module's file in `folders`, in order; the first that is there is opened.
[[nodiscard]] CudaCards find_cuda_cards(std::span<const std::filesystem::path> folders);

/// The same for a module that is there already.
[[nodiscard]] CudaCards cards_of(const cuda::Module& module);

/// 13000 as "13.0".
[[nodiscard]] std::string cuda_version_text(std::int32_t version);

}  // namespace slipstream
