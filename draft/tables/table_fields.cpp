// The fields of a table's section, written and read again; the file around them is table_file.cpp's.
#include <cstring>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "draft/tables/table_file.h"
#include "kernels/base/check.h"
#include "kernels/base/checked_math.h"
#include "kernels/base/error.h"

namespace slipstream::draft {

void TableWriter::append(const void* data, std::size_t n_bytes) {
    const auto* first = static_cast<const std::byte*>(data);
    bytes_.insert(bytes_.end(), first, first + n_bytes);
}

void TableWriter::pad() {
    bytes_.resize(round_up(bytes_.size(), kTableAlignmentBytes));
}

void TableWriter::u32(std::uint32_t value) {
    append(&value, sizeof(value));
}

void TableWriter::u64(std::uint64_t value) {
    append(&value, sizeof(value));
}

void TableWriter::f32(float value) {
    append(&value, sizeof(value));
}

void TableWriter::text(std::string_view value) {
    CHECK(value.size() <= std::numeric_limits<std::uint32_t>::max(), "a text of {} bytes", value.size());
    u32(static_cast<std::uint32_t>(value.size()));
    append(value.data(), value.size());
}

void TableWriter::u32s(std::span<const std::uint32_t> values) {
    u64(values.size());
    pad();
    append(values.data(), values.size_bytes());
}

void TableWriter::i32s(std::span<const std::int32_t> values) {
    u64(values.size());
    pad();
    append(values.data(), values.size_bytes());
}

void TableWriter::f32s(std::span<const float> values) {
    u64(values.size());
    pad();
    append(values.data(), values.size_bytes());
}

TableReader::TableReader(std::span<const std::byte> bytes, std::string where)
    : bytes_(bytes), where_(std::move(where)) {
    // Arrays are used where they lie.
    CHECK(reinterpret_cast<std::uintptr_t>(bytes.data()) % alignof(std::uint64_t) == 0, "{}", where_);
}

void TableReader::fail(std::string_view what) const {
    throw FormatError(fmt::format("{}: {}", where_, what));
}

std::span<const std::byte> TableReader::take(std::size_t n_bytes) {
    if (n_bytes > bytes_.size() - offset_)
        fail(fmt::format("{} bytes are wanted at {}, there are {}; the table is damaged, build it anew", n_bytes,
                         offset_, bytes_.size() - offset_));
    const auto taken = bytes_.subspan(offset_, n_bytes);
    offset_ += n_bytes;
    return taken;
}

void TableReader::skip_padding() {
    take(round_up(offset_, kTableAlignmentBytes) - offset_);
}

namespace {

template <typename T>
T number_in(std::span<const std::byte> bytes) {
    T value;
    std::memcpy(&value, bytes.data(), sizeof(T));
    return value;
}

/// `n` elements would be more bytes than any memory holds.
template <typename T>
bool overflows(std::uint64_t n) {
    return n > std::numeric_limits<std::size_t>::max() / sizeof(T);
}

template <typename T>
std::span<const T> array_in(std::span<const std::byte> bytes) {
    return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
}

}  // namespace

std::uint32_t TableReader::u32() {
    return number_in<std::uint32_t>(take(sizeof(std::uint32_t)));
}

std::uint64_t TableReader::u64() {
    return number_in<std::uint64_t>(take(sizeof(std::uint64_t)));
}

float TableReader::f32() {
    return number_in<float>(take(sizeof(float)));
}

std::string_view TableReader::text() {
    const auto bytes = take(u32());
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::span<const std::uint32_t> TableReader::u32s() {
    const std::uint64_t n = u64();
    skip_padding();
    if (overflows<std::uint32_t>(n)) fail(fmt::format("an array says {} elements; the table is damaged", n));
    return array_in<std::uint32_t>(take(n * sizeof(std::uint32_t)));
}

std::span<const std::int32_t> TableReader::i32s() {
    const std::span<const std::uint32_t> words = u32s();
    return {reinterpret_cast<const std::int32_t*>(words.data()), words.size()};
}

std::span<const float> TableReader::f32s() {
    const std::span<const std::uint32_t> words = u32s();
    return {reinterpret_cast<const float*>(words.data()), words.size()};
}

void TableReader::finish() const {
    if (offset_ != bytes_.size())
        fail(fmt::format("{} bytes are left over; the table was made by another version", bytes_.size() - offset_));
}

}  // namespace slipstream::draft
