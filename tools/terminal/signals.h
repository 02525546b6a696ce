// Signals: SIGINT, SIGTERM and SIGHUP (the terminal's window was closed) as a flag that the work looks at; a second
// SIGINT or SIGTERM ends the program at once. SIGQUIT aborts, and leaves the terminal as it was. SIGBUS, a model file
// cut short under its mapping, is one line and exit code 1. SIGPIPE and SIGXFSZ are ignored: a closed pipe and a file
// that may not grow are answers of write().
#pragma once

#include <termios.h>
#include <atomic>
#include <filesystem>
#include <string_view>

namespace slipstream::tools {

/// Installs the handlers. Once, at the start.
void watch_signals();

/// Turns true at the first signal. May also be set by the program itself, to stop what is running.
[[nodiscard]] std::atomic<bool>& cancel_flag();

/// 129, 130 or 143 after SIGHUP, SIGINT or SIGTERM, else 0.
[[nodiscard]] int signal_exit_code();

/// Whether a SIGINT came and nothing else: it is forgotten then, cancel_flag() too, and the next one is a first one
/// again. For programs that go on.
[[nodiscard]] bool take_interrupt();

/// Throws Interrupted after a signal: for work with nothing to keep.
void throw_if_interrupted();

/// The terminal was `before`, and is `meanwhile` for a while: a signal that ends or stops the program at once (a second
/// Ctrl-C, Ctrl-\, Ctrl-Z) puts it back and writes `goodbye` (at most 32 bytes, CHECKed) to stderr; a program that goes
/// on after a stop has it as `meanwhile` again.
void restore_terminal_when_leaving(const termios& before, const termios& meanwhile, std::string_view goodbye = {});
/// It is as it was again.
void terminal_is_restored();
/// Whether the program was stopped and continued since the last call: others may have written to the terminal.
[[nodiscard]] bool was_continued();

/// A file that goes where the program ends at once, in a handler, without destructors. The destructor leaves it alone.
/// A few at a time are kept in mind, with paths of up to 4095 bytes; others stay.
class RemovedAtOnce {
public:
    explicit RemovedAtOnce(const std::filesystem::path& path);
    ~RemovedAtOnce();
    RemovedAtOnce(const RemovedAtOnce&) = delete;
    RemovedAtOnce& operator=(const RemovedAtOnce&) = delete;

private:
    int slot_ = -1;  // none free
};

}  // namespace slipstream::tools
