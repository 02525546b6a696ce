// Decodes the bytes of a GGUF scalar: little-endian, unaligned. Shared by the parser and GgufValue only.
#pragma once

#include <bit>
#include <cstddef>
#include <cstring>
#include <span>

#include "kernels/base/check.h"
#include "runtime/formats/gguf_file.h"

namespace slipstream {

static_assert(std::endian::native == std::endian::little, "the readers copy little-endian numbers as they are");

/// Returns the number in the first sizeof(T) bytes of `raw`, which must have so many (CHECKed).
template <typename T>
[[nodiscard]] T load_scalar(std::span<const std::byte> raw) {
    CHECK(raw.size() >= sizeof(T));
    T value;
    std::memcpy(&value, raw.data(), sizeof(T));
    return value;
}

/// Returns the size of a scalar type in bytes; other types fail a CHECK.
[[nodiscard]] std::size_t scalar_bytes(GgufValueType type);

}  // namespace slipstream
