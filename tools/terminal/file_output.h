// Writes bytes, with every way in which that can fail: text that appears while it is generated, and files that appear
// only when they are complete.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <sys/types.h>

#include "offload/atomic_file.h"
#include "offload/file_handle.h"
#include "tools/terminal/shown_text.h"
#include "tools/terminal/signals.h"

namespace slipstream::tools {

/// Opens `path` as open(2) does, closed on exec. Throws Interrupted if a signal comes while open() waits (for the other
/// end of a named pipe). Otherwise, if the system refuses, returns an empty handle and sets errno.
[[nodiscard]] FileHandle open_file(const std::filesystem::path& path, int flags, mode_t mode = 0);

/// Writes all bytes, in order, to a descriptor of any kind. If the descriptor does not block (a pipe or a terminal that
/// another program has set to O_NONBLOCK), waits as if it did; after a signal, returns EAGAIN if a second passes
/// without progress. Returns the system's error number or 0. Adds the number of written bytes to `written_bytes`, also
/// on an error.
[[nodiscard]] int write_all(int descriptor, std::string_view bytes, std::uint64_t& written_bytes);

/// Reads as read(2) does, but also waits for bytes if the descriptor does not block. After a signal, fails with EINTR,
/// which the caller must handle.
[[nodiscard]] ssize_t read_some(int descriptor, char* bytes, std::size_t max_bytes);

/// Opens /dev/null for each of the descriptors 0 to 2 that is closed, so that no file that the program opens becomes
/// its stdout. It is opened for the wrong direction, so that reading stdin and writing stdout still fail. Call first in
/// main.
void open_standard_descriptors();

/// Output of text: stdout, or the file of --output. Each write goes to the system at once, so written text is kept even
/// if the program fails later. On a terminal, control characters are escaped (shown_text.h).
class TextOutput {
public:
    /// Opens `file`, or stdout if none is given. The content of the file is kept until begin(). Throws IoError, or
    /// Interrupted if a signal comes while open() waits.
    explicit TextOutput(const std::optional<std::filesystem::path>& file);

    ~TextOutput();
    TextOutput(const TextOutput&) = delete;
    TextOutput& operator=(const TextOutput&) = delete;

    /// Empties the file; nothing happens to stdout, devices and pipes. Throws IoError.
    void begin();
    /// Continues a file whose text is to begin with `text`: keeps the part of `text` with which the file begins, and
    /// removes everything after it. Returns the missing part of `text`, for the caller to write(); all of it for stdout
    /// and if the file is not a regular one. Throws IoError.
    [[nodiscard]] std::string_view resume(std::string_view text);
    /// Writes `text`. On a terminal writes it escaped and wrapped, and may hold back its end. Returns the bytes
    /// written. Throws IoError ("No space left on device"), Interrupted if a signal came and the reader made no
    /// progress for a second. A closed pipe is no error: nothing more is written, and closed() is true.
    std::string_view write(std::string_view text);
    /// Writes what write() has held back. Call when the text has ended or pauses.
    void write_rest();
    /// Wraps words from now on if this is a terminal, at its width at the time of each write.
    void wrap_words() { wraps_words_ = true; }
    [[nodiscard]] bool closed() const { return closed_; }
    [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
    [[nodiscard]] bool is_stdout() const { return file_.get() < 0; }
    /// Returns whether the output is a terminal: stdout, or a file such as /dev/tty.
    [[nodiscard]] bool on_terminal() const { return on_terminal_; }
    /// Returns the last byte of the output, of what resume() kept of the file if nothing was written since; '\n' if
    /// there is none.
    [[nodiscard]] char last_byte() const { return last_byte_; }

private:
    void hand_over(std::string_view bytes);

    std::string name_;
    FileHandle file_;  // none: stdout
    bool on_terminal_ = false;
    bool wraps_words_ = false;
    ShownText shown_;         // text as a terminal gets it; used if on_terminal_
    std::string last_shown_;  // bytes that write() returned last on a terminal
    bool closed_ = false;
    std::uint64_t bytes_ = 0;
    char last_byte_ = '\n';
};

/// A file that gets its name only when it is complete (offload/atomic_file.h). If the path exists and is no regular
/// file (a device, a pipe), it is written in place instead: a terminal gets the text escaped, and a named pipe is
/// opened by the first write, since opening it waits for a reader.
class WholeFile {
public:
    /// `new_mode`: permissions of the file if it replaces none. Throws IoError if the file cannot be created.
    explicit WholeFile(std::filesystem::path path, mode_t new_mode = kPublicMode);

    void write(std::span<const std::byte> bytes);
    void write(std::string_view text) { write(std::as_bytes(std::span(text.data(), text.size()))); }
    /// Writes at an offset of the file, past what write() has written first; several threads may do so at the same
    /// time. Returns the system's error number, for fail(), or 0; ESPIPE if the file is written in place.
    [[nodiscard]] int write_at(std::uint64_t offset, std::span<const std::byte> bytes) const noexcept;
    /// Returns the descriptor of the file that is being written, for a lock on it before it gets its name; -1 if none
    /// is open.
    [[nodiscard]] int descriptor() const { return file_ ? file_->descriptor() : in_place_.get(); }
    /// Throws IoError for the system's error number `error`.
    [[noreturn]] void fail(int error) const;
    /// Call when everything is written: gives the file its name. Throws IoError.
    void complete();

private:
    void open_in_place();

    std::filesystem::path path_;
    std::optional<AtomicFile> file_;  // none: the file is written in place
    std::optional<RemovedAtOnce> removal_;
    FileHandle in_place_;
};

/// Returns all bytes of a file, or of stdin if the path is empty or "-". Throws IoError, and Interrupted after a
/// signal.
[[nodiscard]] std::string read_bytes(const std::filesystem::path& path);

}  // namespace slipstream::tools
