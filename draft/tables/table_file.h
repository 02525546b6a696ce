// Files of learnt and built tables: named sections in a small container that is checked as a whole and replaced
// atomically.
//
// Layout, little-endian as in memory: magic "SLPTABLE", u32 version, u32 number of sections; then for each section u32
// name length, name, u64 payload bytes, u64 checksum, and the payload. Each payload starts at a multiple of 64 bytes
// from the start of the file, so that large arrays can be used in the mapped file. Padding is zero, and the file ends
// with the last payload. The checksum is XXH3-64 of the payload, seeded with XXH3-64 of the name.
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

/// Alignment of payloads in a file, and of arrays in a section.
inline constexpr std::size_t kTableAlignmentBytes = 64;

/// Collects the fields of one section in writing order. TableReader reads them in the same order.
class TableWriter {
public:
    TableWriter() = default;
    /// Starts with a copy of `written`, fields of another writer.
    explicit TableWriter(std::span<const std::byte> written) : bytes_(written.begin(), written.end()) {}

    void u32(std::uint32_t value) { append(&value, sizeof(value)); }
    void u64(std::uint64_t value) { append(&value, sizeof(value)); }
    void f32(float value) { append(&value, sizeof(value)); }
    void text(std::string_view value);
    /// Writes the count, padding to 64 bytes from the start of the section, then the elements.
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
    /// Returns the bytes of the section. Valid until the next field is written.
    [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }

private:
    void append(const void* data, std::size_t n_bytes);
    void pad();
    std::vector<std::byte> bytes_;
};

/// Reads fields in the order in which they were written: those of a section, or of a file's head. Checks every count
/// against the remaining bytes. Every read throws FormatError, with the place, if the field does not fit. Arrays and
/// texts are views into the bytes.
class TableReader {
public:
    /// `where`: file and section, for messages. `bytes`, aligned to 8 (CHECKed), must outlive the reader and all views
    /// that it returns.
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
    /// Returns the next `n_bytes` bytes uninterpreted, as a view.
    [[nodiscard]] std::span<const std::byte> take(std::uint64_t n_bytes);
    /// Skips to the next multiple of 64 bytes. Throws FormatError if the skipped bytes are not all zero.
    void skip_padding();
    /// Throws FormatError if there are unread fields.
    void finish() const;
    /// Throws FormatError: the place, then `what`.
    [[noreturn]] void fail(std::string_view what) const;

    /// Returns a writer with the bytes of the whole section, to write it again.
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

/// A named section, to be written.
struct TableSection {
    std::string name;
    TableWriter fields;
};

/// Writes the sections to the file `path` through an AtomicFile (fsync, then rename): a reader sees the old file or the
/// whole new one. Makes missing folders. If `path` is a link, the file that it leads to is replaced, not the link.
/// If it throws IoError, the old file is unchanged and no partial file remains.
void write_table_file(const std::filesystem::path& path, std::span<const TableSection> sections);

/// Receives the next bytes of a file that is being written.
using ByteSink = std::function<void(std::span<const std::byte>)>;
/// Writes the bytes of the file that write_table_file() would write to `sink`, in order.
void write_table_bytes(std::span<const TableSection> sections, const ByteSink& sink);

/// A table file, mapped read-only.
class TableFile {
public:
    /// Maps the file and checks it. Throws IoError if it cannot be read, FormatError if it is damaged, of another
    /// version, or no table file.
    explicit TableFile(const std::filesystem::path& path);
    /// Makes a table file of `bytes` in memory, which must be aligned to 8 and outlive the file and its sections;
    /// throws FormatError as the constructor does. `path` is only for messages.
    [[nodiscard]] static TableFile parse(std::span<const std::byte> bytes, std::filesystem::path path);
    ~TableFile();
    TableFile(TableFile&&) noexcept;
    TableFile& operator=(TableFile&&) noexcept;

    [[nodiscard]] const std::filesystem::path& path() const;
    [[nodiscard]] std::vector<std::string> section_names() const;
    /// Returns the size of the file in bytes.
    [[nodiscard]] std::size_t total_bytes() const;
    /// Returns a reader of the named section, valid as long as the file; nothing if there is no such section.
    [[nodiscard]] std::optional<TableReader> section(std::string_view name) const;

private:
    struct Contents;
    explicit TableFile(std::unique_ptr<Contents> contents);
    std::unique_ptr<Contents> contents_;
};

}  // namespace slipstream::draft
