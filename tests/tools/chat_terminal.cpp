#include "tests/tools/chat_terminal.h"

#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <system_error>
#include <utility>

#include <nlohmann/json.hpp>

namespace slipstream::tools {

namespace {

constexpr auto kTimeLimit = std::chrono::seconds(120);
constexpr std::string_view kAsks = "\x1b[?2004h";  // the editor has shown its prompt and reads keys
constexpr std::string_view kAsksNoMore = "\x1b[?2004l";

winsize window(int columns) {
    winsize size{};
    size.ws_row = 40;
    size.ws_col = static_cast<unsigned short>(columns);
    return size;
}

}  // namespace

ChatTerminal::ChatTerminal(const std::vector<std::string>& arguments, int columns) {
    std::vector<std::string> all{SLIPSTREAM_PROGRAM, "chat", "--session", session().string(), "--no-config"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    std::vector<char*> pointers;
    for (std::string& argument : all) pointers.push_back(argument.data());
    pointers.push_back(nullptr);
    std::string home = "HOME=" + home_.path().string();
    std::string path = "PATH=/usr/bin:/bin";
    std::string term = "TERM=xterm";
    std::array<char*, 4> environment{home.data(), path.data(), term.data(), nullptr};
    const winsize size = window(columns);
    process_ = forkpty(&terminal_, nullptr, nullptr, &size);
    if (process_ < 0) throw std::system_error(errno, std::generic_category(), "forkpty");
    if (process_ == 0) {
        // As a shell starts it, whatever started the tests (nohup).
        for (const int number : {SIGHUP, SIGINT, SIGQUIT, SIGTERM}) signal(number, SIG_DFL);
        execve(SLIPSTREAM_PROGRAM, pointers.data(), environment.data());
        _exit(127);
    }
    wait_for_greeting();
    wait_for_prompt();
}

ChatTerminal::~ChatTerminal() {
    if (process_ > 0) {
        kill(process_, SIGKILL);
        waitpid(process_, nullptr, 0);
    }
    if (terminal_ >= 0) close(terminal_);
}

bool ChatTerminal::read_some(int patience_ms) {
    pollfd waiting{terminal_, POLLIN, 0};
    if (poll(&waiting, 1, patience_ms) <= 0) return true;
    std::array<char, 4096> piece;
    const ssize_t n = read(terminal_, piece.data(), piece.size());
    if (n <= 0) return false;
    bytes_.append(piece.data(), static_cast<std::size_t>(n));
    return true;
}

void ChatTerminal::wait_for_greeting() {
    const auto begin = std::chrono::steady_clock::now();
    const auto came = [&] {  // with -q there is no greeting
        return bytes_.find("Ctrl-D leaves") != std::string::npos || bytes_.find(kAsks) != std::string::npos;
    };
    while (!came() && std::chrono::steady_clock::now() - begin < kTimeLimit) {
        const bool hid = !echoes();
        if (!read_some(1)) return;  // it has ended; wait_for_prompt() throws
        if (hid && !came()) hid_typing_before_greeting_ = true;
    }
}

void ChatTerminal::type(std::string_view keys) {
    while (!keys.empty()) {
        const ssize_t n = write(terminal_, keys.data(), std::min<std::size_t>(keys.size(), 1024));
        if (n <= 0) throw std::system_error(errno, std::generic_category(), "typing");
        keys.remove_prefix(static_cast<std::size_t>(n));
        read_some(0);
    }
}

void ChatTerminal::wait_for(std::string_view text) {
    const auto end = std::chrono::steady_clock::now() + kTimeLimit;
    for (;;) {
        const std::size_t found = bytes_.find(text, seen_);
        if (found != std::string::npos) {
            seen_ = found + text.size();
            return;
        }
        if (!read_some(100) || std::chrono::steady_clock::now() > end)
            throw std::runtime_error("waited in vain for '" + std::string(text) + "'; came: " + bytes_);
    }
}

void ChatTerminal::wait_for_prompt() {
    wait_for(kAsks);
}

void ChatTerminal::send(std::string_view line) {
    type(std::string(line) + "\r");
    wait_for_prompt();
}

void ChatTerminal::begin_answer(std::string_view message, std::size_t n_bytes) {
    type(std::string(message) + "\r");
    wait_for("\r\n");
    const std::size_t begin = seen_;
    const auto whole_lines = [&] {
        const std::string_view bytes = std::string_view(bytes_).substr(begin);
        return screen_text(bytes.substr(0, bytes.rfind('\n') + 1));
    };
    while (whole_lines().size() < n_bytes) wait_for("\n");
}

void ChatTerminal::resize(int columns) {
    const winsize size = window(columns);
    if (ioctl(terminal_, TIOCSWINSZ, &size) != 0) throw std::system_error(errno, std::generic_category(), "resizing");
}

void ChatTerminal::send_signal(int signal) const {
    kill(process_, signal);
}

void ChatTerminal::hang_up() {
    close(std::exchange(terminal_, -1));
}

bool ChatTerminal::is_as_before() const {
    termios state{};
    if (tcgetattr(terminal_, &state) != 0) throw std::system_error(errno, std::generic_category(), "tcgetattr");
    constexpr tcflag_t kLocal = ECHO | ICANON | ISIG | IEXTEN;
    constexpr tcflag_t kOutput = OPOST | ONLCR;
    const std::size_t brackets = bytes_.rfind(kAsks);
    return (state.c_lflag & kLocal) == kLocal && (state.c_oflag & kOutput) == kOutput && (state.c_iflag & ICRNL) != 0 &&
           (brackets == std::string::npos || bytes_.find(kAsksNoMore, brackets) != std::string::npos);
}

bool ChatTerminal::echoes() const {
    termios state{};
    if (tcgetattr(terminal_, &state) != 0) throw std::system_error(errno, std::generic_category(), "tcgetattr");
    return (state.c_lflag & ECHO) != 0;
}

int ChatTerminal::finish() {
    const auto end = std::chrono::steady_clock::now() + kTimeLimit;
    const auto is_running = [this] {
        siginfo_t info{};
        return waitid(P_PID, static_cast<id_t>(process_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0;
    };
    while (terminal_ >= 0 ? read_some(100) : is_running() && usleep(10000) == 0)
        if (std::chrono::steady_clock::now() >= end) break;
    if (std::chrono::steady_clock::now() >= end) kill(process_, SIGKILL);
    int status = 0;
    waitpid(process_, &status, 0);
    process_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1 - WTERMSIG(status);
}

std::vector<std::string> ChatTerminal::messages() const {
    std::ifstream file(session());
    const auto json = nlohmann::json::parse(file);
    std::vector<std::string> texts;
    for (const auto& message : json.at("messages")) texts.push_back(message.at("content").get<std::string>());
    return texts;
}

namespace {

class Paper {
public:
    void put(std::string_view character) {
        auto& cells = line();
        if (inserting_) cells.insert(cells.begin() + column_, std::string());
        cells[column_++] = character;
    }
    void control(char c) {
        if (c == '\n') ++row_;
        if (c == '\r') column_ = 0;
        if (c == '\b') column_ = std::max<std::ptrdiff_t>(0, column_ - 1);
    }
    void sequence(std::string_view parameters, char final) {
        const std::ptrdiff_t n =
            parameters.empty() || parameters.front() == '?' ? 1 : std::stoi(std::string(parameters));
        auto& cells = line();
        const auto here = cells.begin() + column_;
        if (final == 'A')
            row_ = std::max<std::ptrdiff_t>(0, row_ - n);
        else if (final == 'C')
            column_ += n;
        else if (final == 'D')
            column_ = std::max<std::ptrdiff_t>(0, column_ - n);
        else if (final == 'G')
            column_ = n - 1;
        else if (final == 'K')
            cells.erase(here, cells.end());
        else if (final == 'J')
            erase_below();
        else if (final == 'P')
            cells.erase(here, here + std::min(n, cells.end() - here));
        else if (final == '@')
            cells.insert(here, static_cast<std::size_t>(n), " ");
        else if ((final == 'h' || final == 'l') && parameters == "4")
            inserting_ = final == 'h';
        else if (final != 'm' && parameters.substr(0, 1) != "?")
            throw std::runtime_error("a sequence that the screen does not know: " + std::string(parameters) + final);
    }
    [[nodiscard]] std::string text() const {
        std::string all;
        for (const auto& cells : lines_) {
            std::string text;
            for (const std::string& cell : cells) text += cell;
            text.erase(text.find_last_not_of(' ') + 1);
            all += text + "\n";
        }
        return all;
    }

private:
    std::vector<std::string>& line() {
        if (std::ssize(lines_) <= row_) lines_.resize(static_cast<std::size_t>(row_) + 1);
        auto& cells = lines_[row_];
        if (std::ssize(cells) <= column_) cells.resize(static_cast<std::size_t>(column_) + 1, " ");
        return cells;
    }
    void erase_below() {
        auto& cells = line();
        cells.erase(cells.begin() + column_, cells.end());
        lines_.resize(static_cast<std::size_t>(row_) + 1);
    }

    std::vector<std::vector<std::string>> lines_;
    std::ptrdiff_t row_ = 0;
    std::ptrdiff_t column_ = 0;
    bool inserting_ = false;
};

}  // namespace

std::string screen_text(std::string_view bytes) {
    Paper paper;
    for (std::size_t i = 0; i < bytes.size();) {
        const auto byte = static_cast<unsigned char>(bytes[i]);
        if (bytes.substr(i).starts_with("\x1b[")) {
            const std::size_t end = std::min(bytes.find_first_not_of("?0123456789;", i + 2), bytes.size() - 1);
            paper.sequence(bytes.substr(i + 2, end - i - 2), bytes[end]);
            i = end + 1;
        } else if (byte < 0x20) {
            paper.control(bytes[i++]);
        } else {
            const std::size_t length = byte < 0x80 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
            paper.put(bytes.substr(i, length));
            i += length;
        }
    }
    return paper.text();
}

}  // namespace slipstream::tools
