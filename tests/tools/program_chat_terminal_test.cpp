// chat at a terminal, driven as a person would. Each test compares its screen with the transcript of it in
// tests/golden/chat, in which {answer N} stands for what the model said (it may differ from one instruction form to
// another; program/chat.txt says what it must be) and # for times and counts.
#include <algorithm>
#include <csignal>
#include <regex>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/tools/chat_terminal.h"
#include "tests/tools/run_program.h"
#include "tests/tools/temporary_folder.h"
#include "tests/tools/terminal.h"

namespace slipstream::tools {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr int kColumns = 200;

void replace_all(std::string& text, const std::string& from, const std::string& to) {
    for (std::size_t at = text.find(from); !from.empty() && at != std::string::npos;
         at = text.find(from, at + to.size()))
        text.replace(at, from.size(), to);
}

// A chat whose answers are kept in mind, for the transcript.
class Talk : public ChatTerminal {
public:
    explicit Talk(std::vector<std::string> arguments, int columns = kColumns)
        : ChatTerminal(with_defaults(std::move(arguments)), columns) {}

    void ask(std::string_view keys) {
        send(keys);
        note_answer();
    }
    void note_answer() { answers_.push_back(messages().back()); }
    [[nodiscard]] const std::vector<std::string>& answers() const { return answers_; }

