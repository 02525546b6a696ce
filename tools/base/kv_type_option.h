// Types of KV caches and of views of them, as --kv-type and --view-type spell them.
#pragma once

#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "kernels/base/dtype.h"
#include "runtime/view/view_builder.h"

namespace slipstream::tools {

inline constexpr std::array<std::pair<std::string_view, DType>, 4> kKvTypeOptions{
    {{"bf16", DType::BF16}, {"f16", DType::F16}, {"f32", DType::F32}, {"q8", DType::Q8_0}}};

/// Returns the value of --kv-type that asks for `type`, a type of KV rows. Messages use it; statistics have
/// kv_type_name().
[[nodiscard]] constexpr std::string_view kv_type_option(DType type) {
    for (const auto& [option, of] : kKvTypeOptions)
        if (of == type) return option;
    return "unknown";
}
/// Returns the type of a view as messages write it: that of its rows, `kv_dtype`, or q4.
[[nodiscard]] constexpr std::string_view view_type_text(ViewType type, DType kv_dtype) {
    return type == ViewType::Rows ? kv_type_option(kv_dtype) : view_type_name(type);
}
/// Returns the type that `option` asks for; nothing if it is no such value.
[[nodiscard]] constexpr std::optional<DType> kv_type_of(std::string_view option) {
    for (const auto& [known, type] : kKvTypeOptions)
        if (known == option) return type;
    return std::nullopt;
}

}  // namespace slipstream::tools
