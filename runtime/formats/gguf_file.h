// The header of a GGUF file, version 2 or 3: metadata and tensor directory, parsed from bytes that the caller keeps (a
// mapping, a test, a fuzzer). Format: ggml/docs/gguf.md. Only names are copied; values stay in the bytes and are
// decoded on request. Invariant after parse(): every value, string, array and tensor is inside the bytes, names are
// unique, and no tensors overlap.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kernels/base/tensor_view.h"
#include "runtime/formats/gguf_types.h"

namespace slipstream {

/// Type of a metadata value; the numbers are those of the file format.
enum class GgufValueType : std::uint32_t {
    U8 = 0,
    I8 = 1,
    U16 = 2,
    I16 = 3,
    U32 = 4,
    I32 = 5,
    F32 = 6,
    Bool = 7,
    String = 8,
    Array = 9,
    U64 = 10,
    I64 = 11,
    F64 = 12
};

/// One metadata value, as a view of its bytes. Each accessor returns nullopt if the value is of another kind.
struct GgufValue {
    GgufValueType type = GgufValueType::U8;
    std::span<const std::byte> raw;                  // bytes of a scalar; text of a string; elements of an array
    GgufValueType element_type = GgufValueType::U8;  // type of the elements of an array
    std::uint64_t count = 0;                         // number of elements of an array

    [[nodiscard]] std::optional<std::int64_t> integer() const;  // any integer type; nullopt above 2^63 - 1
    [[nodiscard]] std::optional<double> number() const;         // any integer or float type
    [[nodiscard]] std::optional<bool> boolean() const;
    [[nodiscard]] std::optional<std::string_view> string() const;
    [[nodiscard]] std::optional<std::vector<std::int64_t>> integers() const;  // array of integers or booleans
    [[nodiscard]] std::optional<std::vector<double>> numbers() const;         // array of any numbers
    [[nodiscard]] std::optional<std::vector<std::string>> strings() const;
    /// Returns the value as one printable line; of a long array, it has only the first elements and the length.
    [[nodiscard]] std::string to_text() const;
};

/// An entry of the tensor directory.
struct GgufTensor {
    std::string name;
    const GgmlType* type = nullptr;
    int rank = 0;                                // 1 to 4
    std::array<std::int64_t, kMaxRank> shape{};  // row-major: the file's dimensions in reverse order
    std::size_t offset = 0;                      // offset of the data, in bytes from the start of the file
    std::size_t bytes = 0;
};

/// A parsed header. Views that it returns are valid as long as the bytes that were parsed.
class GgufFile {
public:
    /// Parses the header. `bytes` must outlive the result. `name` is for messages. Throws FormatError (damaged) or
    /// Unsupported (version, byte order, tensor type).
    [[nodiscard]] static GgufFile parse(std::span<const std::byte> bytes, std::string name);

    [[nodiscard]] const std::string& name() const { return name_; }
    [[nodiscard]] std::uint32_t version() const { return version_; }
    /// Returns the metadata in file order.
    [[nodiscard]] const std::vector<std::pair<std::string, GgufValue>>& entries() const { return entries_; }
    [[nodiscard]] const std::vector<GgufTensor>& tensors() const { return tensors_; }
    [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }

    /// Returns the value of the key `key`; null if the file does not have it.
    [[nodiscard]] const GgufValue* find(std::string_view key) const;
    /// Typed look-up: returns the value of the key `key`; nullopt if the file does not have it. Throws FormatError if
    /// the value has another type.
    [[nodiscard]] std::optional<std::int64_t> integer(std::string_view key) const;
    [[nodiscard]] std::optional<double> number(std::string_view key) const;
    [[nodiscard]] std::optional<bool> boolean(std::string_view key) const;
    [[nodiscard]] std::optional<std::string_view> string(std::string_view key) const;

private:
    friend class GgufParser;

    std::string name_;
    std::span<const std::byte> bytes_;
    std::uint32_t version_ = 0;
    std::vector<std::pair<std::string, GgufValue>> entries_;
    std::unordered_map<std::string, std::size_t> index_;  // key -> index into entries_
    std::vector<GgufTensor> tensors_;
};

}  // namespace slipstream
