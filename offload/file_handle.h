// Owner of a file descriptor, and system calls that a signal may interrupt.
#pragma once

#include <cerrno>
#include <utility>

#include <unistd.h>

namespace slipstream {

/// Owns a file descriptor: its destructor closes it, which also releases the locks on it. Move-only.
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
    /// Returns the descriptor, which this object keeps; -1 if there is none.
    [[nodiscard]] int get() const { return descriptor_; }
    /// Returns the descriptor and gives it up: the caller must close it. Returns -1 if there is none.
    [[nodiscard]] int release() { return std::exchange(descriptor_, -1); }
    /// Closes the descriptor now. Returns the system's error number, or 0.
    [[nodiscard]] int close() {
        const int descriptor = release();
        return descriptor < 0 || ::close(descriptor) == 0 ? 0 : errno;
    }

private:
    int descriptor_ = -1;
};

/// Repeats `call`, which must return -1 and set errno as system calls do, as long as a signal interrupts it, and
/// returns its result. Local disks finish such calls; network file systems (NFS, FUSE) do not.
template <typename Call>
auto retry_interrupted(const Call& call) {
    auto result = call();
    while (result < 0 && errno == EINTR) result = call();
    return result;
}

}  // namespace slipstream
