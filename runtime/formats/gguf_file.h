// GGUF v2/v3, the header alone: metadata and tensor directory over bytes that somebody else keeps (a mapping, a test, a
// fuzzer). Format: ggml/docs/gguf.md. Nothing is copied but names; arrays stay in the file and are decoded when asked
// for. Invariant after parse(): every value, string, array and tensor lies inside the bytes; names are unique; no
// tensors overlap.
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

/// Numbers as in the file.
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

/// One metadata value, still in its bytes. The accessors answer nothing where the value is of another kind.
struct GgufValue {
    GgufValueType type = GgufValueType::U8;
    std::span<const std::byte> raw;                  // a scalar's bytes; a string's text; an array's elements
    GgufValueType element_type = GgufValueType::U8;  // arrays
    std::uint64_t count = 0;                         // arrays

    [[nodiscard]] std::optional<std::int64_t> integer() const;  // any integer type; nothing for a u64 beyond 2^63
    [[nodiscard]] std::optional<double> number() const;         // any integer or float type
    [[nodiscard]] std::optional<bool> boolean() const;
    [[nodiscard]] std::optional<std::string_view> string() const;
    [[nodiscard]] std::optional<std::vector<std::int64_t>> integers() const;  // array of integers or booleans
    [[nodiscard]] std::optional<std::vector<double>> numbers() const;         // array of any numbers
    [[nodiscard]] std::optional<std::vector<std::string>> strings() const;
    /// One printable line; arrays as their first elements and length.
    [[nodiscard]] std::string to_text() const;
};

struct GgufTensor {
    std::string name;
    const GgmlType* type = nullptr;
    int rank = 0;                                // 1 to 4
    std::array<std::int64_t, kMaxRank> shape{};  // row-major as everywhere here: the file's dimensions in reverse
    std::size_t offset = 0;                      // from the start of the file
    std::size_t bytes = 0;
};

class GgufFile {
public:
    /// Parses the header. `bytes` must outlive the result; `name` stands in messages. Throws FormatError (broken) or
    /// Unsupported (version, byte order, tensor type number).
    [[nodiscard]] static GgufFile parse(std::span<const std::byte> bytes, std::string name);

    [[nodiscard]] const std::string& name() const { return name_; }
    [[nodiscard]] std::uint32_t version() const { return version_; }
    [[nodiscard]] const std::vector<std::pair<std::string, GgufValue>>& entries() const { return entries_; }
    [[nodiscard]] const std::vector<GgufTensor>& tensors() const { return tensors_; }
    [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }

    /// The value of a key, or nullptr.
    [[nodiscard]] const GgufValue* find(std::string_view key) const;
    /// Typed look-up: nothing where the key is absent; FormatError where it is there with another type.
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
    std::unordered_map<std::string, std::size_t> index_;  // key -> place in entries_
    std::vector<GgufTensor> tensors_;
};

}  // namespace slipstream
