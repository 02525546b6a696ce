// Says in an error what was on its way, and at which layer.
#pragma once

#include <cstdint>
#include <string>

#include <fmt/format.h>

#include "kernels/base/error.h"

namespace slipstream {

/// Calls `call`; an Error that it throws becomes an IoError that begins with `what`: "weights", "KV", "rows".
template <typename Call>
decltype(auto) with_context(const char* what, const Call& call) {
    try {
        return call();
    } catch (const Error& error) {
        throw IoError(fmt::format("{}: {}", what, error.what()));
    }
}

/// Where a pass is that is at no layer.
inline constexpr std::int64_t kKvStage = -1;
inline constexpr std::int64_t kLmHeadStage = -2;

/// "layer 3", "the LM head", "KV".
[[nodiscard]] inline std::string pass_place(std::int64_t layer) {
    if (layer == kKvStage) return "KV";
    return layer == kLmHeadStage ? "the LM head" : fmt::format("layer {}", layer);
}

/// Calls `call`; what a copy, a file or a card refuses in it begins with the layer of the model (or kKvStage,
/// kLmHeadStage).
template <typename Call>
decltype(auto) at_layer(std::int64_t layer, const Call& call) {
    try {
        return call();
    } catch (const IoError& error) {
        throw IoError(fmt::format("{}: {}", pass_place(layer), error.what()));
    } catch (const CudaError& error) {
        throw CudaError(fmt::format("{}: {}", pass_place(layer), error.what()));
    }
}

}  // namespace slipstream
