#include "tools/terminal/signals.h"

#include <termios.h>
#include <unistd.h>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string_view>

#include "kernels/base/indexed.h"
#include "tools/terminal/usage_error.h"

namespace slipstream::tools {

namespace {

// What a signal handler may touch: lock-free atomics of static lifetime, and what they publish.
std::atomic<bool> cancel{false};
std::atomic<int> exit_code{0};
std::atomic<bool> messages_on_terminal{false};
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free);

enum class SlotState : int { Free, Filling, Full };
struct Slot {
    std::atomic<SlotState> state{SlotState::Free};
    std::array<char, 4096> path{};
};
static_assert(std::atomic<SlotState>::is_always_lock_free);
std::array<Slot, 4> removed_at_once;

// How the terminal was before somebody changed it for a while, and how it is meanwhile.
termios terminal_before{};
termios terminal_meanwhile{};
std::atomic<bool> terminal_changed{false};

// From here on only what signal-safety(7) allows.

// In the background the terminal is somebody else's.
void put_terminal(const termios& state) {
    if (terminal_changed.load() && tcgetpgrp(STDIN_FILENO) == getpgrp()) tcsetattr(STDIN_FILENO, TCSANOW, &state);
}

[[noreturn]] void leave(int code) {
    for (const Slot& slot : removed_at_once)
        if (slot.state.load() == SlotState::Full) unlink(slot.path.data());
    put_terminal(terminal_before);
    _exit(code);
}

void on_signal(int signal) {
    if (exit_code.exchange(128 + signal) != 0) leave(128 + signal);
    cancel.store(true);
}

void handle_by(int signal, void (*handler)(int)) {
    struct sigaction action {};
    sigemptyset(&action.sa_mask);
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART;
    sigaction(signal, &action, nullptr);
}

// Ctrl-\ and Ctrl-Z: the terminal as it was, then what the signal does anyway. Behind a stop the program goes on here.
void on_quit_or_stop(int signal) {
    const int error = errno;
    put_terminal(terminal_before);
    handle_by(signal, SIG_DFL);
    sigset_t this_one;
    sigemptyset(&this_one);
    sigaddset(&this_one, signal);
    pthread_sigmask(SIG_UNBLOCK, &this_one, nullptr);
    raise(signal);
    handle_by(signal, on_quit_or_stop);
    errno = error;
}

// Whenever the shell lets it go on: `fg` may come long after `bg`.
void on_continue(int /*signal*/) {
    const int error = errno;
    put_terminal(terminal_meanwhile);
    errno = error;
}

void on_bus_error(int signal, siginfo_t* info, void* /*context*/) {
    if (info->si_code != BUS_ADRERR) {  // no page behind the address is a file's doing; the rest is not
        std::signal(signal, SIG_DFL);
        std::raise(signal);
        return;
    }
    constexpr std::string_view kLine =
        "\nslipstream: a model file was changed or cut short while it was in use, or its disk failed; the text so far "
        "is kept, put the file right and run again\n";
    // On a terminal the message begins a line of its own.
    const std::string_view line = kLine.substr(messages_on_terminal.load() ? 0 : 1);
    // Where nobody hears it the exit code says it.
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
    leave(1);
}

}  // namespace

void restore_terminal_when_leaving(const termios& before, const termios& meanwhile) {
    terminal_before = before;
    terminal_meanwhile = meanwhile;
    terminal_changed.store(true);
}

void terminal_is_restored() {
    terminal_changed.store(false);
}

void watch_signals() {
    messages_on_terminal.store(isatty(STDERR_FILENO) == 1);
    struct sigaction action {};
    sigemptyset(&action.sa_mask);
    action.sa_handler = on_signal;  // no SA_RESTART: a prompt that is waited for must give way
    sigaction(SIGINT, &action, nullptr);
    sigaction(SIGTERM, &action, nullptr);
    handle_by(SIGCONT, on_continue);
    for (const int signal : {SIGQUIT, SIGTSTP}) {
        struct sigaction inherited {};
        sigaction(signal, nullptr, &inherited);
        if (inherited.sa_handler == SIG_DFL) handle_by(signal, on_quit_or_stop);
    }
    action.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &action, nullptr);
    sigaction(SIGXFSZ, &action, nullptr);
    action.sa_flags = SA_SIGINFO;
    action.sa_sigaction = on_bus_error;
    sigaction(SIGBUS, &action, nullptr);
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
    cancel.store(false);  // first: a signal between the two is a second one
    return exit_code.compare_exchange_strong(code, 0);
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
    if (slot_ >= 0) nth(removed_at_once, slot_).state.store(SlotState::Free);
}

}  // namespace slipstream::tools
