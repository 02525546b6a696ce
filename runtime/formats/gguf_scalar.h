// Bytes of a GGUF scalar to a C++ number. Little-endian, unaligned; shared by the parser and the values, nobody else's
// business.
#pragma once

#include <bit>
#include <cstddef>
#include <cstring>
#include <span>

#include "kernels/base/check.h"
#include "runtime/formats/gguf_file.h"

namespace slipstream {

static_assert(std::endian::native == std::endian::little, "the readers copy little-endian numbers as they are");

/// The number in the first sizeof(T) of `raw`.
template <typename T>
[[nodiscard]] T load_scalar(std::span<const std::byte> raw) {
    CHECK(raw.size() >= sizeof(T));
    T value;
    std::memcpy(&value, raw.data(), sizeof(T));
    return value;
}

/// Bytes of a scalar type; CHECKs that it is one.
[[nodiscard]] std::size_t scalar_bytes(GgufValueType type);

}  // namespace slipstream
