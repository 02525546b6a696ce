// The tensor types of ggml, by their numbers in GGUF files. All of them have a name and a size here, so that every file
// can be checked and described. Only types with a DType can be computed with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "kernels/base/dtype.h"

namespace slipstream {

/// A tensor type of ggml.
struct GgmlType {
    std::uint32_t id;
    std::string_view name;        // as ggml spells it: "Q4_K", "IQ2_XS"
    std::int64_t block_elements;  // elements of a quantisation block, along the fastest dimension
    std::size_t block_bytes;
    std::optional<DType> dtype;  // nullopt: the kernels do not support the type
};

/// Returns the type with this number; null if no known version of ggml has one (4, 5, 31 to 33 and 36 to 38 were
/// withdrawn). The result is static.
[[nodiscard]] const GgmlType* find_ggml_type(std::uint32_t id);

/// Returns the names of the types with a DType, "F32, F16, ...", for messages.
[[nodiscard]] std::string served_type_names();

/// Returns the endings of the names of GGUF files whose types are served ("Q4_K_M"), most bits first, for messages.
[[nodiscard]] std::string_view served_file_kinds();

}  // namespace slipstream
