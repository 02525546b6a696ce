// The live rate beside text on a terminal: whatever the text is, none of the rate is left when it is over.
#include <unistd.h>

#include <array>
#include <chrono>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tools/terminal.h"
#include "tools/base/amounts.h"
#include "tools/terminal/console.h"

namespace slipstream::tools {
namespace {

using testing::HasSubstr;
using testing::Not;

// stderr is another file while this lives.
class StderrOn {
public:
    explicit StderrOn(int descriptor) : kept_(dup(STDERR_FILENO)) { dup2(descriptor, STDERR_FILENO); }
    ~StderrOn() {
        dup2(kept_, STDERR_FILENO);
        close(kept_);
    }
    StderrOn(const StderrOn&) = delete;
    StderrOn& operator=(const StderrOn&) = delete;

private:
    int kept_;
};

struct Shown {
    std::string bytes;       // with the rate
    std::string text_bytes;  // without
};

// Writes `pieces` to a terminal with the rate shown after each, long enough apart for it to be drawn.
Shown show(const std::vector<std::string>& pieces, int columns, TerminalUse use) {
    Terminal terminal(columns);
    const auto write_text = [&](std::string_view text) {
        EXPECT_EQ(write(terminal.program_end(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
        terminal.take();
    };
    {
        const StderrOn stderr_on(terminal.program_end());
        Console console(Verbosity::Normal, use, std::nullopt);
        LiveRate rate(console, RatePlace::BesideText);
        rate.show(1);
        std::this_thread::sleep_for(std::chrono::milliseconds(220));
        std::int64_t n = 1;
        for (const std::string& piece : pieces) {
            rate.before_text();
            write_text(piece);
            rate.after_text(piece);
            rate.show(++n);
            terminal.take();
            std::this_thread::sleep_for(std::chrono::milliseconds(11));
        }
        rate.clear();
    }
    terminal.take_all();
    Terminal plain(columns);
    for (const std::string& piece : pieces) {
        EXPECT_EQ(write(plain.program_end(), piece.data(), piece.size()), static_cast<ssize_t>(piece.size()));
        plain.take();
    }
    plain.take_all();
    return {terminal.bytes(), plain.bytes()};
}

void expect_no_trace(const std::vector<std::string>& pieces, int columns) {
    const Shown shown = show(pieces, columns, TerminalUse::Everything);
    EXPECT_THAT(shown.bytes, HasSubstr("tokens/s"));
    for (const QuoteWidth quotes : {QuoteWidth::One, QuoteWidth::Two})
        EXPECT_EQ(screen_lines(shown.bytes, columns, quotes), screen_lines(shown.text_bytes, columns, quotes));
}

TEST(LiveRate, LeavesNothingBesideWrappedLines) {
    std::vector<std::string> pieces;
    for (int i = 0; i < 60; ++i) pieces.push_back(std::string(1, static_cast<char>('a' + i % 26)) + "bcdefg ");
    expect_no_trace(pieces, 80);
    expect_no_trace(pieces, 40);
}

TEST(LiveRate, LeavesNothingBesideQuotesAndWideCharacters) {
    // Lines that come near the edge by characters whose width is in doubt.
    std::vector<std::string> pieces;
    for (const char* strange : {"\xe2\x80\x9c", "\xe6\xbc\xa2\xe5\xad\x97", "e\xcc\x81\xf0\x9f\x90\xba", "\t"}) {
        pieces.emplace_back("plain words");
        for (int i = 0; i < 12; ++i) pieces.emplace_back(strange);
        pieces.emplace_back(" and on and on\n");
    }
    expect_no_trace(pieces, 60);
}

TEST(LiveRate, IsNotShownWhereItHasNoRoom) {
    const std::vector<std::string> pieces(20, "abc ");
    EXPECT_THAT(show(pieces, 24, TerminalUse::Everything).bytes, Not(HasSubstr("tokens/s")));
}

TEST(LiveRate, HasNoColourWhereNoneIsWanted) {
    const std::vector<std::string> pieces(5, "abc ");
    EXPECT_THAT(show(pieces, 80, TerminalUse::Everything).bytes, HasSubstr("\x1b[2m"));
    const std::string plain = show(pieces, 80, TerminalUse::NoColors).bytes;
    EXPECT_THAT(plain, HasSubstr("tokens/s"));
    EXPECT_THAT(plain, Not(HasSubstr("\x1b[2m")));
}

TEST(LiveRate, TellsTheTimeThatIsLeft) {
    EXPECT_EQ(time_left_text(0.2), "0 s left");
    EXPECT_EQ(time_left_text(89.4), "89 s left");
    EXPECT_EQ(time_left_text(89.6), "2 min left");
    EXPECT_EQ(time_left_text(5369), "89 min left");
    EXPECT_EQ(time_left_text(7500), "2 h 05 min left");
    EXPECT_EQ(time_left_text(1e300), time_left_text(1e9));
    Terminal terminal(120);
    {
        const StderrOn stderr_on(terminal.program_end());
        Console console(Verbosity::Normal, TerminalUse::NoColors, std::nullopt);
        LiveRate rate(console, RatePlace::OwnLine);
        rate.expect(1002);
        rate.show(2);
        ProgressBar bar(console, "reading");
        bar.update(0, 100, "0 of 100");
        std::this_thread::sleep_for(std::chrono::milliseconds(1050));
        rate.show(502);
        bar.update(50, 100, "50 of 100");
        rate.show(1002);
    }
    terminal.take_all();
    EXPECT_THAT(terminal.bytes(), HasSubstr("tokens/s, 1 s left"));
    EXPECT_THAT(terminal.bytes(), HasSubstr("50 of 100, 1 s left"));
}

// What a drawing of text and control sequences comes to on a terminal.
std::string drawn(TerminalUse use) {
    Terminal terminal(80);
    {
        const StderrOn stderr_on(terminal.program_end());
        Console(Verbosity::Normal, use, std::nullopt)
            .draw({ControlKind::Dim, "a\x1b[2mb\x1b]0;t\x07\rc\xc2\x9b", ControlKind::PlainColor,
                   ControlKind::LineStart, TerminalControl(ControlKind::Up, 2), "d\xff\n"});
    }
    terminal.take_all();
    return terminal.bytes();
}

TEST(Console, EscapesTextAndDrawsItsOwnSequences) {
    const std::string text = "a\\x1B[2mb\\x1B]0;t\\x07\\x0Dc\\xC2\\x9B";
    EXPECT_EQ(drawn(TerminalUse::Everything), "\x1b[2m" + text + "\x1b[0m\r\x1b[2Ad\\xFF\r\n");
    EXPECT_EQ(drawn(TerminalUse::NoColors), text + "\r\x1b[2Ad\\xFF\r\n");
    EXPECT_EQ(drawn(TerminalUse::TextAlone), text + "d\\xFF\r\n");
    std::array<int, 2> ends{};
    ASSERT_EQ(pipe(ends.data()), 0);
    {
        const StderrOn stderr_on(ends[1]);
        Console(Verbosity::Normal, TerminalUse::Everything, std::nullopt)
            .draw({ControlKind::Dim, "a\x1b[2m\xff", ControlKind::PlainColor, ControlKind::LineStart, "\n"});
    }
    close(ends[1]);
    std::array<char, 64> bytes;
    const ssize_t n = read(ends[0], bytes.data(), bytes.size());
    close(ends[0]);
    EXPECT_EQ(std::string(bytes.data(), static_cast<std::size_t>(n)), "a\x1b[2m\xff\n") << "a pipe gets the bytes";
}

TEST(ProgressBar, IsOneLineWhateverItsLabelAndFiguresSay) {
    Terminal terminal(120);
    {
        const StderrOn stderr_on(terminal.program_end());
        Console console(Verbosity::Normal, TerminalUse::NoColors, std::nullopt);
        ProgressBar bar(console, "a\nb\x1b[5m");
        std::this_thread::sleep_for(std::chrono::milliseconds(160));
        bar.update(1, 4, "c\nd\x1b]0;t\x07");
    }
    terminal.take_all();
    EXPECT_THAT(terminal.bytes(), HasSubstr("a\\x0Ab\\x1B[5m "));
    EXPECT_THAT(terminal.bytes(), HasSubstr(" 25 % c\\x0Ad\\x1B]0;t\\x07\r\x1b[K"));
}

}  // namespace
}  // namespace slipstream::tools
