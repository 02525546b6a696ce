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
// More than any file of ours has; bounds what a forged header costs.
constexpr std::uint32_t kMaxSections = 1024;
constexpr std::uint32_t kMaxNameBytes = 256;
constexpr int kMaxNameAttempts = 1000;

std::uint64_t checksum(std::string_view name, std::span<const std::byte> payload) {
    return XXH3_64bits_withSeed(payload.data(), payload.size(), XXH3_64bits(name.data(), name.size()));
}

fs::path folder_of(const fs::path& path) {
    return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

// A file that is gone with its owner, or with the program however that ends, until it takes its name: where the system
// can, it has none before that. Elsewhere it stands beside its target as NAME.N-N.part.
class PartFile {
public:
    explicit PartFile(fs::path target) : target_(std::move(target)) {
        if (::access(kDescriptors, X_OK) == 0)
            descriptor_ = ::open(folder_of(target_).c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
        if (descriptor_ >= 0) return;
        try_names([this] {
            descriptor_ = ::open(part_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
            return descriptor_ >= 0;
        });
    }
    PartFile(const PartFile&) = delete;
    PartFile& operator=(const PartFile&) = delete;
    ~PartFile() {
        if (descriptor_ >= 0) ::close(descriptor_);
        if (!part_.empty()) ::unlink(part_.c_str());
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
        if (part_.empty()) {
            const std::string nameless = fmt::format("{}/{}", kDescriptors, descriptor_);
            try_names(
                [&] { return ::linkat(AT_FDCWD, nameless.c_str(), AT_FDCWD, part_.c_str(), AT_SYMLINK_FOLLOW) == 0; });
        }
        if (::close(std::exchange(descriptor_, -1)) != 0) fail();
        if (::rename(part_.c_str(), target_.c_str()) != 0) fail();
        part_.clear();
        const int folder = ::open(folder_of(target_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        // Not every system lets a folder be opened or synchronised; the file itself is whole either way.
        if (folder < 0) return;
        ::fsync(folder);
        ::close(folder);
    }

private:
    static constexpr const char* kDescriptors = "/proc/self/fd";

    // Names are taken where a program that was killed left its file, or one on another machine has our number.
    template <typename Make>
    void try_names(const Make& make) {
        static std::atomic<std::uint32_t> n_tried{0};
        for (int attempt = 0; attempt < kMaxNameAttempts; ++attempt) {
            part_ = target_;
            part_ += fmt::format(".{}-{}.part", ::getpid(), n_tried.fetch_add(1));
            if (make()) return;
            if (errno != EEXIST) break;
        }
        part_.clear();  // not ours to remove
        fail();
    }
    [[noreturn]] void fail() const {
        throw IoError(fmt::format("{}: the table cannot be written: {}", target_.string(), std::strerror(errno)));
    }

    fs::path target_;
    fs::path part_;  // the file's name before it takes the target's; empty: it has none
    int descriptor_ = -1;
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
        fs::create_directories(target.parent_path(), error);
        if (error)
            throw IoError(fmt::format("{}: the folder for tables cannot be made: {}", target.parent_path().string(),
                                      error.message()));
    }
    return target;
}

// The bytes of a file from its start, taken apart one field at a time.
class HeaderReader {
public:
    HeaderReader(std::span<const std::byte> bytes, const fs::path& path) : bytes_(bytes), path_(path) {}

    [[noreturn]] void fail(std::string_view what) const {
        throw FormatError(fmt::format("{}: {}; remove it, or build it anew", path_.string(), what));
    }
    std::span<const std::byte> take(std::uint64_t n_bytes) {
        if (n_bytes > bytes_.size() - offset_) fail("a table file that ends early");
        const auto taken = bytes_.subspan(offset_, n_bytes);
        offset_ += n_bytes;
        return taken;
    }
    template <typename T>
    T number() {
        T value;
        std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
        return value;
    }
    std::string_view text(std::size_t n_bytes) {
        const auto taken = take(n_bytes);
        return {reinterpret_cast<const char*>(taken.data()), taken.size()};
    }
    void skip_padding() {
        for (const std::byte byte : take(round_up(offset_, kTableAlignmentBytes) - offset_))
            if (byte != std::byte{}) fail("a damaged table file (its padding holds something)");
    }
    [[nodiscard]] bool at_end() const { return offset_ == bytes_.size(); }

private:
    std::span<const std::byte> bytes_;
    const fs::path& path_;
    std::size_t offset_ = 0;
};

}  // namespace

void write_table_bytes(std::span<const TableSection> sections, const ByteSink& sink) {
    CHECK(sections.size() <= kMaxSections, "{} sections", sections.size());
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
        CHECK(section.name.size() <= kMaxNameBytes, "a section name of {} bytes", section.name.size());
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
        HeaderReader header(bytes, path);
        if (bytes.size() < kMagic.size() || header.text(kMagic.size()) != kMagic) header.fail("not a table file");
        if (const auto version = header.number<std::uint32_t>(); version != kVersion)
            header.fail(fmt::format("a table file of version {}, this program reads {}", version, kVersion));
        const auto n_sections = header.number<std::uint32_t>();
        if (n_sections > kMaxSections) header.fail(fmt::format("a damaged table file ({} sections)", n_sections));
        for (std::uint32_t i = 0; i < n_sections; ++i) {
            const auto n_name_bytes = header.number<std::uint32_t>();
            if (n_name_bytes > kMaxNameBytes) header.fail("a damaged table file (an absurd name)");
            const std::string_view name = header.text(n_name_bytes);
            const auto n_payload_bytes = header.number<std::uint64_t>();
            const auto expected = header.number<std::uint64_t>();
            header.skip_padding();
            const auto payload = header.take(n_payload_bytes);
            if (checksum(name, payload) != expected)
                header.fail(fmt::format("a damaged table file (checksum of section {})", printable(name)));
            if (std::ranges::find(sections, name, &Section::name) != sections.end())
                header.fail(fmt::format("a damaged table file (section {} twice)", printable(name)));
            sections.push_back({std::string(name), payload});
        }
        if (!header.at_end()) header.fail("a damaged table file (more behind its end)");
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
