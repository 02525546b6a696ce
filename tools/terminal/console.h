// Everything that is said beside the text: messages, progress bars, the live rate. All of it goes to stderr; bars,
// colours and the rate only where that is a terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "tools/terminal/cursor_column.h"
#include "tools/terminal/terminal_control.h"

namespace slipstream::tools {

enum class Verbosity : std::uint8_t { Quiet, Normal, Verbose };
/// What a terminal gets beside text.
enum class TerminalUse : std::uint8_t {
    Everything,
    NoColors,   // NO_COLOR is set
    TextAlone,  // TERM is "dumb" or unset: no control sequences at all
};

class Console {
public:
    /// Messages of every level are appended to `log_file` too, where given. Throws IoError where it cannot be opened,
    /// Interrupted after a signal while that waits.
    Console(Verbosity verbosity, TerminalUse use, const std::optional<std::filesystem::path>& log_file);
    ~Console();
    Console(const Console&) = delete;
    Console& operator=(const Console&) = delete;

    /// The one line of a command that fails.
    void error(std::string_view message);
    /// What a user should know though all is well; not with -q.
    void note(std::string_view message);
    /// With -v only.
    void detail(std::string_view message);

    [[nodiscard]] bool stderr_is_terminal() const { return stderr_is_terminal_; }
    [[nodiscard]] bool stdout_is_terminal() const { return stdout_is_terminal_; }
    /// Whether stdout and stderr are one terminal.
    [[nodiscard]] bool shares_terminal() const { return shares_terminal_; }
    /// Whether they are one terminal, one pipe or one file.
    [[nodiscard]] bool shares_output() const { return shares_output_; }
    /// stderr is a terminal that takes control sequences.
    [[nodiscard]] bool draws() const { return draws_; }
    /// A terminal to draw on, and no -q.
    [[nodiscard]] bool shows_progress() const { return draws_ && verbosity_ != Verbosity::Quiet; }
    [[nodiscard]] bool quiet() const { return verbosity_ == Verbosity::Quiet; }
    [[nodiscard]] bool verbose() const { return verbosity_ == Verbosity::Verbose; }
    /// Columns of the terminal; 80 where it does not say.
    [[nodiscard]] int columns() const;
    /// The text ended within a line, and messages go where it goes: the next one begins a line. With -q only an error
    /// does, so that else nothing is added to the text.
    void end_line();
    /// Writes to stderr, in one write if the system takes it. To a terminal text goes escaped (shown_text.h), elsewhere
    /// as it is; control sequences go to a terminal only, and colours only if they are allowed.
    void draw(std::initializer_list<DrawnPart> parts);
    void draw(std::string_view text) { draw({DrawnPart(text)}); }

private:
    void log(std::string_view message);
    // Folded at the width of the terminal, where there is one.
    [[nodiscard]] std::string fitted(std::string_view line) const;

    Verbosity verbosity_;
    bool stderr_is_terminal_;
    bool stdout_is_terminal_;
    bool shares_terminal_;
    bool shares_output_;
    bool draws_;
    bool colored_;
    bool is_within_line_ = false;  // of the text; an error ends it
    std::string log_name_;
    std::FILE* log_file_ = nullptr;
};

/// The one line of a program without a Console that fails: "PROGRAM: MESSAGE" on stderr, without control characters.
void report_failure(std::string_view program, std::string_view message);

/// A bar on one line of a terminal, gone when its owner is. Draws nothing in the first moments, so that short work does
/// not flicker.
class ProgressBar {
public:
    ProgressBar(Console& console, std::string_view label);
    ~ProgressBar();
    ProgressBar(const ProgressBar&) = delete;
    ProgressBar& operator=(const ProgressBar&) = delete;

    /// `done` of `total`; `figures` stand behind the bar ("1.2 of 4.0 GiB"), and behind them the time that is left,
    /// once it can be told.
    void update(double done, double total, std::string_view figures);
    void clear();

private:
    Console& console_;
    std::string label_;
    std::chrono::steady_clock::time_point next_;
    std::chrono::steady_clock::time_point began_{};  // of the work: the first update
    double first_done_ = -1.0;                       // what was done by then
    bool drawn_ = false;
};

/// Where the live rate stands.
enum class RatePlace : std::uint8_t {
    BesideText,  // text goes to the same terminal: dimmed behind it, where there is room and the cursor is known
    OwnLine,     // text goes elsewhere
};

/// Tokens a second while text appears.
class LiveRate {
public:
    LiveRate(Console& console, RatePlace place);
    ~LiveRate() { clear(); }
    LiveRate(const LiveRate&) = delete;
    LiveRate& operator=(const LiveRate&) = delete;

    /// Makes room for text that is about to be written.
    void before_text();
    /// `text` was written, by whomever.
    void after_text(std::string_view text);
    /// Where tokens end: the time left stands behind the rate from then on.
    void expect(std::int64_t n_tokens) { expected_tokens_ = n_tokens; }
    /// Shows the rate, not more often than an eye can follow.
    void show(std::int64_t n_tokens);
    void clear();

private:
    Console& console_;
    RatePlace place_;
    CursorColumn cursor_;  // beside text
    bool shown_ = false;
    std::chrono::steady_clock::time_point began_;
    std::chrono::steady_clock::time_point next_;
    std::int64_t first_tokens_ = -1;
    std::int64_t expected_tokens_ = -1;  // not known
};

}  // namespace slipstream::tools
