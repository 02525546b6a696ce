// Writes and reads the fields of a section. table_file.cpp writes and reads the file around them.
#include <algorithm>
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

void TableWriter::text(std::string_view value) {
    CHECK(value.size() <= std::numeric_limits<std::uint32_t>::max(), "a text of {} bytes", value.size());
    u32(static_cast<std::uint32_t>(value.size()));
    append(value.data(), value.size());
}

TableReader::TableReader(std::span<const std::byte> bytes, std::string where)
    : bytes_(bytes), where_(std::move(where)) {
    // Arrays are used in place, so they must be aligned.
    CHECK(reinterpret_cast<std::uintptr_t>(bytes.data()) % alignof(std::uint64_t) == 0, "{}", where_);
}

void TableReader::fail(std::string_view what) const {
    throw FormatError(fmt::format("{}: {}", where_, what));
}

std::span<const std::byte> TableReader::take(std::uint64_t n_bytes) {
    if (n_bytes > bytes_.size() - offset_)
        fail(fmt::format("{} bytes are expected at {}, there are {}; the file is damaged", n_bytes, offset_,
                         bytes_.size() - offset_));
    const auto taken = bytes_.subspan(offset_, n_bytes);
    offset_ += n_bytes;
    return taken;
}

std::span<const std::byte> TableReader::elements(std::uint64_t n, std::size_t element_bytes) {
    if (n > bytes_.size() / element_bytes) fail(fmt::format("an array claims {} elements; the file is damaged", n));
    return take(n * element_bytes);
}

void TableReader::skip_padding() {
    const auto padding = take(round_up(offset_, kTableAlignmentBytes) - offset_);
    if (std::ranges::any_of(padding, [](std::byte byte) { return byte != std::byte{}; }))
        fail("the padding holds something; the file is damaged");
}

std::string_view TableReader::text() {
    const auto bytes = take(u32());
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void TableReader::finish() const {
    if (offset_ != bytes_.size())
        fail(fmt::format("{} bytes are left over; the table was made by another version", bytes_.size() - offset_));
}

}  // namespace slipstream::draft
