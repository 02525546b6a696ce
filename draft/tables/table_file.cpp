#include "draft/tables/table_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <xxhash.h>

#include "kernels/base/check.h"
#include "kernels/base/checked_math.h"
#include "kernels/base/error.h"
#include "offload/mapped_file.h"
#include "runtime/text/printable.h"

namespace slipstream::draft {

namespace {

namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little, "numbers are copied as they are");

constexpr std::string_view kMagic = "SLPTABLE";
constexpr std::uint32_t kVersion = 1;
constexpr mode_t kOwnerOnly = 0600;  // tables hold pieces of what was said

std::uint64_t checksum(std::string_view name, std::span<const std::byte> payload) {
    return XXH3_64bits_withSeed(payload.data(), payload.size(), XXH3_64bits(name.data(), name.size()));
}

fs::path folder_of(const fs::path& path) {
    return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

// A file beside its target, NAME.N-N.part, that is gone with its owner until it takes the target's name.
class PartFile {
public:
    explicit PartFile(fs::path target) : target_(std::move(target)) {
        static std::atomic<std::uint32_t> n_tried{0};
        // Names are taken where a program that was killed left its file, or one on another machine has our number.
        do {
            part_ = target_;
            part_ += fmt::format(".{}-{}.part", ::getpid(), n_tried.fetch_add(1));
            descriptor_ = ::open(part_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kOwnerOnly);
        } while (descriptor_ < 0 && errno == EEXIST);
        if (descriptor_ < 0) fail();
    }
    PartFile(const PartFile&) = delete;
    PartFile& operator=(const PartFile&) = delete;
    ~PartFile() {
        if (descriptor_ >= 0) ::close(descriptor_);
        if (!is_named_) ::unlink(part_.c_str());
    }

    void write(std::span<const std::byte> bytes) {
        while (!bytes.empty()) {
            const ssize_t n = ::write(descriptor_, bytes.data(), bytes.size());
            if (n < 0 && errno == EINTR) continue;
            if (n < 0) fail();
            bytes = bytes.subspan(static_cast<std::size_t>(n));
        }
    }

    /// The bytes are on the disk before the name is; the name is when this returns.
    void take_name() {
        if (::fsync(descriptor_) != 0) fail();
        if (::close(std::exchange(descriptor_, -1)) != 0) fail();
        if (::rename(part_.c_str(), target_.c_str()) != 0) fail();
        is_named_ = true;
        const int folder = ::open(folder_of(target_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        // Not every system lets a folder be opened or synchronised; the file itself is whole either way.
        if (folder < 0) return;
        ::fsync(folder);
        ::close(folder);
    }

private:
    [[noreturn]] void fail() const {
        throw IoError(fmt::format("{}: the table cannot be written: {}", target_.string(), std::strerror(errno)));
    }

    fs::path target_;
    fs::path part_;
    int descriptor_ = -1;
    bool is_named_ = false;  // as the target
};

// Where the file will really stand, its folder made.
fs::path prepared_target(const fs::path& path) {
    std::error_code error;
    fs::path target = path;
    if (fs::is_symlink(path, error)) {
        const fs::path followed = fs::canonical(path, error);
        if (!error) target = followed;
    }
    const fs::file_status status = fs::status(target, error);
    if (fs::exists(status) && !fs::is_regular_file(status))
        throw IoError(fmt::format("{}: the table cannot be written: no regular file; name another", path.string()));
    if (target.has_parent_path()) {
        if (fs::create_directories(target.parent_path(), error) && !error)
            fs::permissions(target.parent_path(), fs::perms::owner_all, error);
        if (error)
            throw IoError(fmt::format("{}: the folder for tables cannot be made: {}", target.parent_path().string(),
                                      error.message()));
    }
    return target;
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
    PartFile file(prepared_target(path));
    write_table_bytes(sections, [&](std::span<const std::byte> bytes) { file.write(bytes); });
    file.take_name();
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
