#include "offload/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "kernels/base/error.h"

namespace slipstream {

namespace {

namespace fs = std::filesystem;

constexpr const char* kDescriptors = "/proc/self/fd";

fs::path folder_of(const fs::path& path) {
    return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

// A name that no other file of this program has. Other files may have it: of a killed program, of another machine.
fs::path next_part_of(const fs::path& target) {
    static std::atomic<std::uint32_t> n_named{0};
    fs::path part = target;
    part += fmt::format(".{}-{}.part", ::getpid(), n_named.fetch_add(1));
    return part;
}

// Not every system lets a folder be opened or synchronised; the file itself is whole either way.
void sync_folder(const fs::path& folder) {
    const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0) return;
    ::fsync(descriptor);
    ::close(descriptor);
}

}  // namespace

AtomicFile::AtomicFile(const fs::path& path, const AtomicFileOptions& options) : target_(path), options_(options) {
    mode_t mode = options_.new_mode;
    if (options_.existing == ExistingFile::Replace) {
        std::error_code error;
        if (fs::is_symlink(path, error)) {
            const fs::path followed = fs::canonical(path, error);
            if (!error) target_ = followed;
        }
        const fs::file_status status = fs::status(target_, error);
        if (fs::exists(status) && !fs::is_regular_file(status))
            throw IoError(
                fmt::format("{}: {}: it is not a regular file; name another", path.string(), options_.refusal));
        if (fs::exists(status))
            mode &= kOwnerOnlyMode;  // until commit() gives it the mode of the file that it replaces
    }
    // Unnamed files get their name through /proc.
    if (!options_.named_part && ::access(kDescriptors, X_OK) == 0)
        descriptor_ = ::open(folder_of(target_).c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, mode);
    if (descriptor_ < 0) open_part(mode);
}

void AtomicFile::open_part(mode_t mode) {
    fs::path part;
    do {
        part = next_part_of(target_);
        descriptor_ = ::open(part.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    } while (descriptor_ < 0 && (errno == EEXIST || errno == EINTR));
    if (descriptor_ < 0) fail(errno);
    part_ = std::move(part);
}

AtomicFile::~AtomicFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
    if (!part_.empty()) ::unlink(part_.c_str());
}

void AtomicFile::fail(int error) const {
    throw IoError(fmt::format("{}: {}: {}", target_.string(), options_.refusal, std::strerror(error)));
}

void AtomicFile::write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
        const ssize_t n = ::write(descriptor_, bytes.data(), bytes.size());
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) fail(n < 0 ? errno : ENOSPC);
        bytes = bytes.subspan(n);
    }
}

int AtomicFile::write_at(std::uint64_t offset, std::span<const std::byte> bytes) const noexcept {
    while (!bytes.empty()) {
        const ssize_t n = ::pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return n < 0 ? errno : ENOSPC;
        offset += static_cast<std::uint64_t>(n);
        bytes = bytes.subspan(n);
    }
    return 0;
}

// The file gets the mode of the file that it replaces. Its owner comes first, since a change of owner clears bits.
void AtomicFile::keep_mode() const {
    struct stat before {};
    struct stat made {};
    if (::stat(target_.c_str(), &before) != 0 || ::fstat(descriptor_, &made) != 0) return;
    mode_t mode = before.st_mode & 0777;
    if (before.st_uid != made.st_uid)
        static_cast<void>(::fchown(descriptor_, before.st_uid, static_cast<gid_t>(-1)) == 0);
    if (before.st_gid != made.st_gid && ::fchown(descriptor_, static_cast<uid_t>(-1), before.st_gid) != 0)
        mode &= ~static_cast<mode_t>(S_IRWXG) | (mode & S_IRWXO) << 3;
    if (::fchmod(descriptor_, mode) != 0) fail(errno);
}

// The unnamed file takes the name of a part, since no call gives it the name of a file that is there.
void AtomicFile::link_part() {
    const std::string source = fmt::format("{}/{}", kDescriptors, descriptor_);
    fs::path part;
    int error = 0;
    do {
        part = next_part_of(target_);
        error = ::linkat(AT_FDCWD, source.c_str(), AT_FDCWD, part.c_str(), AT_SYMLINK_FOLLOW) == 0 ? 0 : errno;
    } while (error == EEXIST);
    if (error != 0) fail(error);
    part_ = std::move(part);
}

void AtomicFile::commit() {
    if (options_.existing == ExistingFile::Replace) keep_mode();
    // Some file systems know no fsync.
    if (::fsync(descriptor_) != 0 && errno != EINVAL && errno != EOPNOTSUPP) fail(errno);
    if (options_.existing == ExistingFile::Replace) {
        if (part_.empty()) link_part();
        if (::close(std::exchange(descriptor_, -1)) != 0) fail(errno);
        if (std::rename(part_.c_str(), target_.c_str()) != 0) fail(errno);
        part_.clear();
    } else {
        const std::string source = part_.empty() ? fmt::format("{}/{}", kDescriptors, descriptor_) : part_.string();
        int error = ::linkat(AT_FDCWD, source.c_str(), AT_FDCWD, target_.c_str(), AT_SYMLINK_FOLLOW) == 0 ? 0 : errno;
        // A file system without links.
        if ((error == EPERM || error == EOPNOTSUPP) && !part_.empty())
            error = ::renameat2(AT_FDCWD, source.c_str(), AT_FDCWD, target_.c_str(), RENAME_NOREPLACE) == 0 ? 0 : errno;
        if (error != 0) fail(error);
        if (!part_.empty()) ::unlink(part_.c_str());  // it is gone already where it was renamed
        part_.clear();
        if (::close(std::exchange(descriptor_, -1)) != 0) fail(errno);
    }
    sync_folder(folder_of(target_));
}

void make_private_folder(const fs::path& folder, std::error_code& error) {
    if (fs::create_directories(folder, error) && !error) fs::permissions(folder, fs::perms::owner_all, error);
}

int append_to_private_file(const fs::path& path, std::string_view text) {
    int descriptor = -1;
    do {
        descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, kOwnerOnlyMode);
    } while (descriptor < 0 && errno == EINTR);
    if (descriptor < 0) return errno;
    const ssize_t n = ::write(descriptor, text.data(), text.size());
    int error = n < 0 ? errno : static_cast<std::size_t>(n) < text.size() ? ENOSPC : 0;
    if (::close(descriptor) != 0 && error == 0) error = errno;
    return error;
}

}  // namespace slipstream
