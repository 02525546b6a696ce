// Owner of a file descriptor, and system calls that a signal may interrupt.
#pragma once

#include <cerrno>
#include <utility>

#include <unistd.h>

namespace slipstream {

/// A file descriptor that is closed by its owner, and the locks on it with it. Move-only.
class FileHandle {
public:
    FileHandle() = default;
    explicit FileHandle(int descriptor) : descriptor_(descriptor) {}
    FileHandle(FileHandle&& other) noexcept : descriptor_(other.release()) {}
    FileHandle& operator=(FileHandle&& other) noexcept {
        std::swap(descriptor_, other.descriptor_);
        return *this;
    }
    ~FileHandle() {
        if (descriptor_ >= 0) ::close(descriptor_);
    }
    /// -1: there is none.
    [[nodiscard]] int get() const { return descriptor_; }
    /// The caller closes the descriptor.
    [[nodiscard]] int release() { return std::exchange(descriptor_, -1); }
    /// Closes the descriptor now. Returns the system's error number, or 0.
    [[nodiscard]] int close() {
        const int descriptor = release();
        return descriptor < 0 || ::close(descriptor) == 0 ? 0 : errno;
    }

private:
    int descriptor_ = -1;
};

/// Repeats `call`, which returns -1 and sets errno as system calls do, as long as a signal interrupts it. Local disks
/// finish such calls; network file systems (NFS, FUSE) do not.
template <typename Call>
auto retry_interrupted(const Call& call) {
    auto result = call();
    while (result < 0 && errno == EINTR) result = call();
    return result;
}

}  // namespace slipstream
