#include "tools/file_output.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "tools/signals.h"

namespace slipstream::tools {

namespace {

// Writes all bytes; the system's error number where it refuses, else 0.
int write_all(int descriptor, const char* data, std::size_t bytes, std::uint64_t& written_bytes) {
    while (bytes > 0) {
        const ssize_t written = ::write(descriptor, data, bytes);
        if (written < 0) {
            if (errno == EINTR) continue;
            return errno;
        }
        data += written;
        bytes -= static_cast<std::size_t>(written);
        written_bytes += static_cast<std::uint64_t>(written);
    }
    return 0;
}

constexpr mode_t kFileMode = 0666;  // the umask takes its part

}  // namespace

FileHandle& FileHandle::operator=(FileHandle&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
}

FileHandle::~FileHandle() {
    if (descriptor_ >= 0) close(descriptor_);
}

TextOutput::TextOutput(const std::optional<std::filesystem::path>& file) : name_(file ? file->string() : "stdout") {
    if (!file) return;
    file_ = FileHandle(open(file->c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, kFileMode));
    if (file_.get() < 0) throw IoError(fmt::format("--output {}: cannot be opened: {}", name_, std::strerror(errno)));
}

void TextOutput::begin() {
    if (is_stdout()) return;
    // Devices and pipes cannot be cut, and need not be.
    if (ftruncate(file_.get(), 0) != 0 && errno != EINVAL)
        throw IoError(fmt::format("--output {}: cannot be emptied: {}", name_, std::strerror(errno)));
}

void TextOutput::write(std::string_view text) {
    if (text.empty() || closed_) return;
    const int error = write_all(is_stdout() ? STDOUT_FILENO : file_.get(), text.data(), text.size(), bytes_);
    if (error == EPIPE) {
        closed_ = true;
    } else if (error != 0) {
        throw IoError(fmt::format("cannot write the text to {}: {}; {} bytes were written before", name_,
                                  std::strerror(error), bytes_));
    }
    last_byte_ = text.back();
}

WholeFile::WholeFile(std::filesystem::path path) : path_(std::move(path)) {
    std::error_code ignored;
    // Links are followed, so that the file they lead to is replaced and not the link.
    if (std::filesystem::is_symlink(path_, ignored)) {
        const std::filesystem::path target = std::filesystem::canonical(path_, ignored);
        if (!ignored) path_ = target;
    }
    const std::filesystem::file_status status = std::filesystem::status(path_, ignored);
    if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
        file_ = FileHandle(open(path_.c_str(), O_WRONLY | O_CLOEXEC));
    } else {
        temporary_ = path_;
        temporary_ += fmt::format(".{}.part", getpid());
        file_ = FileHandle(open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, kFileMode));
    }
    if (file_.get() < 0) {
        const int error = errno;
        temporary_.clear();
        fail(error);
    }
}

WholeFile::~WholeFile() {
    if (!temporary_.empty()) unlink(temporary_.c_str());
}

void WholeFile::fail(int error) const {
    throw IoError(fmt::format("{}: cannot be written: {}", path_.string(), std::strerror(error)));
}

void WholeFile::write(std::span<const std::byte> bytes) {
    std::uint64_t written = 0;
    const int error = write_all(file_.get(), reinterpret_cast<const char*>(bytes.data()), bytes.size(), written);
    if (error != 0) fail(error);
}

void WholeFile::complete() {
    if (close(file_.release()) != 0) fail(errno);
    if (temporary_.empty()) return;
    if (std::rename(temporary_.c_str(), path_.c_str()) != 0) fail(errno);
    temporary_.clear();
}

std::string read_bytes(const std::filesystem::path& path) {
    const bool is_stdin = path.empty() || path == "-";
    const std::string name = is_stdin ? "stdin" : path.string();
    FileHandle file;
    if (!is_stdin) {
        file = FileHandle(open(path.c_str(), O_RDONLY | O_CLOEXEC));
        if (file.get() < 0) throw IoError(fmt::format("{}: cannot be opened: {}", name, std::strerror(errno)));
    }
    const int descriptor = is_stdin ? STDIN_FILENO : file.get();
    std::string text;
    std::array<char, 65536> piece;
    for (;;) {
        const ssize_t n = read(descriptor, piece.data(), piece.size());
        throw_if_interrupted();
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) throw IoError(fmt::format("{}: cannot be read: {}", name, std::strerror(errno)));
        if (n == 0) return text;
        text.append(piece.data(), static_cast<std::size_t>(n));
    }
}

}  // namespace slipstream::tools
