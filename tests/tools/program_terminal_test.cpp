// generate on a terminal: a final newline, colours, and a live rate of which nothing is left beside the text.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tools/run_program.h"
#include "tests/tools/terminal.h"

namespace slipstream::tools {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

constexpr int kColumns = 80;

// What the terminal got.
std::string on_terminal(std::vector<std::string> arguments, const std::map<std::string, std::string>& environment,
                        int code = 0) {
    Terminal terminal(kColumns);
    ProgramRun run;
    run.arguments = std::move(arguments);
    run.environment = environment;
    run.terminal = terminal.program_end();
    RunningProgram program(run);
    terminal.take_all();
    EXPECT_EQ(program.finish().code, code);
    return terminal.bytes();
}

TEST(Terminal, GetsAFinalNewlineAndColours) {
    const std::vector<std::string> arguments{"generate", "--prompt", "Once", "--max-tokens", "9", "--temperature", "0"};
    EXPECT_THAT(run_program(arguments).out, Not(EndsWith("\n")));
    const std::string shown = on_terminal(arguments, {{"TERM", "xterm"}});
    EXPECT_THAT(shown, HasSubstr("\x1b[2mslipstream: "));
    const std::string plain = on_terminal(arguments, {{"TERM", "xterm"}, {"NO_COLOR", "1"}});
    EXPECT_THAT(plain, Not(HasSubstr("\x1b[2m")));
    EXPECT_THAT(plain, HasSubstr("\r\nslipstream: 2 prompt tokens"));
}

// A terminal of which nothing is known gets text alone: no colours, no bar, no rate that is drawn and erased.
TEST(Terminal, GetsNoControlSequencesWhereItIsDumb) {
    std::string prompt = "Once upon a time";
    for (int i = 0; i < 600; ++i) prompt += " the wolf said";
    // A slow link, so that prompt and text take long enough on any machine for a bar or a rate to be drawn.
    const std::vector<std::string> arguments{"generate", "--prompt", prompt, "--max-tokens",    "4",   "--seed",
                                             "5",        "--draft",  "none", "--device-memory", "16M", "--link-gib-s",
                                             "0.05"};
    EXPECT_THAT(on_terminal(arguments, {{"TERM", "xterm"}}), HasSubstr("\x1b[K")) << "else this proves nothing";
    const std::vector<std::string> mistaken{"generate", "--prompt", "x", "-m", "no-such-model"};
    for (const std::map<std::string, std::string>& environment :
         {std::map<std::string, std::string>{{"TERM", "dumb"}}, {{"TERM", ""}}, {}}) {
        const std::string shown = on_terminal(arguments, environment);
        EXPECT_THAT(shown, Not(HasSubstr("\x1b")));
        EXPECT_THAT(shown, HasSubstr("\r\nslipstream: "));
        EXPECT_THAT(on_terminal(mistaken, environment, 1), Not(HasSubstr("\x1b")));
    }
    EXPECT_THAT(on_terminal(mistaken, {{"TERM", "xterm"}}, 1), HasSubstr("\x1b[31m"));
}

TEST(Terminal, NoTextMovesTheCursor) {
    const std::vector<std::string> arguments{"generate", "--prompt", "a\x1b[2J\x07 \xff\n\tb", "--echo", "-n",
                                             "1",        "-q"};
    EXPECT_THAT(on_terminal(arguments, {}), testing::StartsWith("a\\x1B[2J\\x07 \\xFF\r\n\tb"));
    EXPECT_THAT(run_program(arguments).out, testing::StartsWith("a\x1b[2J\x07 \xff\n\tb")) << "a pipe gets the bytes";
}

TEST(Terminal, NoTextMovesTheCursorOfATerminalThatIsNamed) {
    for (const char* quiet : {"-q", "-v"})
        EXPECT_THAT(
            on_terminal({"generate", "--prompt", "a\x1b[2J", "--echo", "-n", "1", "-o", "/dev/stdout", quiet}, {}),
            testing::AllOf(HasSubstr("a\\x1B[2J"), Not(HasSubstr("a\x1b[2J")), EndsWith("\n")));
}

TEST(Terminal, MessagesBeginALineWhereTheyShareAPipeWithTheText) {
    ProgramRun run;
    run.arguments = {"generate", "Once", "-n", "5", "--seed", "3"};
    run.shell = "exec 2>&1; \"$0\" \"$@\"";
    EXPECT_THAT(run_program(run).out, HasSubstr("\nslipstream: 2 prompt tokens"));
    run.arguments.emplace_back("-q");
    const std::string text = run_program(run).out;
    EXPECT_EQ(text, run_program(run.arguments).out);
    EXPECT_THAT(text, Not(EndsWith("\n")));
    run.arguments.insert(run.arguments.end(), {"--token-ids", "/dev/full"});
    EXPECT_THAT(run_program(run).out, testing::StartsWith(text + "\nslipstream: /dev/full: cannot be written"));
}

TEST(Terminal, KeepsNothingOfTheLiveRate) {
    // A prompt of two pieces, echoed, so that there is a bar to get in its way; and text that takes long enough for the
    // rate to be told.
    std::string prompt = "Once upon a time";
    for (int i = 0; i < 300; ++i) prompt += " the wolf said";
    std::vector<std::string> arguments{"generate", "--prompt", prompt, "--echo",  "--max-tokens",
                                       "5000",     "--seed",   "5",    "--draft", "none"};
    const std::string shown = on_terminal(arguments, {{"TERM", "xterm"}});
    EXPECT_THAT(shown, HasSubstr("tokens/s\x1b[0m\x1b["));  // the rate was there
    arguments.emplace_back("-q");
    const std::string text = run_program(arguments).out;
    std::string expected;
    for (const char c : text) expected += c == '\n' ? std::string("\r\n") : std::string(1, c);
    for (const QuoteWidth quotes : {QuoteWidth::One, QuoteWidth::Two}) {
        std::vector<std::string> lines = screen_lines(shown, kColumns, quotes);
        const std::vector<std::string> text_lines = screen_lines(expected, kColumns, quotes);
        ASSERT_GE(lines.size(), text_lines.size());
        // Behind the text stands the summary alone.
        EXPECT_THAT(lines[text_lines.size()], testing::StartsWith("slipstream: "));
        lines.resize(text_lines.size());
        EXPECT_EQ(lines, text_lines);
    }
}

}  // namespace
}  // namespace slipstream::tools
