// A terminal for tests: a pseudo terminal of so many columns, and what its screen shows after the bytes that came.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace slipstream::tools {

class Terminal {
public:
    explicit Terminal(int columns);
    ~Terminal();
    Terminal(const Terminal&) = delete;
    Terminal& operator=(const Terminal&) = delete;

    /// The end that a program writes to.
    [[nodiscard]] int program_end() const { return program_end_; }
    /// The name of that end in /dev/pts.
    [[nodiscard]] std::string program_end_name() const;
    void close_program_end();
    /// Types keys.
    void type(std::string_view keys) const;
    /// Gives the window another width.
    void resize(int columns) const;
    /// Closes the window: the program's end is of no use any more.
    void hang_up();
    /// Takes what has been written so far and does not wait for more.
    void take();
    /// Takes everything until nobody holds the program's end any more.
    void take_all();
    /// All bytes so far, as the terminal got them: "\n" has become "\r\n".
    [[nodiscard]] const std::string& bytes() const { return bytes_; }

private:
    bool read_some();

    int our_end_ = -1;
    int program_end_ = -1;
    std::string bytes_;
};

/// What terminals disagree about: columns of a curly quote and its like.
enum class QuoteWidth : unsigned char { One, Two };

/// Lines of the screen after `bytes`, without the spaces at their ends. Knows line ends, tabs, wide and combining
/// characters, wrapping (a full line waits for one more character), and the sequences that erase to the end of a line,
/// move left, and colour; throws for others.
[[nodiscard]] std::vector<std::string> screen_lines(std::string_view bytes, int columns, QuoteWidth quotes);

/// How many lines were longer than the screen, so that the terminal broke them.
[[nodiscard]] int lines_wrapped_by_terminal(std::string_view bytes, int columns);

}  // namespace slipstream::tools
