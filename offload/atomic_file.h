// Writes a file of the user atomically: all bytes go into a file that has no name yet, and one rename gives it the
// name. Readers see the old file or the whole new one; after a failure the old one is still there.
//
// If the file system has no unnamed files, the bytes go into NAME.PID-N.part next to the file (NAME is cut if the whole
// would be longer than 255 bytes). That name is made with O_EXCL and O_NOFOLLOW, so that an existing file or link of
// this name is never written to. The bytes are on the disk (fsync) before the file takes its name, and the name is on
// the disk when commit() returns. A replaced file keeps its permission bits and its access control list, and its owner
// and group if the system allows that; if the group cannot be kept, the new group gets no more rights than others have.
// A write-protected file is not replaced.
//
// A killed program may leave a part. Each part is locked (flock) as long as its maker lives. A program that makes
// another part for the same file, or calls remove_leftover_parts(), removes the parts of its own user that are not
// locked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <system_error>

#include <sys/types.h>

#include "offload/file_handle.h"

namespace slipstream {

inline constexpr mode_t kOwnerOnlyMode = 0600;  // mode of private files: learnt tables, sessions, chats, typed lines
inline constexpr mode_t kPublicMode = 0666;     // mode of all other files, from which the umask is removed

/// What commit() does if a file has the name already.
enum class ExistingFile : std::uint8_t { Replace, Refuse };

struct AtomicFileOptions {
    mode_t new_mode = kPublicMode;  // mode of a file that replaces none; the umask is removed from it
    ExistingFile existing = ExistingFile::Replace;
    std::string_view refusal = "cannot be written";  // text between path and reason in errors; must be a literal
    bool named_part = false;                         // use NAME.PID-N.part even if unnamed files are possible
};

class AtomicFile {
public:
    /// Opens a new file, which commit() puts at `path`. With ExistingFile::Replace a link is followed, so that the file
    /// to which it leads is replaced, not the link; throws IoError if something other than a regular file is there, or
    /// a file that is write-protected. Throws IoError if the folder cannot be written.
    explicit AtomicFile(const std::filesystem::path& path, const AtomicFileOptions& options = {});
    ~AtomicFile();  // removes what was not committed
    AtomicFile(const AtomicFile&) = delete;
    AtomicFile& operator=(const AtomicFile&) = delete;

    /// Returns the descriptor of the new file, open for reading and writing until commit(). This object closes it.
    [[nodiscard]] int descriptor() const { return file_.get(); }
    /// Returns the name that the new file has before commit(); empty if it has none. A handler that ends the process
    /// must remove the file.
    [[nodiscard]] const std::filesystem::path& part() const { return part_; }

    /// Appends `bytes` to the file. Throws IoError.
    void write(std::span<const std::byte> bytes);
    /// Writes at an offset of the file; several threads may do so at the same time. Returns the system's error number,
    /// for fail(), or 0.
    [[nodiscard]] int write_at(std::uint64_t offset, std::span<const std::byte> bytes) const noexcept;
    /// Puts the file on the disk and gives it its name; nothing can be written to it afterwards. Throws IoError, in
    /// particular if a file has the name and ExistingFile::Refuse was given.
    void commit();
    /// Throws an IoError with the path, the refusal and the text of `error`, a system error number.
    [[noreturn]] void fail(int error) const;

private:
    void open_part(mode_t mode);
    void link_part();
    void keep_mode() const;

    std::filesystem::path target_;
    AtomicFileOptions options_;
    std::filesystem::path part_;
    FileHandle file_;
};

/// Removes the parts of the file at `path` that killed programs of this user left.
void remove_leftover_parts(const std::filesystem::path& path);

/// Whether the file at `path` exists and is protected from writing: its mode has no write bit at all (this holds for
/// root, too), or this user has no right to write to it.
[[nodiscard]] bool is_write_protected(const std::filesystem::path& path);

/// Makes `folder` and the missing folders above it. If `folder` itself was missing, only its owner may use it (0700).
/// Sets `error` if that fails.
void make_private_folder(const std::filesystem::path& folder, std::error_code& error);

/// Appends `text` to the file at `path` by one write, so that lines of two programs do not mix. A missing file is made
/// for its owner alone (0600). Returns the system's error number, or 0.
[[nodiscard]] int append_to_private_file(const std::filesystem::path& path, std::string_view text);

}  // namespace slipstream
