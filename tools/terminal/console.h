// All output other than the generated text: messages, progress bars, the live rate. All of it goes to stderr; bars,
// colours and the rate are written only if stderr is a terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "offload/file_handle.h"
#include "tools/terminal/cursor_column.h"
#include "tools/terminal/terminal_control.h"

namespace slipstream::tools {

enum class Verbosity : std::uint8_t { Quiet, Normal, Verbose };
/// Which control sequences a terminal may get.
enum class TerminalUse : std::uint8_t {
    Everything,
    NoColors,   // NO_COLOR is set: all control sequences but colours
    TextAlone,  // TERM is "dumb" or unset: no control sequences
};

class Console {
public:
    /// Console of the process's stdout and stderr. If `log_file` is given, messages of all levels are also appended to
    /// it, whatever `verbosity` is. Throws IoError if the log file cannot be opened, Interrupted if a signal comes
    /// while open() waits (for the reader of a named pipe).
    Console(Verbosity verbosity, TerminalUse use, const std::optional<std::filesystem::path>& log_file);
    Console(const Console&) = delete;
    Console& operator=(const Console&) = delete;

    /// Prints the reason why a command fails, at every verbosity, and appends it to the log file. If end_line()
    /// has delayed a newline, writes the newline first.
    void error(std::string_view message);
    /// Prints what the user should know although the command works; with -q (Verbosity::Quiet) the message goes to the
    /// log file only.
    void note(std::string_view message);
    /// Prints a detail with -v (Verbosity::Verbose); otherwise the message goes to the log file only.
    void detail(std::string_view message);

    [[nodiscard]] bool stderr_is_terminal() const { return stderr_is_terminal_; }
    [[nodiscard]] bool stdout_is_terminal() const { return stdout_is_terminal_; }
    /// Returns whether stdout and stderr are the same terminal.
    [[nodiscard]] bool shares_terminal() const { return shares_terminal_; }
    /// Returns whether stdout and stderr are the same terminal, the same pipe or the same file.
    [[nodiscard]] bool shares_output() const { return shares_output_; }
    /// Returns whether stderr is a terminal that understands control sequences (not TerminalUse::TextAlone).
    [[nodiscard]] bool draws() const { return draws_; }
    /// Returns whether progress bars and the live rate are shown: stderr is a terminal that understands control
    /// sequences, and -q was not given.
    [[nodiscard]] bool shows_progress() const { return draws_ && verbosity_ != Verbosity::Quiet; }
    [[nodiscard]] bool quiet() const { return verbosity_ == Verbosity::Quiet; }
    [[nodiscard]] bool verbose() const { return verbosity_ == Verbosity::Verbose; }
    /// Returns the current width of the terminal on stderr in columns; 80 if the width is unknown.
    [[nodiscard]] int columns() const;
    /// Call when the generated text has ended without a newline and messages go to the same terminal, pipe or file:
    /// writes a newline to stderr, so that the next message begins a line. With -q the newline is delayed until the
    /// next error(), so that nothing is added to the text if no error follows.
    void end_line();
    /// Writes `parts` to stderr, in one write(2) if the system accepts all bytes at once. On a terminal the text is
    /// escaped (shown_text.h); otherwise it is written as it is. Colours are left out unless TerminalUse::Everything
    /// allows them, other control sequences unless draws() is true. Write errors are ignored.
    void draw(std::initializer_list<DrawnPart> parts);
    void draw(std::string_view text) { draw({DrawnPart(text)}); }

private:
    void log(std::string_view message);
    // Returns `line` folded at the width of the terminal; unchanged if stderr is no terminal.
    [[nodiscard]] std::string fitted(std::string_view line) const;

    Verbosity verbosity_;
    bool stderr_is_terminal_;
    bool stdout_is_terminal_;
    bool shares_terminal_;
    bool shares_output_;
    bool draws_;
    bool colored_;
    bool is_within_line_ = false;  // set by end_line() with -q; the next error writes the newline
    std::string log_name_;
    FileHandle log_file_;  // none: no log file, or writing it failed
};

/// A progress bar on one line of the terminal; the destructor erases it. Nothing is drawn in the first 150 ms, so that
/// the bar of short work does not flicker, nor if Console::shows_progress() is false.
class ProgressBar {
public:
    /// `label` is drawn at the beginning of the line; it is copied and escaped. The console must outlive the bar.
    ProgressBar(Console& console, std::string_view label);
    ~ProgressBar();
    ProgressBar(const ProgressBar&) = delete;
    ProgressBar& operator=(const ProgressBar&) = delete;

    /// Draws the bar at done / total, in any unit, at most every 100 ms. `figures` follow the bar ("1.2 of 4.0 GiB"),
    /// and after one second of work the estimated time left follows them. If `done` falls below the first value
    /// reported, the estimate starts again.
    void update(double done, double total, std::string_view figures);
    /// Erases the bar from the terminal; the next update() may draw it again.
    void clear();

private:
    Console& console_;
    std::string label_;
    std::chrono::steady_clock::time_point next_;     // earliest time of the next drawing
    std::chrono::steady_clock::time_point began_{};  // time of the first update()
    double first_done_ = -1.0;                       // `done` of the first update(); -1: none yet
    bool drawn_ = false;
};

/// Where the live rate is drawn.
enum class RatePlace : std::uint8_t {
    BesideText,  // after the text on the same terminal, dimmed; only if it fits and the cursor's column is known
    OwnLine,     // on a line of its own, since the text does not go to this terminal
};

/// Shows the number of generated tokens and the decoding rate in tokens per second while text is generated. Draws
/// nothing if Console::shows_progress() is false. The destructor erases the rate.
class LiveRate {
public:
    /// The console must outlive the rate.
    LiveRate(Console& console, RatePlace place);
    ~LiveRate() { clear(); }
    LiveRate(const LiveRate&) = delete;
    LiveRate& operator=(const LiveRate&) = delete;

    /// Call before text is written: erases a rate that is drawn beside the text.
    void before_text();
    /// Call after text was written to the terminal, with the bytes that the terminal received: follows the cursor,
    /// whose column decides whether a rate fits beside the text.
    void after_text(std::string_view text);
    /// Sets the number of generated tokens after which the text ends, so that show() also draws the estimated time
    /// left. Counted as in show().
    void expect(std::int64_t n_tokens) { expected_tokens_ = n_tokens; }
    /// Draws `n_tokens`, the tokens generated so far, and the rate since the first call, at most every 100 ms (beside
    /// text: 10 ms). Nothing is drawn in the first 0.2 s after the first call; the time left needs 1 s.
    void show(std::int64_t n_tokens);
    /// Erases the rate from the terminal; the next show() may draw it again.
    void clear();

private:
    Console& console_;
    RatePlace place_;
    CursorColumn cursor_;  // used for RatePlace::BesideText
    bool shown_ = false;
    std::chrono::steady_clock::time_point began_;  // time of the first show()
    std::chrono::steady_clock::time_point next_;   // earliest time of the next drawing
    std::int64_t first_tokens_ = -1;               // n_tokens of the first show(); -1: none yet
    std::int64_t expected_tokens_ = -1;            // set by expect(); -1: unknown
};

}  // namespace slipstream::tools
