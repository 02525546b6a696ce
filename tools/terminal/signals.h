// Signals. SIGINT, SIGTERM and SIGHUP (the terminal's window was closed) set a flag that the work polls; a second
// SIGINT or SIGTERM ends the program at once. SIGQUIT aborts the program after the terminal's settings are restored.
// SIGBUS (a mapped model file was cut short) prints one line and exits with code 1. SIGPIPE and SIGXFSZ are ignored:
// write() returns an error for a closed pipe and for a file that may not grow.
#pragma once

#include <termios.h>
#include <atomic>
#include <filesystem>
#include <string_view>

namespace slipstream::tools {

/// Installs the signal handlers. Call once, at the start of the program. SIGHUP, SIGQUIT and SIGTSTP are left alone if
/// the program was started with another action than the default (nohup).
void watch_signals();

/// Ignores SIGHUP from now on: for a server, which outlives the terminal that it was started from.
void ignore_hangup();

/// Returns the flag that the first SIGINT, SIGTERM or SIGHUP sets to true. The program may also set the flag itself, to
/// stop the work that is running; signal_exit_code() stays 0 then.
[[nodiscard]] std::atomic<bool>& cancel_flag();

/// Returns the exit code for the signal that came: 129 after SIGHUP, 130 after SIGINT, 143 after SIGTERM, 0 after none.
/// The first signal decides, but SIGHUP replaces SIGINT.
[[nodiscard]] int signal_exit_code();

/// For programs that continue after Ctrl-C. If SIGINT came and neither SIGTERM nor SIGHUP, forgets the SIGINT and
/// returns true: cancel_flag() is false again, and the next SIGINT counts as the first. Otherwise returns false.
[[nodiscard]] bool take_interrupt();

/// Throws Interrupted after SIGINT, SIGTERM or SIGHUP; for work that has no result to keep. Does not test
/// cancel_flag().
void throw_if_interrupted();

/// Call while the terminal on stdin has other settings (`meanwhile`) than it had before (`before`): a signal that ends
/// or stops the program at once (a second Ctrl-C, Ctrl-\, Ctrl-Z) then writes `goodbye` to stderr and restores
/// `before`. When a stopped program continues, `meanwhile` is set again. This call copies its arguments (`goodbye`: at
/// most 32 bytes, CHECKed) and does not change the terminal. The handlers leave the terminal alone while the program is
/// in the background.
void restore_terminal_when_leaving(const termios& before, const termios& meanwhile, std::string_view goodbye = {});
/// Call after the terminal's settings were restored: ends restore_terminal_when_leaving(), so that signals leave the
/// terminal alone.
void terminal_is_restored();
/// Returns whether the program was stopped and continued (SIGCONT) since the last call. If so, other programs may have
/// written to the terminal in between.
[[nodiscard]] bool was_continued();

/// While this object lives, the file at `path` is removed if a signal handler ends the program at once, when
/// destructors do not run. The destructor does not remove the file. At most 4 files at a time are registered, with
/// paths of up to 4095 bytes; a file beyond these limits is not removed. The path is copied.
class RemovedAtOnce {
public:
    explicit RemovedAtOnce(const std::filesystem::path& path);
    ~RemovedAtOnce();
    RemovedAtOnce(const RemovedAtOnce&) = delete;
    RemovedAtOnce& operator=(const RemovedAtOnce&) = delete;

private:
    int slot_ = -1;  // index in the handlers' table of files; -1: no place was free, or the path is too long
};

}  // namespace slipstream::tools
