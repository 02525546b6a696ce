// SideFile: a file beside a session, such as that of the states of recurrent layers. It is named after the session, is
// for its owner alone, and belongs to the program that has the session locked. What is in it is its user's business,
// but for the first eight bytes, which say what kind of file it is: a file without them is never opened, overwritten or
// removed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>

#include "offload/file_handle.h"

namespace slipstream {

/// A kind of side file. The strings must live as long as files of the kind.
struct SideFileKind {
    std::string_view magic;     // [8]: how a file begins
    std::string_view suffix;    // added to the session's name
    std::string_view contents;  // plural, for errors: "the states of recurrent layers"
};

class SideFile {
public:
    [[nodiscard]] static std::filesystem::path path_of(const std::filesystem::path& session, const SideFileKind& kind);
    /// Removes the side file of a session, if there is one.
    static void remove(const std::filesystem::path& session, const SideFileKind& kind);
    /// Opens the side file of a session, with O_RDONLY or O_RDWR as `access`. Returns no value if there is none, or
    /// something else of that name. Throws IoError if the system refuses.
    [[nodiscard]] static std::optional<SideFile> open(const std::filesystem::path& session, const SideFileKind& kind,
                                                      int access);
    /// Creates the side file, in place of an old one, with room for `n_bytes`, which are zeros but for `head`, the
    /// first of them. Throws IoError, also if there is something else of that name; there is then no side file.
    [[nodiscard]] static SideFile create(const std::filesystem::path& session, const SideFileKind& kind,
                                         std::uint64_t n_bytes, std::span<const std::byte> head);

    [[nodiscard]] const std::filesystem::path& path() const { return path_; }
    /// Returns the size of the file. Throws IoError.
    [[nodiscard]] std::uint64_t size() const;
    /// Fills `out` with the bytes from `at` on. Throws IoError, also if the file is shorter.
    void read(std::uint64_t at, std::span<std::byte> out) const;
    /// Throws IoError.
    void write(std::uint64_t at, std::span<const std::byte> bytes) const;
    /// Returns when everything that was written is on the disk. Throws IoError.
    void sync() const;

private:
    SideFile(std::filesystem::path path, FileHandle file, const SideFileKind& kind);

    std::filesystem::path path_;
    FileHandle file_;
    SideFileKind kind_;
};

}  // namespace slipstream
