// The way to write a file that belongs to the user: all bytes go into a file that has no name yet, and one rename gives
// it the name. Readers see the old file or the whole new one; after a failure the old one is still there.
//
// Where the file system has no unnamed files, the bytes go into NAME.PID-N.part beside the file (NAME is cut if the
// whole would be longer than 255 bytes). That name is made with O_EXCL and O_NOFOLLOW, so that a file or a link which
// stands there already is never written to. The bytes are on the disk (fsync) before the file takes its name, and the
// name is on the disk when commit() returns. A replaced file keeps its permission bits and its access control list, and
// its owner and group where the system allows that; where the group cannot be kept, the new group gets no more than
// everybody has. A file that may not be written is not replaced either.
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

inline constexpr mode_t kOwnerOnlyMode = 0600;  // what was said in private: tables, sessions, chats, typed lines
inline constexpr mode_t kPublicMode = 0666;     // of other files; the umask takes its part

/// What commit() does if a file has the name already.
enum class ExistingFile : std::uint8_t { Replace, Refuse };

struct AtomicFileOptions {
    mode_t new_mode = kPublicMode;  // of a file that replaces none; the umask takes its part
    ExistingFile existing = ExistingFile::Replace;
    std::string_view refusal = "cannot be written";  // stands between the path and the reason in errors; a literal
    bool named_part = false;                         // use NAME.PID-N.part from the start, as if it had to be
};

class AtomicFile {
public:
    /// Replace: a link is followed, so that the file which it leads to is replaced and not the link. Throws IoError if
    /// there is something else than a regular file or a file that may not be written, or if the folder cannot be
    /// written.
    explicit AtomicFile(const std::filesystem::path& path, const AtomicFileOptions& options = {});
    ~AtomicFile();  // removes what was not committed
    AtomicFile(const AtomicFile&) = delete;
    AtomicFile& operator=(const AtomicFile&) = delete;

    /// Open for reading and writing until commit().
    [[nodiscard]] int descriptor() const { return file_.get(); }
    /// Name of the file before commit(), empty if it has none. A handler that ends the process must remove the file.
    [[nodiscard]] const std::filesystem::path& part() const { return part_; }

    /// Appends. Throws IoError.
    void write(std::span<const std::byte> bytes);
    /// Writes at an offset of the file; several threads may do so at the same time. Returns the system's error number,
    /// for fail(), or 0.
    [[nodiscard]] int write_at(std::uint64_t offset, std::span<const std::byte> bytes) const noexcept;
    /// Gives the file its name. Throws IoError, in particular if a file is there that is not to be replaced.
    void commit();
    /// Throws IoError.
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

/// Makes missing folders, and the last one, if it was missing, for its owner alone (0700).
void make_private_folder(const std::filesystem::path& folder, std::error_code& error);

/// Appends `text` by one write, so that lines of two programs do not mix, to a file that is made for its owner alone if
/// it is missing. Returns the system's error number, or 0.
[[nodiscard]] int append_to_private_file(const std::filesystem::path& path, std::string_view text);

}  // namespace slipstream
