#include "tools/terminal/console.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "offload/atomic_file.h"
#include "runtime/text/printable.h"
#include "tools/base/amounts.h"
#include "tools/terminal/file_output.h"
#include "tools/terminal/folded_text.h"
#include "tools/terminal/shown_text.h"
#include "tools/terminal/text_cells.h"

namespace slipstream::tools {

namespace {

using Clock = std::chrono::steady_clock;
// Shortest time between two drawings of a bar, or of a live rate on its own line (estimated: as fast as an eye
// follows).
constexpr auto kRedraw = std::chrono::milliseconds(100);
// Shortest time between two drawings of a live rate beside text: shorter than kRedraw, since each write of text
// erases the rate.
constexpr auto kRedrawBesideText = std::chrono::milliseconds(10);
// Time from the construction of a progress bar to its first drawing: the bar of shorter work would only flicker.
constexpr auto kQuietStart = std::chrono::milliseconds(150);
// Seconds of work before the time left is shown: estimates from less work are unreliable.
constexpr double kSurenessSeconds = 1.0;
// Blanks between the text and a live rate beside it.
constexpr std::string_view kRateGap = "   ";
// Longest message or label, in bytes before escaping; the rest is replaced by "...".
constexpr std::size_t kMessageBytes = 4096;

bool is_same_terminal(int one, int other) {
    struct stat first {};
    struct stat second {};
    return isatty(one) == 1 && isatty(other) == 1 && fstat(one, &first) == 0 && fstat(other, &second) == 0 &&
           first.st_rdev == second.st_rdev;
}

bool is_same_file(int one, int other) {
    struct stat first {};
    struct stat second {};
    return fstat(one, &first) == 0 && fstat(other, &second) == 0 && first.st_dev == second.st_dev &&
           first.st_ino == second.st_ino && !S_ISCHR(first.st_mode);
}

bool is_color(ControlKind kind) {
    return kind == ControlKind::Dim || kind == ControlKind::Red || kind == ControlKind::PlainColor;
}

std::string spelling(TerminalControl control) {
    switch (control.kind) {
        case ControlKind::Dim:
            return "\x1b[2m";
        case ControlKind::Red:
            return "\x1b[31m";
        case ControlKind::PlainColor:
            return "\x1b[0m";
        case ControlKind::LineStart:
            return "\r";
        case ControlKind::Up:
            return fmt::format("\x1b[{}A", control.count);
        case ControlKind::Left:
            return fmt::format("\x1b[{}D", control.count);
        case ControlKind::EraseLineEnd:
            return "\x1b[K";
        case ControlKind::EraseBelow:
            return "\x1b[J";
        case ControlKind::PasteMarks:
            return "\x1b[?2004h";
        case ControlKind::NoPasteMarks:
            return "\x1b[?2004l";
    }
    return {};
}

}  // namespace

Console::Console(Verbosity verbosity, TerminalUse use, const std::optional<std::filesystem::path>& log_file)
    : verbosity_(verbosity),
      stderr_is_terminal_(isatty(STDERR_FILENO) == 1),
      stdout_is_terminal_(isatty(STDOUT_FILENO) == 1),
      shares_terminal_(is_same_terminal(STDOUT_FILENO, STDERR_FILENO)),
      shares_output_(shares_terminal_ || is_same_file(STDOUT_FILENO, STDERR_FILENO)),
      draws_(stderr_is_terminal_ && use != TerminalUse::TextAlone),
      colored_(draws_ && use == TerminalUse::Everything) {
    if (!log_file) return;
    log_name_ = log_file->string();
    log_file_ = open_file(*log_file, O_WRONLY | O_CREAT | O_APPEND, kPublicMode);
    if (log_file_.get() < 0)
        throw IoError(fmt::format("--log-file {}: cannot be opened: {}", log_name_, std::strerror(errno)));
}

void Console::log(std::string_view message) {
    if (log_file_.get() < 0) return;
    std::uint64_t written_bytes = 0;
    const int refusal = write_all(log_file_.get(), std::string(message) + '\n', written_bytes);
    if (refusal == 0) return;
    static_cast<void>(log_file_.close());
    error(fmt::format("--log-file {}: cannot be written: {}; it ends here", log_name_, std::strerror(refusal)));
}

std::string Console::fitted(std::string_view line) const {
    return folded(line, stderr_is_terminal_ ? columns() : 0);
}

void Console::end_line() {
    if (quiet())
        is_within_line_ = true;
    else
        draw("\n");
}

void Console::error(std::string_view message) {
    if (std::exchange(is_within_line_, false)) draw("\n");
    const std::string line = fmt::format("slipstream: {}", printable(message, kMessageBytes));
    draw({ControlKind::Red, fitted(line), ControlKind::PlainColor, "\n"});
    log(line);
}

void Console::note(std::string_view message) {
    const std::string line = fmt::format("slipstream: {}", printable(message, kMessageBytes));
    if (verbosity_ != Verbosity::Quiet) draw({ControlKind::Dim, fitted(line), ControlKind::PlainColor, "\n"});
    log(line);
}

void Console::detail(std::string_view message) {
    const std::string line = printable(message, kMessageBytes);
    if (verbosity_ == Verbosity::Verbose) draw({ControlKind::Dim, fitted(line), ControlKind::PlainColor, "\n"});
    log(line);
}

int Console::columns() const {
    return terminal_columns(STDERR_FILENO);
}

// A message that cannot be written to stderr is lost, since there is no other place to report it.
void Console::draw(std::initializer_list<DrawnPart> parts) {
    std::string bytes;
    for (const DrawnPart& part : parts) {
        if (const auto* control = std::get_if<TerminalControl>(&part)) {
            if (is_color(control->kind) ? colored_ : draws_) bytes += spelling(*control);
        } else {
            const std::string_view text = std::get<std::string_view>(part);
            bytes += stderr_is_terminal_ ? shown_text(text) : std::string(text);
        }
    }
    std::uint64_t written_bytes = 0;
    static_cast<void>(write_all(STDERR_FILENO, bytes, written_bytes));
}

ProgressBar::ProgressBar(Console& console, std::string_view label)
    : console_(console), label_(printable(label, kMessageBytes)), next_(Clock::now() + kQuietStart) {}

ProgressBar::~ProgressBar() {
    clear();
}

void ProgressBar::clear() {
    if (drawn_) console_.draw({ControlKind::LineStart, ControlKind::EraseLineEnd});
    drawn_ = false;
}

void ProgressBar::update(double done, double total, std::string_view figures_done) {
    if (!console_.shows_progress()) return;
    const Clock::time_point now = Clock::now();
    if (first_done_ < 0.0 || done < first_done_) {
        first_done_ = done;
        began_ = now;
    }
    if (now < next_) return;
    next_ = now + kRedraw;
    std::string figures = printable(figures_done, kMessageBytes);
    const double seconds = std::chrono::duration<double>(now - began_).count();
    if (seconds >= kSurenessSeconds && done > first_done_ && total > done)
        figures += ", " + time_left_text(seconds / (done - first_done_) * (total - done));
    const double share = total > 0.0 ? std::clamp(done / total, 0.0, 1.0) : 1.0;
    const int label_cells = cells_of(label_);
    const int room = console_.columns() - label_cells - cells_of(figures) - 12;
    const int width = std::clamp(room, 0, 40);
    const int full = static_cast<int>(share * width);
    const std::string percent = fmt::format("{:3.0f} %", 100.0 * share);
    if (width < 5 && label_cells + static_cast<int>(percent.size()) + 1 >= console_.columns()) return;
    std::string bar;
    for (int i = 0; i < width; ++i) bar += i < full ? "█" : "░";
    console_.draw({ControlKind::LineStart, ControlKind::EraseLineEnd,
                   width < 5 ? fmt::format("{} {}", label_, percent)
                             : fmt::format("{} {} {} {}", label_, bar, percent, figures)});
    drawn_ = true;
}

LiveRate::LiveRate(Console& console, RatePlace place)
    : console_(console), place_(place), began_(Clock::now()), next_(began_) {}

void LiveRate::clear() {
    if (shown_) {
        if (place_ == RatePlace::BesideText)
            console_.draw({ControlKind::EraseLineEnd});
        else
            console_.draw({ControlKind::LineStart, ControlKind::EraseLineEnd});
    }
    shown_ = false;
}

void LiveRate::before_text() {
    if (place_ == RatePlace::BesideText) clear();
}

void LiveRate::after_text(std::string_view text) {
    if (place_ == RatePlace::BesideText && console_.shows_progress()) cursor_.advance(text, console_.columns());
}

void LiveRate::show(std::int64_t n_tokens) {
    if (!console_.shows_progress()) return;
    const Clock::time_point now = Clock::now();
    if (first_tokens_ < 0) {  // the rate covers decoding only, so time counts from the first token
        first_tokens_ = n_tokens;
        began_ = now;
        return;
    }
    if (now < next_) return;
    next_ = now + (place_ == RatePlace::BesideText ? kRedrawBesideText : kRedraw);
    const double seconds = std::chrono::duration<double>(now - began_).count();
    if (seconds < 0.2) return;
    const double per_second = static_cast<double>(n_tokens - first_tokens_) / seconds;
    std::string rate = fmt::format("{}, {:.1f} tokens/s", counted(n_tokens, "token"), per_second);
    if (expected_tokens_ > n_tokens && per_second > 0.0 && seconds >= kSurenessSeconds)
        rate += ", " + time_left_text(static_cast<double>(expected_tokens_ - n_tokens) / per_second);
    const int columns = console_.columns();
    if (place_ == RatePlace::OwnLine) {
        if (static_cast<int>(rate.size()) >= columns) return;
        console_.draw({ControlKind::LineStart, ControlKind::EraseLineEnd, rate});
    } else {
        cursor_.advance("", columns);  // the width of the window may have changed
        const auto column = cursor_.column();
        const int length = static_cast<int>(rate.size() + kRateGap.size());
        if (!column || *column + length >= columns) return;
        // Left moves the cursor back to the end of the text; before_text() erases the rate before more text is written.
        clear();
        console_.draw(
            {kRateGap, ControlKind::Dim, rate, ControlKind::PlainColor, TerminalControl(ControlKind::Left, length)});
    }
    shown_ = true;
}

}  // namespace slipstream::tools
