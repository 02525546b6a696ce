// Bytes on their way out, with every way it can fail: text that appears as it is made, and files that are there whole
// or not at all.
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

/// open(2), closed on exec. A signal while it waits (for the other end of a named pipe) throws Interrupted; otherwise
/// no handle means that the system refused, and errno says why.
[[nodiscard]] FileHandle open_file(const std::filesystem::path& path, int flags, mode_t mode = 0);

/// Writes all bytes, in order, to a descriptor of any kind. If it does not block (a pipe or a terminal that is shared
/// with a program which set O_NONBLOCK on it) this waits as if it did; after a signal only for a second without
/// progress, then EAGAIN. Returns the system's error number, or 0; adds to `written_bytes` what was written.
[[nodiscard]] int write_all(int descriptor, std::string_view bytes, std::uint64_t& written_bytes);

/// read(2), which waits for bytes also if the descriptor does not block. EINTR is for the caller to answer.
[[nodiscard]] ssize_t read_some(int descriptor, char* bytes, std::size_t max_bytes);

/// Makes sure that descriptors 0 to 2 are taken, so that no file of ours ends up as stdout: /dev/null stands in for one
/// that was closed, the wrong way round, so that reading stdin and writing stdout fail as they did. First thing in
/// main.
void open_standard_descriptors();

/// Where text goes: stdout, or the file of --output. Each write is handed to the system at once, so what was written
/// stays, whatever comes after. On a terminal control characters are shown escaped (shown_text.h).
class TextOutput {
public:
    /// Opens `file`, or stands for stdout. What the file holds is kept until begin(). Throws IoError.
    explicit TextOutput(const std::optional<std::filesystem::path>& file);

    ~TextOutput();
    TextOutput(const TextOutput&) = delete;
    TextOutput& operator=(const TextOutput&) = delete;

    /// Empties the file.
    void begin();
    /// The file holds `text` and goes on behind it: what it has of it already stays, and what else it holds goes.
    /// Returns what is missing, for write(): all of it on stdout and where there is no regular file. Throws IoError.
    [[nodiscard]] std::string_view resume(std::string_view text);
    /// Throws IoError ("No space left on device"). A closed pipe is no error: closed() is true from then on. Returns
    /// what was written: on a terminal something else than `text`, and less where its end waits.
    std::string_view write(std::string_view text);
    /// The text has ended, or pauses: what waits is written.
    void write_rest();
    /// From now on words are wrapped if this is a terminal, at the width that it has when they are written.
    void wrap_words() { wraps_words_ = true; }
    [[nodiscard]] bool closed() const { return closed_; }
    [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
    [[nodiscard]] bool is_stdout() const { return file_.get() < 0; }
    /// stdout, or a file such as /dev/tty.
    [[nodiscard]] bool on_terminal() const { return on_terminal_; }
    /// Last byte written; '\n' where there is none.
    [[nodiscard]] char last_byte() const { return last_byte_; }

private:
    void hand_over(std::string_view bytes);

    std::string name_;
    FileHandle file_;  // none: stdout
    bool on_terminal_ = false;
    bool wraps_words_ = false;
    ShownText shown_;         // on a terminal
    std::string last_shown_;  // by write()
    bool closed_ = false;
    std::uint64_t bytes_ = 0;
    char last_byte_ = '\n';
};

/// A file that takes its name only when it is complete (offload/atomic_file.h). If the path is no regular file (a
/// device, a pipe) it is written in place, to a terminal as text that is escaped; a named pipe is opened by the first
/// write, since that waits for its reader.
class WholeFile {
public:
    /// `new_mode`: of a file that replaces none. Throws IoError where the place cannot be written.
    explicit WholeFile(std::filesystem::path path, mode_t new_mode = kPublicMode);

    void write(std::span<const std::byte> bytes);
    void write(std::string_view text) { write(std::as_bytes(std::span(text.data(), text.size()))); }
    /// Writes at a place of its own, behind what write() wrote first; threads may do so side by side. Returns the
    /// system's error number where it refuses, for fail(), else 0.
    [[nodiscard]] int write_at(std::uint64_t offset, std::span<const std::byte> bytes) const noexcept;
    /// Of the file that is being written, for a lock on it before it takes its name; -1: none is open.
    [[nodiscard]] int descriptor() const { return file_ ? file_->descriptor() : in_place_.get(); }
    /// Throws IoError.
    [[noreturn]] void fail(int error) const;
    /// All is written: the file appears. Throws IoError.
    void complete();

private:
    void open_in_place();

    std::filesystem::path path_;
    std::optional<AtomicFile> file_;  // none: written in place
    std::optional<RemovedAtOnce> removal_;
    FileHandle in_place_;
};

/// All bytes of a file, or of stdin where the path is empty or "-". Throws IoError; Interrupted where a signal came
/// while it waited.
[[nodiscard]] std::string read_bytes(const std::filesystem::path& path);

}  // namespace slipstream::tools
