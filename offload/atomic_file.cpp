#include "offload/atomic_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "kernels/base/error.h"

namespace slipstream {

namespace {

namespace fs = std::filesystem;

constexpr const char* kDescriptors = "/proc/self/fd";

fs::path folder_of(const fs::path& path) {
    return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

constexpr std::string_view kPartEnd = ".part";
// Longest stem of a part's name, in bytes: a file name may have 255, of which ".PID-N.part" takes 24 at most (a PID of
// 7 digits, an N of 10).
constexpr std::size_t kMaxStemBytes = 255 - 24;

// Returns what the name of a part begins with: the name of `target`, cut before a character if it is too long.
std::string part_stem(const fs::path& target) {
    std::string stem = target.filename().string();
    if (stem.size() <= kMaxStemBytes) return stem;
    std::size_t n = kMaxStemBytes;
    while (n > 0 && (static_cast<unsigned char>(stem[n]) & 0xC0U) == 0x80U) --n;  // inside of a UTF-8 character
    stem.resize(n);
    return stem;
}

// Returns a name for a part of `target` that this program has not used yet. A file of a killed program, or of another
// machine, may have it.
fs::path next_part_of(const fs::path& target) {
    static std::atomic<std::uint32_t> n_named{0};
    return target.parent_path() /
           fmt::format("{}.{}-{}{}", part_stem(target), ::getpid(), n_named.fetch_add(1), kPartEnd);
}

// Whether `name` is one that next_part_of() makes of a target with this stem, in any program.
bool is_part_name(std::string_view name, std::string_view stem) {
    if (name.size() <= stem.size() + kPartEnd.size() + 1 || !name.starts_with(stem) || !name.ends_with(kPartEnd))
        return false;
    name.remove_prefix(stem.size());
    name.remove_suffix(kPartEnd.size());
    const std::size_t dash = name.find('-');
    const auto is_number = [](std::string_view text) {
        return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
    };
    return name.front() == '.' && dash != std::string_view::npos && is_number(name.substr(1, dash - 1)) &&
           is_number(name.substr(dash + 1));
}

// Locks a file for this program without waiting; returns whether it did. File systems without locks lock nothing, and
// no part is removed there.
bool lock(int descriptor) {
    return retry_interrupted([&] { return ::flock(descriptor, LOCK_EX | LOCK_NB); }) == 0;
}

// Removes a part whose maker is gone: a file of this user that no program has locked and that still has the name.
void remove_if_left(const fs::path& part) {
    const FileHandle file(retry_interrupted(
        [&] { return ::open(part.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC); }));
    struct stat opened {};
    struct stat named {};
    if (file.get() < 0 || ::fstat(file.get(), &opened) != 0 || !S_ISREG(opened.st_mode) ||
        opened.st_uid != ::geteuid() || !lock(file.get()) || ::lstat(part.c_str(), &named) != 0 ||
        named.st_ino != opened.st_ino || named.st_dev != opened.st_dev)
        return;
    ::unlink(part.c_str());
}

// Gives `made` the access control list of the file at `path`, or none if that has none: st_mode alone would give the
// group what the list gives to others. Returns whether that worked; a file system without lists has nothing to keep.
bool keep_access_list(int made, const fs::path& path) {
    constexpr const char* kList = "system.posix_acl_access";
    std::array<char, 65536> list;  // bytes of the longest list that Linux allows
    const ssize_t n = ::getxattr(path.c_str(), kList, list.data(), list.size());
    if (n > 0) return ::fsetxattr(made, kList, list.data(), static_cast<std::size_t>(n), 0) == 0;
    if (n < 0 && errno != ENODATA && errno != EOPNOTSUPP) return false;  // there is a list, but it cannot be read
    return ::fremovexattr(made, kList) == 0 || errno == ENODATA || errno == EOPNOTSUPP;
}

// Puts the names in a folder on the disk. Errors are ignored, since not every system lets a folder be opened or
// synchronised; the file itself is whole either way.
void sync_folder(const fs::path& folder) {
    const FileHandle folder_file(
        retry_interrupted([&] { return ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
    if (folder_file.get() < 0) return;
    retry_interrupted([&] { return ::fsync(folder_file.get()); });
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
        if (fs::exists(status)) {
            if (is_write_protected(target_))
                throw IoError(fmt::format("{}: {}: it is write-protected; allow writing (chmod u+w), or name another",
                                          path.string(), options_.refusal));
            mode &= kOwnerOnlyMode;  // until commit() gives it the mode of the file that it replaces
        }
    }
    // commit() gives an unnamed file its name through /proc, so without /proc there are none.
    if (!options_.named_part && ::access(kDescriptors, X_OK) == 0)
        file_ = FileHandle(retry_interrupted(
            [&] { return ::open(folder_of(target_).c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, mode); }));
    if (file_.get() < 0)
        open_part(mode);
    else
        // commit() may give the file the name of a part for a moment; the lock shows that the part is no leftover.
        static_cast<void>(lock(file_.get()));
}

void AtomicFile::open_part(mode_t mode) {
    remove_leftover_parts(target_);
    for (;;) {
        const fs::path part = next_part_of(target_);
        FileHandle file(retry_interrupted(
            [&] { return ::open(part.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode); }));
        if (file.get() < 0) {
            if (errno == EEXIST) continue;
            fail(errno);
        }
        // Another program that saw the part before it was locked takes it for a leftover and removes it; then the next
        // name is tried.
        if (!lock(file.get()) && errno == EWOULDBLOCK) continue;
        if (struct stat named{}; ::lstat(part.c_str(), &named) != 0) continue;
        part_ = part;
        file_ = std::move(file);
        return;
    }
}

void remove_leftover_parts(const fs::path& path) {
    const std::string stem = part_stem(path);
    std::vector<fs::path> parts;
    std::error_code error;
    for (fs::directory_iterator at(folder_of(path), error), end; !error && at != end; at.increment(error))
        if (is_part_name(at->path().filename().string(), stem)) parts.push_back(at->path());
    for (const fs::path& part : parts) remove_if_left(part);
}

AtomicFile::~AtomicFile() {
    if (!part_.empty()) ::unlink(part_.c_str());
}

void AtomicFile::fail(int error) const {
    throw IoError(fmt::format("{}: {}: {}", target_.string(), options_.refusal, std::strerror(error)));
}

void AtomicFile::write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
        const ssize_t n = retry_interrupted([&] { return ::write(file_.get(), bytes.data(), bytes.size()); });
        if (n <= 0) fail(n < 0 ? errno : ENOSPC);
        bytes = bytes.subspan(n);
    }
}

int AtomicFile::write_at(std::uint64_t offset, std::span<const std::byte> bytes) const noexcept {
    while (!bytes.empty()) {
        const ssize_t n = retry_interrupted(
            [&] { return ::pwrite(file_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset)); });
        if (n <= 0) return n < 0 ? errno : ENOSPC;
        offset += static_cast<std::uint64_t>(n);
        bytes = bytes.subspan(n);
    }
    return 0;
}

// The file gets the mode and the access control list of the file that it replaces. Its owner comes first, since a
// change of owner clears bits.
void AtomicFile::keep_mode() const {
    struct stat before {};
    struct stat made {};
    if (::stat(target_.c_str(), &before) != 0 || ::fstat(file_.get(), &made) != 0) return;
    mode_t mode = before.st_mode & 0777;
    if (before.st_uid != made.st_uid)
        static_cast<void>(::fchown(file_.get(), before.st_uid, static_cast<gid_t>(-1)) == 0);
    if (before.st_gid != made.st_gid && ::fchown(file_.get(), static_cast<uid_t>(-1), before.st_gid) != 0)
        mode &= ~static_cast<mode_t>(S_IRWXG) | (mode & S_IRWXO) << 3;
    if (!keep_access_list(file_.get(), target_)) mode &= ~static_cast<mode_t>(S_IRWXG);
    if (::fchmod(file_.get(), mode) != 0) fail(errno);
}

// The unnamed file takes the name of a part, since no call gives it the name of a file that is there.
void AtomicFile::link_part() {
    remove_leftover_parts(target_);
    const std::string source = fmt::format("{}/{}", kDescriptors, file_.get());
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
    // Some file systems have no fsync.
    if (retry_interrupted([&] { return ::fsync(file_.get()); }) != 0 && errno != EINVAL && errno != EOPNOTSUPP)
        fail(errno);
    if (options_.existing == ExistingFile::Replace) {
        if (part_.empty()) link_part();
        // A duplicate of the descriptor, which keeps the lock until the part is renamed; the end of this block closes
        // it.
        const FileHandle locked(::fcntl(file_.get(), F_DUPFD_CLOEXEC, 0));
        if (const int error = file_.close(); error != 0) fail(error);
        if (std::rename(part_.c_str(), target_.c_str()) != 0) fail(errno);
        part_.clear();
    } else {
        const std::string source = part_.empty() ? fmt::format("{}/{}", kDescriptors, file_.get()) : part_.string();
        int error = ::linkat(AT_FDCWD, source.c_str(), AT_FDCWD, target_.c_str(), AT_SYMLINK_FOLLOW) == 0 ? 0 : errno;
        // The file system has no hard links: rename the part unless a file has the name.
        if ((error == EPERM || error == EOPNOTSUPP) && !part_.empty())
            error = ::renameat2(AT_FDCWD, source.c_str(), AT_FDCWD, target_.c_str(), RENAME_NOREPLACE) == 0 ? 0 : errno;
        if (error != 0) fail(error);
        if (!part_.empty()) ::unlink(part_.c_str());  // already gone if it was renamed
        part_.clear();
        if (const int close_error = file_.close(); close_error != 0) fail(close_error);
    }
    sync_folder(folder_of(target_));
}

bool is_write_protected(const fs::path& path) {
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0) return false;
    constexpr mode_t kAnyWrite = S_IWUSR | S_IWGRP | S_IWOTH;
    return (status.st_mode & kAnyWrite) == 0 ||
           (::faccessat(AT_FDCWD, path.c_str(), W_OK, AT_EACCESS) != 0 && errno == EACCES);
}

void make_private_folder(const fs::path& folder, std::error_code& error) {
    if (fs::create_directories(folder, error) && !error) fs::permissions(folder, fs::perms::owner_all, error);
}

int append_to_private_file(const fs::path& path, std::string_view text) {
    FileHandle file(retry_interrupted(
        [&] { return ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, kOwnerOnlyMode); }));
    if (file.get() < 0) return errno;
    const ssize_t n = retry_interrupted([&] { return ::write(file.get(), text.data(), text.size()); });
    const int write_error = n < 0 ? errno : static_cast<std::size_t>(n) < text.size() ? ENOSPC : 0;
    const int close_error = file.close();
    return write_error != 0 ? write_error : close_error;
}

}  // namespace slipstream
