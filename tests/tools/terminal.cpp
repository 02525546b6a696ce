#include "tests/tools/terminal.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <clocale>
#include <cstdint>
#include <cwchar>
#include <stdexcept>
#include <system_error>

#include <poll.h>

namespace slipstream::tools {

Terminal::Terminal(int columns) {
    our_end_ = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (our_end_ < 0 || grantpt(our_end_) != 0 || unlockpt(our_end_) != 0)
        throw std::system_error(errno, std::generic_category(), "pseudo terminal");
    program_end_ = open(ptsname(our_end_), O_RDWR | O_NOCTTY | O_CLOEXEC);
    winsize size{};
    size.ws_row = 24;
    size.ws_col = static_cast<unsigned short>(columns);
    if (program_end_ < 0 || ioctl(program_end_, TIOCSWINSZ, &size) != 0)
        throw std::system_error(errno, std::generic_category(), "pseudo terminal");
}

Terminal::~Terminal() {
    close_program_end();
    hang_up();
}

void Terminal::hang_up() {
    if (our_end_ >= 0) close(our_end_);
    our_end_ = -1;
}

void Terminal::close_program_end() {
    if (program_end_ >= 0) close(program_end_);
    program_end_ = -1;
}

bool Terminal::read_some() {
    std::array<char, 4096> piece;
    const ssize_t n = read(our_end_, piece.data(), piece.size());
    if (n > 0) bytes_.append(piece.data(), static_cast<std::size_t>(n));
    return n > 0;
}

void Terminal::take() {
    pollfd waiting{our_end_, POLLIN, 0};
    while (poll(&waiting, 1, 0) == 1 && (waiting.revents & POLLIN) != 0 && read_some()) {
    }
}

void Terminal::take_all() {
    close_program_end();
    while (read_some()) {
    }
}

namespace {

class Screen {
public:
    Screen(int columns, QuoteWidth quotes) : columns_(columns), quotes_(quotes) {
        if (std::setlocale(LC_CTYPE, "C.UTF-8") == nullptr) throw std::runtime_error("no locale C.UTF-8 for wcwidth()");
    }

    void put(std::string_view character, std::uint32_t code) {
        const int width = width_of(code);
        if (width == 0) {  // drawn over the cell before
            if (column_ > 0) cell(last_) += character;
            return;
        }
        if (column_ + width > columns_) {
            ++row_;
            column_ = 0;
            ++n_wrapped_;
        }
        last_ = column_;
        cell(column_) = character;
        if (width == 2) cell(column_ + 1).clear();
        column_ += width;
    }
    void control(char c) {
        if (c == '\n') {
            ++row_;
            static_cast<void>(line());
        } else if (c == '\r') {
            column_ = 0;
        } else if (c == '\t') {
            column_ = std::min((column_ / 8 + 1) * 8, columns_ - 1);
        } else {
            throw std::runtime_error("a control character that the screen does not know");
        }
    }
    void sequence(std::string_view parameters, char final) {
        if (final == 'm') return;
        // A full line's cursor stands on its last character.
        column_ = std::min(column_, columns_ - 1);
        if (final == 'K' && parameters.empty()) {
            line().resize(static_cast<std::size_t>(column_), " ");
        } else if (final == 'D' && !parameters.empty()) {
            column_ = std::max(0, column_ - std::stoi(std::string(parameters)));
        } else {
            throw std::runtime_error("a control sequence that the screen does not know");
        }
    }
    [[nodiscard]] int n_wrapped() const { return n_wrapped_; }
    [[nodiscard]] std::vector<std::string> text() const {
        std::vector<std::string> result;
        for (const auto& cells : lines_) {
            std::string& text = result.emplace_back();
            for (const std::string& character : cells) text += character;
            text.erase(text.find_last_not_of(' ') + 1);
        }
        return result;
    }

private:
    [[nodiscard]] int width_of(std::uint32_t code) const {
        if (code >= 0x2010 && code < 0x2030 && quotes_ == QuoteWidth::Two) return 2;
        return std::max(0, wcwidth(static_cast<wchar_t>(code)));
    }
    std::vector<std::string>& line() {
        if (lines_.size() <= row_) lines_.resize(row_ + 1);
        return lines_[row_];
    }
    std::string& cell(int column) {
        auto& cells = line();
        if (cells.size() <= static_cast<std::size_t>(column)) cells.resize(static_cast<std::size_t>(column) + 1, " ");
        return cells[column];
    }

    int columns_;
    QuoteWidth quotes_;
    std::vector<std::vector<std::string>> lines_;
    std::size_t row_ = 0;
    int column_ = 0;
    int last_ = 0;  // column of the last character
    int n_wrapped_ = 0;
};

Screen screen_after(std::string_view bytes, int columns, QuoteWidth quotes) {
    Screen screen(columns, quotes);
    for (std::size_t i = 0; i < bytes.size();) {
        const auto byte = static_cast<unsigned char>(bytes[i]);
        if (bytes.substr(i).starts_with("\x1b[")) {
            const std::size_t end = bytes.find_first_not_of("0123456789;", i + 2);
            if (end == std::string_view::npos) throw std::runtime_error("a control sequence without an end");
            screen.sequence(bytes.substr(i + 2, end - i - 2), bytes[end]);
            i = end + 1;
        } else if (byte < 0x20) {
            screen.control(bytes[i++]);
        } else {
            const std::size_t length = byte < 0x80 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
            std::uint32_t code = length == 1 ? byte : byte & (0xffU >> (length + 1));
            for (std::size_t j = 1; j < length; ++j)
                code = code << 6 | (static_cast<unsigned char>(bytes.at(i + j)) & 0x3fU);
            screen.put(bytes.substr(i, length), code);
            i += length;
        }
    }
    return screen;
}

}  // namespace

std::vector<std::string> screen_lines(std::string_view bytes, int columns, QuoteWidth quotes) {
    return screen_after(bytes, columns, quotes).text();
}

int lines_wrapped_by_terminal(std::string_view bytes, int columns) {
    return screen_after(bytes, columns, QuoteWidth::One).n_wrapped();
}

void Terminal::type(std::string_view keys) const {
    if (write(our_end_, keys.data(), keys.size()) != static_cast<ssize_t>(keys.size()))
        throw std::system_error(errno, std::generic_category(), "typing");
}

void Terminal::resize(int columns) const {
    winsize size{};
    size.ws_row = 24;
    size.ws_col = static_cast<unsigned short>(columns);
    if (ioctl(our_end_, TIOCSWINSZ, &size) != 0) throw std::system_error(errno, std::generic_category(), "resizing");
}

std::string Terminal::program_end_name() const {
    return ttyname(program_end_);
}

}  // namespace slipstream::tools
