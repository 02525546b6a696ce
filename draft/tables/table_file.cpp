#include "draft/tables/table_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <system_error>

#include <fmt/format.h>
#include <xxhash.h>

#include "kernels/base/check.h"
#include "kernels/base/checked_math.h"
#include "kernels/base/error.h"
#include "offload/atomic_file.h"
#include "offload/mapped_file.h"
#include "runtime/text/printable.h"

namespace slipstream::draft {

namespace {

namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little, "numbers are copied as they are");

constexpr std::string_view kMagic = "SLPTABLE";
constexpr std::uint32_t kVersion = 1;

std::uint64_t checksum(std::string_view name, std::span<const std::byte> payload) {
    return XXH3_64bits_withSeed(payload.data(), payload.size(), XXH3_64bits(name.data(), name.size()));
}

// Makes the folder of the file if it is missing, private to the user.
void make_folder_of(const fs::path& path) {
    if (!path.has_parent_path()) return;
    std::error_code error;
    make_private_folder(path.parent_path(), error);
    if (error)
        throw IoError(
            fmt::format("{}: the folder for tables cannot be made: {}", path.parent_path().string(), error.message()));
}

}  // namespace

void write_table_bytes(std::span<const TableSection> sections, const ByteSink& sink) {
    std::size_t offset = 0;
    const auto put = [&](const void* data, std::size_t n_bytes) {
        sink({static_cast<const std::byte*>(data), n_bytes});
        offset += n_bytes;
    };
    const auto put_number = [&](auto value) { put(&value, sizeof(value)); };
    put(kMagic.data(), kMagic.size());
    put_number(kVersion);
    put_number(static_cast<std::uint32_t>(sections.size()));
    for (const TableSection& section : sections) {
        const std::span<const std::byte> payload = section.fields.bytes();
        put_number(static_cast<std::uint32_t>(section.name.size()));
        put(section.name.data(), section.name.size());
        put_number(static_cast<std::uint64_t>(payload.size()));
        put_number(checksum(section.name, payload));
        constexpr std::array<std::byte, kTableAlignmentBytes> kZeros{};
        put(kZeros.data(), round_up(offset, kTableAlignmentBytes) - offset);
        put(payload.data(), payload.size());
    }
}

void write_table_file(const fs::path& path, std::span<const TableSection> sections) {
    make_folder_of(path);
    AtomicFile file(path, {.new_mode = kOwnerOnlyMode, .refusal = "the table cannot be written"});
    write_table_bytes(sections, [&](std::span<const std::byte> bytes) { file.write(bytes); });
    file.commit();
}

struct TableFile::Contents {
    struct Section {
        std::string name;
        std::span<const std::byte> payload;
    };
    fs::path path;
    std::optional<MappedFile> mapping;
    std::span<const std::byte> bytes;
    std::vector<Section> sections;

    void read() {
        TableReader header(bytes, path.string());
        if (bytes.size() < kMagic.size() ||
            std::memcmp(header.take(kMagic.size()).data(), kMagic.data(), kMagic.size()))
            header.fail("not a table file");
        if (const std::uint32_t version = header.u32(); version != kVersion)
            header.fail(fmt::format("a table file of version {}, this program reads {}", version, kVersion));
        for (std::uint32_t n = header.u32(); n > 0; --n) {
            const std::string_view name = header.text();
            const std::uint64_t n_payload_bytes = header.u64();
            const std::uint64_t expected = header.u64();
            header.skip_padding();
            const auto payload = header.take(n_payload_bytes);
            if (checksum(name, payload) != expected)
                header.fail(fmt::format("a damaged table file (checksum of section {})", printable(name)));
            if (std::ranges::find(sections, name, &Section::name) != sections.end())
                header.fail(fmt::format("a damaged table file (section {} twice)", printable(name)));
            sections.push_back({std::string(name), payload});
        }
        header.finish();
    }
};

TableFile::TableFile(const fs::path& path) : contents_(std::make_unique<Contents>()) {
    contents_->path = path;
    contents_->mapping.emplace(path);
    contents_->bytes = contents_->mapping->bytes();
    contents_->read();
}

TableFile::TableFile(std::unique_ptr<Contents> contents) : contents_(std::move(contents)) {}

TableFile TableFile::parse(std::span<const std::byte> bytes, fs::path path) {
    auto contents = std::make_unique<Contents>();
    contents->path = std::move(path);
    contents->bytes = bytes;
    contents->read();
    return TableFile(std::move(contents));
}

TableFile::~TableFile() = default;
TableFile::TableFile(TableFile&&) noexcept = default;
TableFile& TableFile::operator=(TableFile&&) noexcept = default;

const fs::path& TableFile::path() const {
    return contents_->path;
}

std::size_t TableFile::total_bytes() const {
    return contents_->bytes.size();
}

std::vector<std::string> TableFile::section_names() const {
    std::vector<std::string> names;
    for (const Contents::Section& section : contents_->sections) names.push_back(section.name);
    return names;
}

std::optional<TableReader> TableFile::section(std::string_view name) const {
    const auto found = std::ranges::find(contents_->sections, name, &Contents::Section::name);
    if (found == contents_->sections.end()) return std::nullopt;
    return TableReader(found->payload, fmt::format("{}, section {}", contents_->path.string(), printable(name)));
}

}  // namespace slipstream::draft
