#include "tools/terminal/file_output.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "tools/terminal/folded_text.h"

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

FileHandle open_file(const std::filesystem::path& path, int flags, mode_t mode) {
    for (;;) {
        FileHandle file(open(path.c_str(), flags | O_CLOEXEC, mode));
        if (file.get() >= 0 || errno != EINTR) return file;
        throw_if_interrupted();
    }
}

void open_standard_descriptors() {
    for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
        if (fcntl(descriptor, F_GETFD) >= 0 || errno != EBADF) continue;
        // The lowest free number is taken, which is this one.
        static_cast<void>(open("/dev/null", descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY));
    }
}

TextOutput::TextOutput(const std::optional<std::filesystem::path>& file) : name_(file ? file->string() : "stdout") {
    if (file) {
        // A terminal does not become the program's own, where it has none.
        file_ = open_file(*file, O_WRONLY | O_CREAT | O_NOCTTY, kFileMode);
        if (file_.get() < 0)
            throw IoError(fmt::format("--output {}: cannot be opened: {}", name_, std::strerror(errno)));
    }
    on_terminal_ = isatty(is_stdout() ? STDOUT_FILENO : file_.get()) == 1;
}

TextOutput::~TextOutput() {
    try {
        write_rest();
    } catch (const IoError&) {  // nobody is left to be told
    }
}

void TextOutput::begin() {
    if (is_stdout()) return;
    // Devices and pipes cannot be cut, and need not be.
    if (ftruncate(file_.get(), 0) != 0 && errno != EINVAL)
        throw IoError(fmt::format("--output {}: cannot be emptied: {}", name_, std::strerror(errno)));
}

std::string_view TextOutput::resume(std::string_view text) {
    struct stat status {};
    if (is_stdout() || fstat(file_.get(), &status) != 0 || !S_ISREG(status.st_mode)) return text;
    // By its name, since it is open for writing alone; what cannot be read is written again.
    const FileHandle held = open_file(name_, O_RDONLY);
    std::size_t n_kept = 0;
    std::array<char, 65536> piece;
    while (held.get() >= 0 && n_kept < text.size()) {
        const ssize_t n =
            pread(held.get(), piece.data(), std::min(piece.size(), text.size() - n_kept), static_cast<off_t>(n_kept));
        if (n <= 0) break;
        const std::string_view found(piece.data(), static_cast<std::size_t>(n));
        const std::string_view wanted = text.substr(n_kept, found.size());
        n_kept += static_cast<std::size_t>(std::ranges::mismatch(found, wanted).in1 - found.begin());
        if (found != wanted) break;
    }
    if (ftruncate(file_.get(), static_cast<off_t>(n_kept)) != 0 ||
        lseek(file_.get(), static_cast<off_t>(n_kept), SEEK_SET) < 0)
        throw IoError(fmt::format("--output {}: cannot be cut: {}", name_, std::strerror(errno)));
    bytes_ = n_kept;
    if (n_kept > 0) last_byte_ = text[n_kept - 1];
    return text.substr(n_kept);
}

std::string_view TextOutput::write(std::string_view text) {
    if (!on_terminal_) {
        hand_over(text);
        return text;
    }
    if (wraps_words_) shown_.wrap_at(terminal_columns(is_stdout() ? STDOUT_FILENO : file_.get()));
    last_shown_ = shown_.take(text);
    hand_over(last_shown_);
    return last_shown_;
}

void TextOutput::write_rest() {
    if (on_terminal_) hand_over(shown_.rest());
}

void TextOutput::hand_over(std::string_view text) {
    if (text.empty() || closed_) return;
    const int error = write_all(is_stdout() ? STDOUT_FILENO : file_.get(), text.data(), text.size(), bytes_);
    // A terminal whose window was closed answers EIO.
    if (error == EPIPE || (error == EIO && on_terminal_)) {
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
        if (!std::filesystem::is_fifo(status)) open_in_place();
        return;
    }
    std::filesystem::path temporary = path_;
    temporary += fmt::format(".{}.part", getpid());
    file_ = open_file(temporary, O_WRONLY | O_CREAT | O_TRUNC, kFileMode);
    if (file_.get() < 0) fail(errno);
    temporary_ = std::move(temporary);
    removal_.emplace(temporary_);
}

void WholeFile::open_in_place() {
    file_ = open_file(path_, O_WRONLY);
    if (file_.get() < 0) fail(errno);
}

WholeFile::~WholeFile() {
    if (!temporary_.empty()) unlink(temporary_.c_str());
}

void WholeFile::fail(int error) const {
    throw IoError(fmt::format("{}: cannot be written: {}", path_.string(), std::strerror(error)));
}

void WholeFile::write(std::span<const std::byte> bytes) {
    if (file_.get() < 0) open_in_place();
    std::string shown;
    if (isatty(file_.get()) == 1) {
        shown = shown_text({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
        bytes = std::as_bytes(std::span(shown));
    }
    std::uint64_t written = 0;
    const int error = write_all(file_.get(), reinterpret_cast<const char*>(bytes.data()), bytes.size(), written);
    if (error != 0) fail(error);
}

int WholeFile::write_at(std::uint64_t offset, std::span<const std::byte> bytes) const noexcept {
    while (!bytes.empty()) {
        const ssize_t written = pwrite(file_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
        if (written < 0) {
            if (errno == EINTR) continue;
            return errno;
        }
        offset += static_cast<std::uint64_t>(written);
        bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
    return 0;
}

void WholeFile::complete() {
    if (file_.get() >= 0 && close(file_.release()) != 0) fail(errno);
    if (temporary_.empty()) return;
    if (std::rename(temporary_.c_str(), path_.c_str()) != 0) fail(errno);
    removal_.reset();
    temporary_.clear();
}

std::string read_bytes(const std::filesystem::path& path) {
    const bool is_stdin = path.empty() || path == "-";
    const std::string name = is_stdin ? "stdin" : path.string();
    FileHandle file;
    throw_if_interrupted();
    if (!is_stdin) {
        file = open_file(path, O_RDONLY);
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
