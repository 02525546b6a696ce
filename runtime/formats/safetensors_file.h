// The header of one safetensors file: names, types, shapes and offsets of tensors, parsed from bytes that the caller
// keeps. Format: huggingface/safetensors README, "Format": u64 header length, JSON header, then the data. Types that
// are not supported are kept by name, since a file may have tensors that the model does not need. Models of several
// files are assembled in hf_directory.cpp. Invariant after parse(): every tensor has the size of its shape, and
// together they cover the data without overlaps or holes. The data of a tensor is not aligned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/dtype.h"

namespace slipstream {

/// A tensor in the header.
struct SafetensorsTensor {
    std::string name;
    std::string type_name;       // "BF16", "F8_E4M3"
    std::optional<DType> dtype;  // nullopt: the type is not supported
    std::vector<std::int64_t> shape;
    std::size_t offset = 0;  // offset of the data, in bytes from the start of the file
    std::size_t bytes = 0;
};

/// A parsed header.
struct SafetensorsFile {
    std::vector<SafetensorsTensor> tensors;                     // sorted by the offset of the data
    std::vector<std::pair<std::string, std::string>> metadata;  // entries of "__metadata__", sorted by key

    /// Parses the header. `bytes`, the whole file, need only live during the call. `name` is for messages. Throws
    /// FormatError.
    [[nodiscard]] static SafetensorsFile parse(std::span<const std::byte> bytes, const std::string& name);
};

}  // namespace slipstream
