// Files of learnt and built tables: a small container of named sections, checked as a whole, replaced atomically.
//
// Layout, little-endian: magic "SLPTABLE", u32 version, u32 number of sections, then for each section u32 name length,
// name, u64 payload bytes, u64 checksum of name and payload, and the payload, padded to 64 bytes from the file's start,
// so that large arrays can be used where they are mapped. Padding is zero and the file ends with the last payload. The
// checksum is XXH3-64 of the payload, seeded with XXH3-64 of the name. Memory holds numbers as the file does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace slipstream::draft {

/// Where payloads stand in a file, and arrays in a section.
inline constexpr std::size_t kTableAlignmentBytes = 64;

/// Fields of one section as they are written; also what a reader takes apart again.
class TableWriter {
public:
    TableWriter() = default;
    /// Goes on behind fields that were written before.
    explicit TableWriter(std::span<const std::byte> written) : bytes_(written.begin(), written.end()) {}

    void u32(std::uint32_t value) { append(&value, sizeof(value)); }
    void u64(std::uint64_t value) { append(&value, sizeof(value)); }
    void f32(float value) { append(&value, sizeof(value)); }
    void text(std::string_view value);
    /// Count, padding to 64 bytes from the section's start, then the elements.
    template <typename T>
    void array(std::span<const T> values) {
        static_assert(std::is_trivially_copyable_v<T>);
        u64(values.size());
        pad();
        append(values.data(), values.size_bytes());
    }
    void u32s(std::span<const std::uint32_t> values) { array(values); }
    void i32s(std::span<const std::int32_t> values) { array(values); }
    void f32s(std::span<const float> values) { array(values); }

    [[nodiscard]] bool empty() const { return bytes_.empty(); }
    [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }

private:
    void append(const void* data, std::size_t n_bytes);
    void pad();
    std::vector<std::byte> bytes_;
};

/// Reads fields in the order in which they were written, those of a section or of a file's head; every count is checked
/// against what is there. FormatError, naming the place, where a field does not fit.
class TableReader {
public:
    /// `where`: file and section, for messages. `bytes`, aligned to 8, outlive the reader and what it returns.
    TableReader(std::span<const std::byte> bytes, std::string where);

    [[nodiscard]] std::uint32_t u32() { return number<std::uint32_t>(); }
    [[nodiscard]] std::uint64_t u64() { return number<std::uint64_t>(); }
    [[nodiscard]] float f32() { return number<float>(); }
    [[nodiscard]] std::string_view text();
    template <typename T>
    [[nodiscard]] std::span<const T> array() {
        const std::uint64_t n = u64();
        skip_padding();
        return {reinterpret_cast<const T*>(elements(n, sizeof(T)).data()), n};
    }
    [[nodiscard]] std::span<const std::uint32_t> u32s() { return array<std::uint32_t>(); }
    [[nodiscard]] std::span<const std::int32_t> i32s() { return array<std::int32_t>(); }
    [[nodiscard]] std::span<const float> f32s() { return array<float>(); }
    /// The next bytes, whatever they are.
    [[nodiscard]] std::span<const std::byte> take(std::uint64_t n_bytes);
    /// To the next multiple of 64 bytes; FormatError where anything but zeros lies there.
    void skip_padding();
    /// FormatError where fields are left over.
    void finish() const;
    /// Throws FormatError with `what` behind the place.
    [[noreturn]] void fail(std::string_view what) const;

    /// The whole section as it stands, to be written again.
    [[nodiscard]] TableWriter copy() const { return TableWriter(bytes_); }

private:
    template <typename T>
    T number() {
        T value;
        std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
        return value;
    }
    [[nodiscard]] std::span<const std::byte> elements(std::uint64_t n, std::size_t element_bytes);
    std::span<const std::byte> bytes_;
    std::size_t offset_ = 0;
    std::string where_;
};

struct TableSection {
    std::string name;
    TableWriter fields;
};

/// Writes a file of sections beside `path` and renames it into place (fsync first): a reader sees the old file or the
/// whole new one. Makes missing folders; what a link leads to is replaced, not the link. Throws IoError; nothing is
/// left behind then.
void write_table_file(const std::filesystem::path& path, std::span<const TableSection> sections);

/// Takes the next bytes of a file that is being written.
using ByteSink = std::function<void(std::span<const std::byte>)>;
/// The same bytes to a sink, in order, for a file that is kept by other means.
void write_table_bytes(std::span<const TableSection> sections, const ByteSink& sink);

/// A table file, mapped read-only.
class TableFile {
public:
    /// Throws IoError where it cannot be read, FormatError where it is damaged, of another version or no table file.
    explicit TableFile(const std::filesystem::path& path);
    /// The same of bytes that somebody else keeps, aligned to 8 and outliving the file and its sections; `path` stands
    /// in messages.
    [[nodiscard]] static TableFile parse(std::span<const std::byte> bytes, std::filesystem::path path);
    ~TableFile();
    TableFile(TableFile&&) noexcept;
    TableFile& operator=(TableFile&&) noexcept;

    [[nodiscard]] const std::filesystem::path& path() const;
    [[nodiscard]] std::vector<std::string> section_names() const;
    [[nodiscard]] std::size_t total_bytes() const;
    /// The named section, or nothing.
    [[nodiscard]] std::optional<TableReader> section(std::string_view name) const;

private:
    struct Contents;
    explicit TableFile(std::unique_ptr<Contents> contents);
    std::unique_ptr<Contents> contents_;
};

}  // namespace slipstream::draft
