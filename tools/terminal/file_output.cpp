#include "tools/terminal/file_output.h"

#include <fcntl.h>
#include <poll.h>
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
#include "tools/base/usage_error.h"
#include "tools/terminal/folded_text.h"

namespace slipstream::tools {

namespace {

// Longest wait, in milliseconds, for a write that makes no progress after a signal; also the time between two checks
// for a signal. A reader that is only slow makes progress within a second.
constexpr int kStalledAfterSignalMs = 1000;

// Waits until a descriptor that does not block accepts bytes. Returns 0, EAGAIN if a signal came and then
// kStalledAfterSignalMs passed, or the error of poll().
int wait_until_writable(int descriptor) {
    for (;;) {
        pollfd waited{.fd = descriptor, .events = POLLOUT, .revents = 0};
        const bool is_interrupted = signal_exit_code() != 0;
        const int n = poll(&waited, 1, kStalledAfterSignalMs);
        if (n > 0) return 0;
        if (n == 0 && is_interrupted) return EAGAIN;
        if (n < 0 && errno != EINTR) return errno;
    }
}

bool would_block(int error) {
    return error == EAGAIN || error == EWOULDBLOCK;
}

}  // namespace

FileHandle open_file(const std::filesystem::path& path, int flags, mode_t mode) {
    for (;;) {
        FileHandle file(open(path.c_str(), flags | O_CLOEXEC, mode));
        if (file.get() >= 0 || errno != EINTR) return file;
        throw_if_interrupted();
    }
}

int write_all(int descriptor, std::string_view bytes, std::uint64_t& written_bytes) {
    while (!bytes.empty()) {
        const ssize_t written = write(descriptor, bytes.data(), bytes.size());
        if (written >= 0) {
            bytes.remove_prefix(written);
            written_bytes += static_cast<std::uint64_t>(written);
        } else if (would_block(errno)) {
            if (const int error = wait_until_writable(descriptor); error != 0) return error;
        } else if (errno != EINTR) {
            return errno;
        }
    }
    return 0;
}

ssize_t read_some(int descriptor, char* bytes, std::size_t max_bytes) {
    for (;;) {
        const ssize_t n = read(descriptor, bytes, max_bytes);
        if (n >= 0 || !would_block(errno)) return n;
        pollfd waited{.fd = descriptor, .events = POLLIN, .revents = 0};
        if (poll(&waited, 1, kStalledAfterSignalMs) < 0) return -1;
        if (signal_exit_code() == 0) continue;
        errno = EINTR;
        return -1;
    }
}

void open_standard_descriptors() {
    for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
        if (fcntl(descriptor, F_GETFD) >= 0 || errno != EBADF) continue;
        // open() returns the lowest free number, which is `descriptor`.
        static_cast<void>(open("/dev/null", descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY));
    }
}

TextOutput::TextOutput(const std::optional<std::filesystem::path>& file) : name_(file ? file->string() : "stdout") {
    if (file) {
        // O_NOCTTY: a terminal must not become the controlling terminal of a program that has none.
        file_ = open_file(*file, O_WRONLY | O_CREAT | O_NOCTTY, kPublicMode);
        if (file_.get() < 0)
            throw IoError(fmt::format("--output {}: cannot be opened: {}", name_, std::strerror(errno)));
    }
    on_terminal_ = isatty(is_stdout() ? STDOUT_FILENO : file_.get()) == 1;
}

TextOutput::~TextOutput() {
    try {
        write_rest();
    } catch (const IoError&) {  // a destructor cannot report it
    } catch (const Interrupted&) {
    }
}

void TextOutput::begin() {
    if (is_stdout()) return;
    // Devices and pipes cannot be truncated (EINVAL), and need not be.
    if (ftruncate(file_.get(), 0) != 0 && errno != EINVAL)
        throw IoError(fmt::format("--output {}: cannot be emptied: {}", name_, std::strerror(errno)));
}

std::string_view TextOutput::resume(std::string_view text) {
    struct stat status {};
    if (is_stdout() || fstat(file_.get(), &status) != 0 || !S_ISREG(status.st_mode)) return text;
    // Opened again by name, since file_ is for writing only. What cannot be read is written again.
    const FileHandle held = open_file(name_, O_RDONLY);
    std::size_t n_kept = 0;
    std::array<char, 65536> piece;
    while (held.get() >= 0 && n_kept < text.size()) {
        const ssize_t n =
            pread(held.get(), piece.data(), std::min(piece.size(), text.size() - n_kept), static_cast<off_t>(n_kept));
        if (n <= 0) break;
        const std::string_view found(piece.data(), n);
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
    const int error = write_all(is_stdout() ? STDOUT_FILENO : file_.get(), text, bytes_);
    // Writing to a terminal whose window was closed fails with EIO.
    if (error == EPIPE || (error == EIO && on_terminal_)) {
        closed_ = true;
    } else if (would_block(error)) {
        throw Interrupted();
    } else if (error != 0) {
        throw IoError(fmt::format("cannot write the text to {}: {}; {} bytes were written before", name_,
                                  std::strerror(error), bytes_));
    }
    last_byte_ = text.back();
}

WholeFile::WholeFile(std::filesystem::path path, mode_t new_mode) : path_(std::move(path)) {
    std::error_code ignored;
    const std::filesystem::file_status status = std::filesystem::status(path_, ignored);
    if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
        if (!std::filesystem::is_fifo(status)) open_in_place();
        return;
    }
    file_.emplace(path_, AtomicFileOptions{.new_mode = new_mode});
    if (!file_->part().empty()) removal_.emplace(file_->part());
}

void WholeFile::open_in_place() {
    in_place_ = open_file(path_, O_WRONLY);
    if (in_place_.get() < 0) fail(errno);
}

void WholeFile::fail(int error) const {
    throw IoError(fmt::format("{}: cannot be written: {}", path_.string(), std::strerror(error)));
}

void WholeFile::write(std::span<const std::byte> bytes) {
    if (file_) return file_->write(bytes);
    if (in_place_.get() < 0) open_in_place();
    std::string shown;
    if (isatty(in_place_.get()) == 1) {
        shown = shown_text({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
        bytes = std::as_bytes(std::span(shown));
    }
    std::uint64_t written = 0;
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (const int error = write_all(in_place_.get(), text, written); error != 0) fail(error);
}

int WholeFile::write_at(std::uint64_t offset, std::span<const std::byte> bytes) const noexcept {
    return file_ ? file_->write_at(offset, bytes) : ESPIPE;
}

void WholeFile::complete() {
    if (file_) file_->commit();
    removal_.reset();
    if (const int error = in_place_.close(); error != 0) fail(error);
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
        const ssize_t n = read_some(descriptor, piece.data(), piece.size());
        throw_if_interrupted();
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) throw IoError(fmt::format("{}: cannot be read: {}", name, std::strerror(errno)));
        if (n == 0) return text;
        text.append(piece.data(), n);
    }
}

}  // namespace slipstream::tools
