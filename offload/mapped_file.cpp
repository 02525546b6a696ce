#include "offload/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "offload/file_handle.h"

namespace slipstream {

namespace {

constexpr std::size_t kPageBytes = 4096;

[[noreturn]] void fail(const std::filesystem::path& path, const char* what) {
    throw IoError(fmt::format("cannot {} {}: {}", what, path.string(), std::strerror(errno)));
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) : path_(path) {
    // O_NONBLOCK: opening a FIFO must not hang. The flag has no effect on a regular file.
    // The mapping keeps the file open after its descriptor is closed.
    const FileHandle file(retry_interrupted([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); }));
    if (file.get() < 0) fail(path, "open");
    struct stat status {};
    if (::fstat(file.get(), &status) != 0) fail(path, "examine");
    if (!S_ISREG(status.st_mode)) throw IoError(fmt::format("{} is not a regular file", path.string()));
    size_ = static_cast<std::size_t>(status.st_size);
    if (size_ == 0) return;
    void* mapped = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.get(), 0);
    if (mapped == MAP_FAILED) fail(path, "map");
    data_ = static_cast<const std::byte*>(mapped);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
}

MappedFile::~MappedFile() {
    if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::populate(std::size_t begin, std::size_t bytes) const {
    begin = std::min(begin, size_) / kPageBytes * kPageBytes;
    const std::size_t end = std::min(size_, begin + std::min(bytes, size_ - begin));
    if (begin >= end) return;
#ifdef MADV_POPULATE_READ
    if (::madvise(const_cast<std::byte*>(data_) + begin, end - begin, MADV_POPULATE_READ) == 0) return;
    if (errno == EFAULT)
        throw IoError(fmt::format(
            "cannot read {}: the file was truncated while in use, or its disk fails; check the file", path_.string()));
#endif
    ::madvise(const_cast<std::byte*>(data_) + begin, end - begin, MADV_WILLNEED);
    for (std::size_t at = begin; at < end; at += kPageBytes) {
        const volatile std::byte* page = data_ + at;
        static_cast<void>(*page);
    }
}

void MappedFile::release(std::size_t begin, std::size_t bytes) const {
    begin = std::min(begin, size_);
    const bool to_the_end = bytes >= size_ - begin;  // true: the last page is released too, though it is not full
    const std::size_t end = to_the_end ? size_ : (begin + bytes) / kPageBytes * kPageBytes;
    begin = (begin + kPageBytes - 1) / kPageBytes * kPageBytes;
    // Only advice: if it fails, the pages stay until the system needs their memory.
    if (begin < end) ::madvise(const_cast<std::byte*>(data_) + begin, end - begin, MADV_DONTNEED);
}

}  // namespace slipstream
