#include "tools/terminal/signals.h"

#include <termios.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string_view>

#include "kernels/base/check.h"
#include "tools/base/usage_error.h"

namespace slipstream::tools {

namespace {

// State shared with the signal handlers. A handler may only access lock-free atomics of static lifetime, and data that
// these atomics publish.
std::atomic<bool> cancel{false};
std::atomic<int> exit_code{0};
std::atomic<bool> is_asked_to_end{false};  // SIGINT or SIGTERM came
std::atomic<bool> continued{false};
std::atomic<bool> messages_on_terminal{false};
std::atomic<bool> is_leaving_for_bus_error{false};
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free);

enum class SlotState : int { Free, Filling, Full };
struct Slot {
    std::atomic<SlotState> state{SlotState::Free};
    std::array<char, 4096> path{};
};
static_assert(std::atomic<SlotState>::is_always_lock_free);
std::array<Slot, 4> removed_at_once;

// Arguments of restore_terminal_when_leaving(); valid while terminal_changed is true.
termios terminal_before{};
termios terminal_meanwhile{};
std::array<char, 32> terminal_goodbye{};
std::atomic<std::size_t> n_goodbye{0};
std::atomic<bool> terminal_changed{false};

// The functions from here to on_bus_error() run in signal handlers: they may only call what signal-safety(7) allows.

// Returns whether the handlers may change the terminal: its settings were changed by this program, which is in the
// foreground. A terminal that this program uses from the background belongs to another program.
bool terminal_is_ours() {
    return terminal_changed.load() && tcgetpgrp(STDIN_FILENO) == getpgrp();
}

void put_terminal_back() {
    if (!terminal_is_ours()) return;
    // A write error is ignored: such a terminal is lost, and the program ends or stops in either case.
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, terminal_goodbye.data(), n_goodbye.load());
    tcsetattr(STDIN_FILENO, TCSANOW, &terminal_before);
}

void remove_files() {
    for (const Slot& slot : removed_at_once)
        if (slot.state.load() == SlotState::Full) unlink(slot.path.data());
}

[[noreturn]] void leave(int code) {
    remove_files();
    put_terminal_back();
    _exit(code);
}

// Handles SIGINT, SIGTERM and SIGHUP. A window that is closed sends SIGHUP several times (from the kernel, the shell,
// the session's manager), and SIGTERM may come with them. Therefore SIGHUP never counts as a first or second request to
// end.
void on_signal(int signal) {
    const int code = 128 + signal;
    if (signal != SIGHUP && is_asked_to_end.exchange(true)) leave(code);
    int first = 0;
    // The code of the first signal is kept, but SIGHUP (the terminal is gone) replaces SIGINT, which take_interrupt()
    // would forget.
    if (!exit_code.compare_exchange_strong(first, code) && signal == SIGHUP && first == 128 + SIGINT)
        exit_code.compare_exchange_strong(first, code);
    cancel.store(true);
}

void handle_by(int signal, void (*handler)(int)) {
    struct sigaction action {};
    sigemptyset(&action.sa_mask);
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART;
    sigaction(signal, &action, nullptr);
}

// Handles SIGQUIT (Ctrl-\) and SIGTSTP (Ctrl-Z): restores the terminal, then raises the signal with its default action.
// A stopped program continues after raise().
void on_quit_or_stop(int signal) {
    const int error = errno;
    if (signal == SIGQUIT) remove_files();
    put_terminal_back();
    handle_by(signal, SIG_DFL);
    sigset_t this_one;
    sigemptyset(&this_one);
    sigaddset(&this_one, signal);
    pthread_sigmask(SIG_UNBLOCK, &this_one, nullptr);
    raise(signal);
    handle_by(signal, on_quit_or_stop);
    errno = error;
}

// Handles SIGCONT. The shell may send it more than once, `bg` first and `fg` long after; only in the foreground are the
// terminal's settings changed again.
void on_continue(int /*signal*/) {
    const int error = errno;
    if (terminal_is_ours()) tcsetattr(STDIN_FILENO, TCSANOW, &terminal_meanwhile);
    continued.store(true);
    errno = error;
}