    [[nodiscard]] std::string transcript() const {
        // Where the terminal shows Ctrl-C depends on how far the answer has come.
        std::string text = std::regex_replace(screen_text(bytes()), std::regex("\\^C"), "");
        text = std::regex_replace(text, std::regex(" +\n"), "\n");
        for (std::size_t i = 0; i < answers_.size(); ++i) {
            // As the screen has it: no spaces at the ends of lines.
            std::string shown = std::regex_replace(answers_[i], std::regex(" +\n"), "\n");
            shown.erase(shown.find_last_not_of(' ') + 1);
            // Words go to the next line where a line is full: a newline stands for a space then.
            const std::string framed = "\n" + shown + "\n";
            const auto at = std::ranges::search(text, framed, [](char on_screen, char told) {
                return on_screen == told || (on_screen == '\n' && told == ' ');
            });
            if (!at.empty()) text.replace(at.begin() + 1, at.end() - 1, fmt::format("{{answer {}}}", i + 1));
        }
        replace_all(text, session().string(), "{session}");
        text = std::regex_replace(text, std::regex("[0-9.]+ tokens/s"), "# tokens/s");
        text = std::regex_replace(text, std::regex("slipstream: [0-9]+ tokens? "), "slipstream: # tokens ");
        text = std::regex_replace(text, std::regex("prompt [0-9]+, [0-9]+ kept"), "prompt #, # kept");
        text = std::regex_replace(text, std::regex("[0-9]+ tokens (long|in)"), "# tokens $1");
        return std::regex_replace(text, std::regex("[0-9.]+ s(;|\\)| )"), "# s$1");
    }

private:
    static std::vector<std::string> with_defaults(std::vector<std::string> arguments) {
        for (const char* argument : {"--draft", "none", "--temperature", "0"}) arguments.emplace_back(argument);
        return arguments;
    }
    std::vector<std::string> answers_;
};

void expect_transcript(const std::string& text, const std::string& name) {
    EXPECT_EQ(text, file_text(source_path("tests/golden/chat/" + name))) << name;
}
void expect_transcript(const Talk& talk, const std::string& name) {
    expect_transcript(talk.transcript(), name);
}

TEST(ChatTerminal, EditsALineAndRecallsIt) {
    Talk talk({"--max-tokens", "6"});
    talk.ask("Once upon a tme\x1b[D\x1b[Di");
    talk.ask("\x1b[A\x05 there was");  // up, to the end
    EXPECT_THAT(talk.messages(), testing::ElementsAre("Once upon a time", talk.answers()[0],
                                                      "Once upon a time there was", talk.answers()[1]));
    talk.type("never sent\x01\x0b\x04");  // to the beginning, cut to the end, leave
    EXPECT_EQ(talk.finish(), 0);
    EXPECT_EQ(file_text(talk.history().string()), "Once upon a time\nOnce upon a time there was\n");
    expect_transcript(talk, "editing.txt");
}

TEST(ChatTerminal, DimsThoughts) {
    const TemporaryFolder folder;
    const std::string form = folder.write("t.jinja", "{{ messages[-1].content }}<think>\n").string();
    ChatTerminal terminal({"--template", form, "--max-tokens", "6", "--draft", "none", "--temperature", "0"}, 80);
    terminal.send("Once upon a time");
    terminal.type("\x04");
    EXPECT_EQ(terminal.finish(), 0);
    const auto session = nlohmann::json::parse(file_text(terminal.session().string()));
    const std::string thought = session.at("messages")[1].at("thought");
    ASSERT_NE(thought, "");
    const std::string first_word = thought.substr(0, thought.find(' '));
    EXPECT_THAT(terminal.bytes(), testing::HasSubstr("\x1b[2m" + first_word));
}

TEST(ChatTerminal, CtrlCStopsAnAnswerAndTwiceLeaves) {
    Talk talk({"--stop", "no text has this"});
    talk.begin_answer("Tell me a tale", 200);
    // Not by the key: at Ctrl-C a terminal drops output that was not read yet (termios(3), NOFLSH), so that the screen
    // would lack words of the answer.
    talk.send_signal(SIGINT);
    talk.wait_for("; stopped");
    talk.wait_for_prompt();
    talk.note_answer();
    EXPECT_GT(talk.answers()[0].size(), 50U);
    talk.send("/set max-tokens 4");
    talk.ask("And then");  // the chat goes on
    talk.type("half a line");
    talk.wait_for("half a line");
    talk.type("\x03");
    talk.wait_for_prompt();
    EXPECT_EQ(talk.messages().size(), 4U);  // the line is not sent
    talk.type("\x03");
    EXPECT_EQ(talk.finish(), 130);
    // How far the first answer came differs from run to run, and with it what is used of the context.
    expect_transcript(std::regex_replace(talk.transcript(), std::regex("context [^ ]+ [0-9]+ %"), "context #"),
                      "interrupt.txt");
}

TEST(ChatTerminal, TheKeyOfCtrlCStopsAnAnswerAndKeepsIt) {
    Talk talk({"--stop", "no text has this"});
    talk.begin_answer("Tell me a tale", 200);
    talk.type("\x03");
    talk.wait_for("; stopped");
    talk.wait_for_prompt();
    const std::vector<std::string> messages = talk.messages();
    ASSERT_EQ(messages.size(), 2U);
    EXPECT_EQ(messages[0], "Tell me a tale");
    EXPECT_GT(messages[1].size(), 50U);
    talk.type("\x04");
    EXPECT_EQ(talk.finish(), 0);
}

TEST(ChatTerminal, QuittingAtOnceLeavesTheTerminalAsItWas) {
    Talk talk({"--stop", "no text has this"});
    talk.begin_answer("Tell me a tale", 200);
    EXPECT_FALSE(talk.echoes());
    talk.type("\x1c");  // Ctrl-backslash
    EXPECT_EQ(talk.finish(), -1 - SIGQUIT);
    EXPECT_TRUE(talk.echoes());
}

TEST(ChatTerminal, WhatIsTypedDuringAnAnswerIsTheNextLine) {
    Talk talk({"--stop", "no text has this", "--max-tokens", "400"});
    talk.begin_answer("Tell me a tale", 200);
    talk.type("a zebra came\r");
    talk.wait_for_prompt();
    talk.wait_for("zebra");
    talk.wait_for_prompt();
    ASSERT_EQ(talk.messages().size(), 4U);
    EXPECT_EQ(talk.messages()[2], "a zebra came");
    const std::string shown = screen_text(talk.bytes());
    EXPECT_EQ(shown.find("> a zebra came"), shown.find("a zebra") - 2) << "not in the middle of the answer";
    talk.type("/exit\r");
    EXPECT_EQ(talk.finish(), 0);
}

// Measuring the machine makes the program load for a while.
TEST(ChatTerminal, WhatIsTypedWhileTheModelLoadsIsNotShown) {
    Talk talk({"--device-memory", "28M", "--rates", "measure"});
    EXPECT_TRUE(talk.hid_typing_before_greeting());
}

TEST(ChatTerminal, UndoesAndAnswersAnew) {
    Talk talk({"--max-tokens", "6", "--seed", "5", "--ctx", "512"});
    talk.send("/set temperature 0.9");
    talk.ask("Once upon a time");
    talk.ask("The wolf");
    talk.send("/undo");
    EXPECT_EQ(talk.messages().size(), 2U);
    talk.ask("/regen");
    EXPECT_NE(talk.answers()[0], talk.answers()[2]);
    talk.send("/set");
    talk.send("/udno");
    talk.send("/context");
    talk.type("/exit\r");
    EXPECT_EQ(talk.finish(), 0);
    expect_transcript(talk, "undo_regen.txt");
}

TEST(ChatTerminal, SaysWhenTheContextIsNearlyFullAndFull) {
    Talk talk({"--ctx", "64", "--stop", "no text has this", "--max-tokens", "54"}, 240);
    talk.ask("Once upon a time");  // 5 tokens
    talk.send("/set max-tokens 100");
    talk.ask("Go");
    talk.send("And then she went on");  // has no room
    EXPECT_EQ(talk.messages().size(), 4U);
    talk.send("/undo");
    talk.send("/clear");
    talk.send("/set max-tokens 3");
    talk.ask("Once upon a time");  // there is room again
    talk.type("\x04");
    EXPECT_EQ(talk.finish(), 0);
    expect_transcript(talk, "full_context.txt");
}

TEST(ChatTerminal, APasteOf200LinesIsOneMessage) {
    Talk talk({"--max-tokens", "3"});
    std::string pasted;
    std::string expected = "Look: ";
    for (int i = 0; i < 200; ++i) {
        pasted += fmt::format("line {} of it\r", i);
        expected += fmt::format("{}line {} of it", i > 0 ? "\n" : "", i);
    }
    talk.ask("Look: \x1b[200~" + pasted + "\x1b[201~ says who?");
    ASSERT_EQ(talk.messages().size(), 2U);
    EXPECT_EQ(talk.messages()[0], expected + " says who?");
    talk.ask("\x1b[200~one line\x1b[201~");
    talk.send("\"\"\"two");
    talk.ask("lines\"\"\"");
    EXPECT_EQ(talk.messages()[2], "one line");
    EXPECT_EQ(talk.messages()[4], "two\nlines");
    talk.type("\x04");
    EXPECT_EQ(talk.finish(), 0);
    // A mark means nothing to another run.
    EXPECT_THAT(file_text(talk.history().string()), Not(HasSubstr("[paste")));
    expect_transcript(talk, "paste.txt");
}

TEST(ChatTerminal, AResizedWindowGetsTheLineAgain) {
    const std::string line =
        "a line that needs two rows as soon as the window has become a narrow one of sixty columns";
    Talk talk({"--max-tokens", "3"}, 100);
    talk.type(line);
    talk.wait_for("columns");
    talk.resize(60);
    talk.wait_for("\r\x1b[1A\x1b[J");  // the row above belongs to it now
    const std::size_t redrawn = talk.bytes().size();
    talk.wait_for("columns");
    talk.resize(120);
    talk.wait_for("\r\x1b[J");  // it is one row again, for the terminal wraps anew
    talk.wait_for("columns");
    EXPECT_GT(talk.bytes().size(), redrawn);
    talk.ask(" now");
    EXPECT_EQ(talk.messages()[0], line + " now");
    talk.type("\x04");
    EXPECT_EQ(talk.finish(), 0);
    // The paper has no edge: the row above, which is the line's own where a terminal wraps, is the greeting's second
    // there.
    expect_transcript(talk, "resize.txt");
}

TEST(ChatTerminal, CrLfIsOneLineEnd) {
    Talk talk({"--max-tokens", "2"});
    talk.ask("\x1b[200~one\r\ntwo\r\n\r\nfour\r\n\x1b[201~");
    talk.ask("\x1b[200~one\rtwo\r\rfour\r\x1b[201~");
    talk.ask("\x1b[200~one\ntwo\n\nfour\n\x1b[201~");
    for (const std::size_t i : {0U, 2U, 4U}) EXPECT_EQ(talk.messages().at(i), "one\ntwo\n\nfour");
    // A terminal without brackets sends the lines as they are typed; here an empty one would be a message, too.
    talk.type("five\r\nsix\r\n");
    talk.wait_for("six");
    talk.wait_for_prompt();
    talk.type("\r\r");  // two returns are two lines
    talk.wait_for_prompt();
    talk.wait_for_prompt();
    ASSERT_EQ(talk.messages().size(), 14U);
    EXPECT_EQ(talk.messages()[6], "five");
    EXPECT_EQ(talk.messages()[8], "six");
    EXPECT_EQ(talk.messages()[10], "");
    EXPECT_EQ(talk.messages()[12], "");
    talk.type("\x04");
    EXPECT_EQ(talk.finish(), 0);
}

TEST(ChatTerminal, CrLfTypedDuringAnAnswerIsOneLineEnd) {
    Talk talk({"--stop", "no text has this", "--max-tokens", "300"});
    talk.begin_answer("Tell me a tale", 200);
    talk.type("/set max-tokens 2\r\na zebra came\r\nand a crow\r\n");
    talk.wait_for("crow");
    talk.wait_for_prompt();
    talk.type("\x04");
    EXPECT_EQ(talk.finish(), 0);
    ASSERT_EQ(talk.messages().size(), 6U);
    EXPECT_EQ(talk.messages()[2], "a zebra came");
    EXPECT_EQ(talk.messages()[4], "and a crow");
}

TEST(ChatTerminal, AnAnswerFollowsTheWindowsWidth) {
    Talk talk({"--stop", "no text has this", "--max-tokens", "1500"}, 100);
    talk.begin_answer("Tell me a tale", 800);
    talk.resize(60);
    const std::size_t resized_at = talk.bytes().size();
    talk.wait_for_prompt();
    ASSERT_GT(talk.messages().at(1).size(), 2000U) << "the answer went on";
    // The line under way was begun for 100 columns, and so was what the pseudo terminal held unread.
    std::string after = talk.bytes().substr(talk.bytes().find('\n', resized_at + 2000) + 1);
    after.resize(after.find("slipstream: "));
    EXPECT_GT(std::ranges::count(after, '\n'), 10);
    EXPECT_EQ(lines_wrapped_by_terminal(after, 60), 0);
    talk.type("/exit\r");
    EXPECT_EQ(talk.finish(), 0);
}

}  // namespace
}  // namespace slipstream::tools
