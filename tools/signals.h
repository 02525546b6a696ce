// SIGINT and SIGTERM as a flag that the work looks at; a second one ends the program at once. SIGPIPE is ignored: a
// closed pipe is an answer of write().
#pragma once

#include <atomic>

namespace slipstream::tools {

/// Installs the handlers. Once, at the start.
void watch_signals();

/// Turns true at the first signal. May also be set by the program itself, to stop what is running.
[[nodiscard]] std::atomic<bool>& cancel_flag();

/// 130 or 143 after a signal, else 0.
[[nodiscard]] int signal_exit_code();

/// Throws Interrupted after a signal: for work with nothing to keep.
void throw_if_interrupted();

}  // namespace slipstream::tools