void on_bus_error(int signal, siginfo_t* info, void* /*context*/) {
    if (info->si_code != BUS_ADRERR) {  // only a missing page of a mapped file is reported below
        std::signal(signal, SIG_DFL);
        std::raise(signal);
        return;
    }
    // Other threads read the same file; the process ends before they could go on.
    while (is_leaving_for_bus_error.exchange(true)) pause();
    constexpr std::string_view kLine =
        "\nslipstream: a model file was changed or cut short while it was in use, or its disk failed; the text so far "
        "is kept, put the file right and run again\n";
    // The leading newline is only written to a terminal, where the message must not be appended to a line of text.
    const std::string_view line = kLine.substr(messages_on_terminal.load() ? 0 : 1);
    // If the line cannot be written, the exit code still reports the failure.
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
    leave(1);
}

bool has_default_action(int signal) {
    struct sigaction inherited {};
    return sigaction(signal, nullptr, &inherited) == 0 && inherited.sa_handler == SIG_DFL;
}

}  // namespace

void restore_terminal_when_leaving(const termios& before, const termios& meanwhile, std::string_view goodbye) {
    CHECK(goodbye.size() <= terminal_goodbye.size(), "{} bytes", goodbye.size());
    terminal_changed.store(false);  // a handler must not see settings that are half written
    terminal_before = before;
    terminal_meanwhile = meanwhile;
    std::ranges::copy(goodbye, terminal_goodbye.begin());
    n_goodbye.store(goodbye.size());
    terminal_changed.store(true);
}

void terminal_is_restored() {
    terminal_changed.store(false);
}

bool was_continued() {
    return continued.exchange(false);
}

void watch_signals() {
    messages_on_terminal.store(isatty(STDERR_FILENO) == 1);
    struct sigaction action {};
    sigemptyset(&action.sa_mask);
    action.sa_handler = on_signal;  // no SA_RESTART: the signal must end a read() that waits for input
    sigaction(SIGINT, &action, nullptr);
    sigaction(SIGTERM, &action, nullptr);
    if (has_default_action(SIGHUP)) sigaction(SIGHUP, &action, nullptr);  // under nohup it is ignored
    handle_by(SIGCONT, on_continue);
    for (const int signal : {SIGQUIT, SIGTSTP})
        if (has_default_action(signal)) handle_by(signal, on_quit_or_stop);
    action.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &action, nullptr);
    sigaction(SIGXFSZ, &action, nullptr);
    action.sa_flags = SA_SIGINFO;
    action.sa_sigaction = on_bus_error;
    sigaction(SIGBUS, &action, nullptr);
}

void ignore_hangup() {
    std::signal(SIGHUP, SIG_IGN);
}

std::atomic<bool>& cancel_flag() {
    return cancel;
}

int signal_exit_code() {
    return exit_code.load();
}

bool take_interrupt() {
    int code = 128 + SIGINT;
    if (exit_code.load() != code) return false;
    cancel.store(false);  // before exit_code is reset: until then another SIGINT counts as the second
    if (!exit_code.compare_exchange_strong(code, 0)) return false;
    is_asked_to_end.store(false);
    return true;
}

void throw_if_interrupted() {
    if (signal_exit_code() != 0) throw Interrupted();
}

RemovedAtOnce::RemovedAtOnce(const std::filesystem::path& path) {
    const std::string& name = path.native();
    for (std::size_t i = 0; i < removed_at_once.size(); ++i) {
        Slot& slot = removed_at_once[i];
        SlotState expected = SlotState::Free;
        if (name.size() >= slot.path.size() || !slot.state.compare_exchange_strong(expected, SlotState::Filling))
            continue;
        std::memcpy(slot.path.data(), name.c_str(), name.size() + 1);
        slot.state.store(SlotState::Full);
        slot_ = static_cast<int>(i);
        return;
    }
}

RemovedAtOnce::~RemovedAtOnce() {
    if (slot_ >= 0) removed_at_once[slot_].state.store(SlotState::Free);
}

}  // namespace slipstream::tools
