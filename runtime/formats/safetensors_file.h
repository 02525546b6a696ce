// One safetensors file, the header alone: names, types, shapes and places of tensors over bytes that somebody else
// keeps. Format: huggingface/safetensors README, "Format": u64 header length, JSON header, then the data. Types that
// are not served are kept by name, for a file may hold tensors that the model does not need. Sharding is
// hf_directory.cpp's business. Invariant after parse(): every tensor has the size of its shape, and together they cover
// the data without overlap or hole. Where a tensor begins is not aligned to anything.
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

struct SafetensorsTensor {
    std::string name;
    std::string type_name;       // "BF16", "F8_E4M3"
    std::optional<DType> dtype;  // nothing: not served
    std::vector<std::int64_t> shape;
    std::size_t offset = 0;  // from the start of the file
    std::size_t bytes = 0;
};

struct SafetensorsFile {
    std::vector<SafetensorsTensor> tensors;                     // by place in the file
    std::vector<std::pair<std::string, std::string>> metadata;  // "__metadata__", by key

    /// Parses the header. `bytes` need only live during the call; `name` stands in messages. Throws FormatError.
    [[nodiscard]] static SafetensorsFile parse(std::span<const std::byte> bytes, const std::string& name);
};

}  // namespace slipstream
