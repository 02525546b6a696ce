// Adds context to exceptions: what was being copied, and at which layer.
#pragma once

#include <cstdint>
#include <string>

#include <fmt/format.h>

#include "kernels/base/error.h"

namespace slipstream {

/// Returns what `call` returns. Turns an Error that it throws into an IoError whose message begins with `what`:
/// "weights", "KV", "rows".
template <typename Call>
decltype(auto) with_context(const char* what, const Call& call) {
    try {
        return call();
    } catch (const Error& error) {
        throw IoError(fmt::format("{}: {}", what, error.what()));
    }
}

/// Values of `layer` for a pass that is not in a layer.
inline constexpr std::int64_t kKvStage = -1;
inline constexpr std::int64_t kLmHeadStage = -2;

/// Returns "layer 3", "the LM head" or "KV".
[[nodiscard]] inline std::string pass_place(std::int64_t layer) {
    if (layer == kKvStage) return "KV";
    return layer == kLmHeadStage ? "the LM head" : fmt::format("layer {}", layer);
}

/// Returns what `call` returns. Adds pass_place(layer) in front of the message of an IoError, CudaError or FormatError
/// (weights that give no finite numbers) that it throws. `layer` is an index in the whole model, kKvStage or
/// kLmHeadStage.
template <typename Call>
decltype(auto) at_layer(std::int64_t layer, const Call& call) {
    try {
        return call();
    } catch (const IoError& error) {
        throw IoError(fmt::format("{}: {}", pass_place(layer), error.what()));
    } catch (const FormatError& error) {
        throw FormatError(fmt::format("{}: {}", pass_place(layer), error.what()));
    } catch (const CudaError& error) {
        throw CudaError(fmt::format("{}: {}", pass_place(layer), error.what()));
    }
}

}  // namespace slipstream
