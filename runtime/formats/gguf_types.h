// The tensor types of ggml by the numbers that GGUF files carry: every one has a name and a size here, so that a file
// can be checked and described whole; only those with a DType can be computed on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "kernels/base/dtype.h"

namespace slipstream {

struct GgmlType {
    std::uint32_t id;
    std::string_view name;        // "Q4_K", "IQ2_XS"
    std::int64_t block_elements;  // along the fastest dimension
    std::size_t block_bytes;
    std::optional<DType> dtype;  // nothing: not served
};

/// The type of this number, or nullptr where no ggml known to us has one (ids 4, 5, 31 to 33 and 36 to 38 were
/// withdrawn).
[[nodiscard]] const GgmlType* find_ggml_type(std::uint32_t id);

/// "F32, F16, ...": what to say after "served:".
[[nodiscard]] std::string served_type_names();

}  // namespace slipstream
