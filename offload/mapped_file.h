// A file that is mapped read-only into memory. A MappedFile owns the mapping, which spans into it must not outlive.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace slipstream {

class MappedFile {
public:
    /// Maps a whole regular file; an empty file gives an empty span. Throws IoError, which names the path and, if a
    /// system call failed, the system's reason.
    explicit MappedFile(const std::filesystem::path& path);
    MappedFile(MappedFile&& other) noexcept;
    MappedFile& operator=(MappedFile&& other) noexcept;
    ~MappedFile();

    [[nodiscard]] const std::filesystem::path& path() const { return path_; }
    [[nodiscard]] std::span<const std::byte> bytes() const { return {data_, size_}; }

    /// Reads the pages of [begin, begin + bytes), clipped to the file, into memory and maps them into this process.
    /// Blocks. Throws IoError if the file was truncated in the meantime. If the system cannot do it in one call
    /// (MADV_POPULATE_READ, Linux 5.14), touches the pages one by one; then a truncated file ends the process (SIGBUS).
    void populate(std::size_t begin, std::size_t bytes) const;

    /// Releases the pages that are wholly inside [begin, begin + bytes), and the last page of the file if the range
    /// reaches the end: their memory no longer counts as this process's. Contents stay; a page that is touched again
    /// comes from the system's cache or from the file.
    void release(std::size_t begin, std::size_t bytes) const;

private:
    std::filesystem::path path_;
    const std::byte* data_ = nullptr;
    std::size_t size_ = 0;
};

}  // namespace slipstream
