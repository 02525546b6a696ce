// A file mapped read-only into memory. Owner of the mapping; views into it live as long as it does.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace slipstream {

class MappedFile {
public:
    /// Maps the whole of a regular file. Throws IoError naming the path and the system's reason. An empty file maps to
    /// an empty span.
    explicit MappedFile(const std::filesystem::path& path);
    MappedFile(MappedFile&& other) noexcept;
    MappedFile& operator=(MappedFile&& other) noexcept;
    ~MappedFile();

    [[nodiscard]] const std::filesystem::path& path() const { return path_; }
    [[nodiscard]] std::span<const std::byte> bytes() const { return {data_, size_}; }

    /// Brings the pages of [begin, begin + bytes) into memory and into this process; clipped to the file. Blocks. Where
    /// the system cannot do it in one call the pages are touched one by one. A file that was cut short meanwhile:
    /// IoError.
    void populate(std::size_t begin, std::size_t bytes) const;

    /// Gives up this process's hold on the pages that lie wholly in [begin, begin + bytes): their memory no longer
    /// counts as this process's. Contents stay; touching a page brings it back, from the system's cache or the file.
    void release(std::size_t begin, std::size_t bytes) const;

private:
    std::filesystem::path path_;
    const std::byte* data_ = nullptr;
    std::size_t size_ = 0;
};

}  // namespace slipstream
