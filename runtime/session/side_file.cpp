#include "runtime/session/side_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "offload/atomic_file.h"

namespace slipstream {

namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const fs::path& path, const SideFileKind& kind, int error) {
    throw IoError(fmt::format("{}: {} cannot be kept: {}; {}", path.string(), kind.contents, std::strerror(error),
                              error == EEXIST ? "remove or rename that file, which is not a session's, and run the "
                                                "same command again"
                                              : "when that is put right, run the same command again"));
}

[[noreturn]] void refuse_reading(const fs::path& path, const SideFileKind& kind, int error) {
    throw IoError(fmt::format("{}: {} cannot be read: {}", path.string(), kind.contents, std::strerror(error)));
}

// Opens a file that is a side file, of whichever session and version; an invalid handle with errno 0 if there is a file
// that is not.
FileHandle open_side_file(const fs::path& path, const SideFileKind& kind, int access) {
    FileHandle file(
        retry_interrupted([&] { return ::open(path.c_str(), access | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK); }));
    if (file.get() < 0) return file;
    struct stat status {};
    std::array<char, 8> magic{};
    const bool is_ours =
        ::fstat(file.get(), &status) == 0 && S_ISREG(status.st_mode) &&
        retry_interrupted([&] { return ::pread(file.get(), magic.data(), magic.size(), 0); }) == std::ssize(magic) &&
        std::string_view(magic.data(), magic.size()) == kind.magic;
    errno = 0;
    return is_ours ? std::move(file) : FileHandle(-1);
}

}  // namespace

SideFile::SideFile(fs::path path, FileHandle file, const SideFileKind& kind)
    : path_(std::move(path)), file_(std::move(file)), kind_(kind) {}

fs::path SideFile::path_of(const fs::path& session, const SideFileKind& kind) {
    fs::path path = session;
    path += kind.suffix;
    return path;
}

void SideFile::remove(const fs::path& session, const SideFileKind& kind) {
    const fs::path path = path_of(session, kind);
    if (open_side_file(path, kind, O_RDONLY).get() >= 0) static_cast<void>(::unlink(path.c_str()));
}

std::optional<SideFile> SideFile::open(const fs::path& session, const SideFileKind& kind, int access) {
    fs::path path = path_of(session, kind);
    FileHandle file = open_side_file(path, kind, access);
    if (file.get() < 0 && errno != 0 && errno != ENOENT) refuse_reading(path, kind, errno);
    if (file.get() < 0) return std::nullopt;
    return SideFile(std::move(path), std::move(file), kind);
}

SideFile SideFile::create(const fs::path& session, const SideFileKind& kind, std::uint64_t n_bytes,
                          std::span<const std::byte> head) {
    remove(session, kind);
    const fs::path path = path_of(session, kind);
    FileHandle file(retry_interrupted(
        [&] { return ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, kOwnerOnlyMode); }));
    if (file.get() < 0) refuse(path, kind, errno);
    SideFile made(path, std::move(file), kind);
    const auto size = static_cast<off_t>(n_bytes);
    try {
        if (retry_interrupted([&] { return ::fallocate(made.file_.get(), 0, 0, size); }) != 0 &&
            (errno != EOPNOTSUPP || retry_interrupted([&] { return ::ftruncate(made.file_.get(), size); }) != 0))
            refuse(path, kind, errno);
        made.write(0, head);
    } catch (...) {
        static_cast<void>(::unlink(path.c_str()));
        throw;
    }
    return made;
}

std::uint64_t SideFile::size() const {
    struct stat status {};
    if (::fstat(file_.get(), &status) != 0) refuse_reading(path_, kind_, errno);
    return static_cast<std::uint64_t>(status.st_size);
}

void SideFile::read(std::uint64_t at, std::span<std::byte> out) const {
    while (!out.empty()) {
        const ssize_t n =
            retry_interrupted([&] { return ::pread(file_.get(), out.data(), out.size(), static_cast<off_t>(at)); });
        if (n <= 0) refuse_reading(path_, kind_, n < 0 ? errno : EIO);
        out = out.subspan(n);
        at += static_cast<std::uint64_t>(n);
    }
}

void SideFile::write(std::uint64_t at, std::span<const std::byte> bytes) const {
    while (!bytes.empty()) {
        const ssize_t n = retry_interrupted(
            [&] { return ::pwrite(file_.get(), bytes.data(), bytes.size(), static_cast<off_t>(at)); });
        if (n <= 0) refuse(path_, kind_, n < 0 ? errno : ENOSPC);
        bytes = bytes.subspan(n);
        at += static_cast<std::uint64_t>(n);
    }
}

void SideFile::sync() const {
    if (retry_interrupted([&] { return ::fdatasync(file_.get()); }) != 0) refuse(path_, kind_, errno);
}

}  // namespace slipstream
