#include "tools/signals.h"

#include <unistd.h>
#include <csignal>

#include "tools/usage_error.h"

namespace slipstream::tools {

namespace {

// What a signal handler may touch: lock-free atomics of static lifetime.
std::atomic<bool> cancel{false};
std::atomic<int> exit_code{0};
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free);

void on_signal(int signal) {
    if (exit_code.exchange(128 + signal) != 0) _exit(128 + signal);
    cancel.store(true);
}

}  // namespace

void watch_signals() {
    struct sigaction action {};
    sigemptyset(&action.sa_mask);
    action.sa_handler = on_signal;  // no SA_RESTART: a prompt that is waited for must give way
    sigaction(SIGINT, &action, nullptr);
    sigaction(SIGTERM, &action, nullptr);
    action.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &action, nullptr);
}

std::atomic<bool>& cancel_flag() {
    return cancel;
}

int signal_exit_code() {
    return exit_code.load();
}

void throw_if_interrupted() {
    if (signal_exit_code() != 0) throw Interrupted();
}

}  // namespace slipstream::tools
