// Signals: SIGINT and SIGTERM as a flag that the work looks at, a second one ends the program at once; SIGBUS, a model
// file cut short under its mapping, as one line and exit code 1. SIGPIPE and SIGXFSZ are ignored: a closed pipe and a
// file that may not grow are answers of write().
#pragma once

#include <termios.h>
#include <atomic>
#include <filesystem>

namespace slipstream::tools {

/// Installs the handlers. Once, at the start.
void watch_signals();

/// Turns true at the first signal. May also be set by the program itself, to stop what is running.
[[nodiscard]] std::atomic<bool>& cancel_flag();

/// 130 or 143 after a signal, else 0.
[[nodiscard]] int signal_exit_code();

/// Whether a SIGINT came and nothing else: it is forgotten then, cancel_flag() too, and the next one is a first one
/// again. For programs that go on.
[[nodiscard]] bool take_interrupt();

/// Throws Interrupted after a signal: for work with nothing to keep.
void throw_if_interrupted();

/// The terminal was `before`, and is `meanwhile` for a while: a signal that ends or stops the program at once (a second
/// Ctrl-C, Ctrl-\, Ctrl-Z) puts it back; a program that goes on after a stop has it as `meanwhile` again.
void restore_terminal_when_leaving(const termios& before, const termios& meanwhile);
/// It is as it was again.
void terminal_is_restored();

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
