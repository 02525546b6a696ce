// What each signal does, by where it finds the program: the exit code, what is kept, and how the terminal is left.
//
//                 | at the prompt              | before the first word       | in an answer
//  SIGINT, chat   | clears the line; goes on   | takes the message back      | keeps what there is; goes on
//  SIGTERM 143    | ends                       | keeps the message, no answer | keeps what there is, and ends
//  SIGHUP 129     | as SIGTERM, also where the window is gone and every write fails
//  SIGQUIT        | ends at once; the message is kept, what came of the answer and what tables learnt are not
//
// From a pipe SIGINT is as SIGTERM, with 130. Of generate all three keep text, session and tables; SIGQUIT the session.
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/sanitizers.h"
#include "tests/tools/chat_terminal.h"
#include "tests/tools/run_program.h"
#include "tests/tools/temporary_folder.h"
#include "tests/tools/terminal.h"

namespace slipstream::tools {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using Arguments = std::vector<std::string>;
using Messages = std::vector<std::string>;

// Answers that do not end by themselves.
const Arguments kEndless{"--stop", "no text has this", "--seed", "3", "--draft", "recycling"};
// A link so slow that a pass of the model takes seconds.
const Arguments kSlow{"--device-memory", "20M", "--link-gib-s", "0.001", "--draft", "none"};

// Looks again and again, for a minute at most.
bool comes_true(const std::function<bool()>& condition) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (!condition()) {
        if (std::chrono::steady_clock::now() > end) return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return true;
}

Messages messages_in(const std::string& path) {
    Messages texts;
    const auto json = nlohmann::json::parse(file_text(path), nullptr, false);
    if (json.is_object())
        for (const auto& message : json.at("messages")) texts.push_back(message.at("content"));
    return texts;
}

bool holds_files(const fs::path& folder) {
    std::error_code error;
    return fs::exists(folder, error) && !fs::is_empty(folder, error);
}

// Beside tables, the folder has the rates of the machine.
bool holds_tables(const fs::path& folder) {
    std::error_code error;
    for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
        if (at->path().extension() == ".table") return true;
    return false;
}

Arguments joined(Arguments front, const Arguments& back) {
    front.insert(front.end(), back.begin(), back.end());
    return front;
}

enum class Place { AtThePrompt, BeforeTheFirstWord, InAnAnswer };
const char* name_of(Place place) {
    return place == Place::AtThePrompt          ? "at the prompt"
           : place == Place::BeforeTheFirstWord ? "before the first word"
                                                : "in an answer";
}

// A chat at a terminal, brought to a place.
class TalkInPlace {
public:
    explicit TalkInPlace(Place place)
        : place_(place),
          talk_(joined(place == Place::BeforeTheFirstWord ? kSlow : kEndless, {"--tables", tables().string()}), 120) {
        if (place == Place::AtThePrompt) {
            talk_.send("/set max-tokens 6");
            talk_.send("Once upon a time");
            talk_.type("half a line");
            talk_.wait_for("half a line");
        } else if (place == Place::InAnAnswer) {
            talk_.begin_answer("Once upon a time", 200);
        } else {
            talk_.type("Once upon a time\r");
            EXPECT_TRUE(comes_true([&] { return messages_in(talk_.session().string()).size() == 2; }));
        }
    }

    ChatTerminal& talk() { return talk_; }
    [[nodiscard]] fs::path tables() const { return folder_.path() / "tables"; }
    // After the end: the message is there, with all of the answer, some of it, or nothing.
    void expect_kept(bool answer) const {
        const Messages messages = messages_in(talk_.session().string());
        ASSERT_EQ(messages.size(), 2U) << name_of(place_);
        EXPECT_EQ(messages[0], "Once upon a time");
        EXPECT_EQ(!messages[1].empty(), answer) << name_of(place_);
        if (place_ == Place::InAnAnswer && answer) {
            EXPECT_GT(messages[1].size(), 100U);
        }
    }

private:
    Place place_;
    TemporaryFolder folder_;
    ChatTerminal talk_;
};

class ChatSignals : public testing::TestWithParam<Place> {};
INSTANTIATE_TEST_SUITE_P(Places, ChatSignals,
                         testing::Values(Place::AtThePrompt, Place::BeforeTheFirstWord, Place::InAnAnswer));

TEST_P(ChatSignals, TermAndHupEndItAndKeepAll) {
    for (const int signal : {SIGTERM, SIGHUP}) {
        TalkInPlace in_place(GetParam());
        in_place.talk().send_signal(signal);
        EXPECT_EQ(in_place.talk().finish(), 128 + signal) << name_of(GetParam());
        EXPECT_TRUE(in_place.talk().is_as_before()) << name_of(GetParam()) << signal;
        in_place.expect_kept(GetParam() != Place::BeforeTheFirstWord);
        EXPECT_EQ(holds_tables(in_place.tables()), GetParam() != Place::BeforeTheFirstWord) << signal;
    }
}

TEST_P(ChatSignals, AClosedWindowEndsItAndKeepsAll) {
    TalkInPlace in_place(GetParam());
    in_place.talk().hang_up();
    // A terminal may answer that it is gone before the signal comes.
    EXPECT_THAT(in_place.talk().finish(), testing::AnyOf(128 + SIGHUP, 0));
    in_place.expect_kept(GetParam() != Place::BeforeTheFirstWord);
    EXPECT_EQ(holds_tables(in_place.tables()), GetParam() != Place::BeforeTheFirstWord);
}

TEST_P(ChatSignals, IntStopsWhatRunsAndGoesOn) {
    TalkInPlace in_place(GetParam());
    ChatTerminal& talk = in_place.talk();
    talk.send_signal(SIGINT);
    talk.wait_for_prompt();
    if (GetParam() == Place::BeforeTheFirstWord) {
        EXPECT_THAT(talk.messages(), IsEmpty()) << "taken back, in the file too";
    } else {
        in_place.expect_kept(true);
    }
    // TERM after a Ctrl-C is what ends it.
    talk.send_signal(SIGTERM);
    EXPECT_EQ(talk.finish(), 143);
    EXPECT_TRUE(talk.is_as_before());
}

TEST_P(ChatSignals, QuitEndsItAtOnceAndLeavesTheTerminalAsItWas) {
    TalkInPlace in_place(GetParam());
    in_place.talk().type("\x1c");  // Ctrl-backslash
    EXPECT_EQ(in_place.talk().finish(), -1 - SIGQUIT);
    EXPECT_TRUE(in_place.talk().is_as_before()) << name_of(GetParam());
    in_place.expect_kept(GetParam() == Place::AtThePrompt);
}

TEST(ChatSignal, AKilledChatLosesTheAnswerAndNotTheMessage) {
    TalkInPlace in_place(Place::InAnAnswer);
    in_place.talk().send_signal(SIGKILL);
    EXPECT_EQ(in_place.talk().finish(), -1 - SIGKILL);
    in_place.expect_kept(false);
    // It goes on with what there is, and says so.
    ProgramRun run;
    run.arguments = {"chat", "--no-config", "--session", in_place.talk().session().string(), "--max-tokens", "4"};
    run.input = "/regen\n";
    const ProgramResult result = run_program(run);
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_THAT(result.err, HasSubstr("1 exchange; the last message has no answer yet, /regen asks for one"));
    const Messages messages = messages_in(in_place.talk().session().string());
    ASSERT_EQ(messages.size(), 2U);
    EXPECT_EQ(messages[0], "Once upon a time");
    EXPECT_NE(messages[1], "");
}

// A window that closes sends SIGHUP once from the kernel and again from the shell; a session's manager adds SIGTERM.
TEST(ChatSignal, SeveralHangupsAreOne) {
    TalkInPlace in_place(Place::InAnAnswer);
    for (int i = 0; i < 5; ++i) in_place.talk().send_signal(SIGHUP);
    in_place.talk().send_signal(SIGTERM);
    EXPECT_THAT(in_place.talk().finish(), testing::AnyOf(129, 143));
    in_place.expect_kept(true);
    EXPECT_TRUE(holds_tables(in_place.tables()));
}

TEST(ChatSignal, AStoppedProgramLeavesThePromptToTheShellAndTakesItBack) {
    TalkInPlace in_place(Place::AtThePrompt);
    ChatTerminal& talk = in_place.talk();
    talk.send_signal(SIGTSTP);
    // The program leads its session, so its process group is orphaned and the kernel does not stop it. The handler does
    // its work all the same.
    talk.wait_for("\x1b[?2004l");
    // The handler raises SIGTSTP after these bytes, and a stop signal discards a SIGCONT that is pending.
    talk.wait_until_asleep();
    talk.send_signal(SIGCONT);
    talk.wait_for_prompt();
    talk.send("");  // "half a line", answered
    EXPECT_EQ(messages_in(talk.session().string()).size(), 4U);
}

class PipedSignals : public testing::TestWithParam<Place> {
protected:
    // Brings a piped chat to the place and sends the signal.
    ProgramResult end_by(int signal) {
        const Place place = GetParam();
        ProgramRun run;
        run.arguments = joined({"chat", "--no-config", "--session", session(), "--tables", tables().string()},
                               place == Place::BeforeTheFirstWord ? kSlow : kEndless);
        if (place == Place::AtThePrompt) run.arguments.insert(run.arguments.end(), {"--max-tokens", "6"});
        run.input = "Once upon a time\n";
        run.input_goes_on = true;
        RunningProgram program(run);
        if (place == Place::AtThePrompt) {
            EXPECT_TRUE(
                comes_true([&] { return messages_in(session()).size() == 2 && !messages_in(session())[1].empty(); }));
            program.wait_until_asleep();
        } else if (place == Place::InAnAnswer) {
            program.wait_for_output(40);
        } else {
            EXPECT_TRUE(comes_true([&] { return messages_in(session()).size() == 2; }));
        }
        program.send(signal);
        return program.finish();
    }
    [[nodiscard]] std::string session() const { return (folder_.path() / "chat").string(); }
    [[nodiscard]] fs::path tables() const { return folder_.path() / "tables"; }
    void forget() const {
        fs::remove(session());
        fs::remove_all(tables());
    }
    TemporaryFolder folder_;
};
INSTANTIATE_TEST_SUITE_P(Places, PipedSignals,
                         testing::Values(Place::AtThePrompt, Place::BeforeTheFirstWord, Place::InAnAnswer));

TEST_P(PipedSignals, EndItAndKeepAll) {
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
        const ProgramResult result = end_by(signal);
        EXPECT_EQ(result.code, 128 + signal) << result.err;
        const Messages messages = messages_in(session());
        ASSERT_EQ(messages.size(), 2U) << signal;
        EXPECT_EQ(messages[0], "Once upon a time");
        EXPECT_EQ(messages[1], result.out) << signal;
        EXPECT_EQ(messages[1].empty(), GetParam() == Place::BeforeTheFirstWord);
        EXPECT_EQ(holds_tables(tables()), GetParam() != Place::BeforeTheFirstWord) << signal;
        forget();
    }
}

TEST_P(PipedSignals, QuitKeepsTheMessage) {
    // ThreadSanitizer does not intercept read() inside the C library: it delays the handler until that read returns,
    // and SIGQUIT restarts the read (SA_RESTART).
    if (kThreadSanitizer && GetParam() == Place::AtThePrompt)
        GTEST_SKIP() << "ThreadSanitizer delays a signal that arrives in a read of the C library";
    EXPECT_EQ(end_by(SIGQUIT).code, -1 - SIGQUIT);
    const Messages messages = messages_in(session());
    ASSERT_EQ(messages.size(), 2U);
    EXPECT_EQ(messages[1].empty(), GetParam() != Place::AtThePrompt);
    EXPECT_EQ(std::distance(fs::directory_iterator(folder_.path()), fs::directory_iterator()),
              holds_files(tables()) ? 2 : 1)
        << "half a file is left";
}

// A pipe that does not block and whose reader has stopped reading: the signal ends the wait for room.
TEST(PipedSignal, WhatWasSaidIsKeptThoughStdoutIsFull) {
    const TemporaryFolder folder;
    const std::string session = (folder.path() / "chat").string();
    ProgramRun run;
    run.arguments = joined({"chat", "--no-config", "--session", session}, kEndless);
    run.input = "Once upon a time\n";
    run.input_goes_on = true;
    run.output_pipe_bytes = 4096;
    run.nonblocking = true;
    RunningProgram program(run);
    program.wait_until_asleep();
    program.send(SIGTERM);
    ASSERT_TRUE(comes_true([&] { return !program.is_running(); }));
    const ProgramResult result = program.finish();
    EXPECT_EQ(result.code, 143) << result.err;
    EXPECT_GT(result.out.size(), 2000U);
    const Messages messages = messages_in(session);
    ASSERT_EQ(messages.size(), 2U);
    EXPECT_EQ(messages[0], "Once upon a time");
    EXPECT_THAT(messages[1], testing::StartsWith(result.out));
}

// generate, interrupted before and in its text: the session goes on to the text that one run gives.
TEST(GenerateSignals, KeepTextSessionAndTables) {
    const Arguments text{"generate", "--no-config", "Once upon a time", "--seed",   "3",
                         "-n",       "800",         "--draft",          "recycling"};
    const ProgramResult whole = run_program(text);
    ASSERT_EQ(whole.code, 0) << whole.err;
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
        const TemporaryFolder folder;
        const std::string session = (folder.path() / "session").string();
        const fs::path tables = folder.path() / "tables";
        const Arguments kept{"--session", session, "--tables", tables.string()};
        ProgramRun run;
        run.arguments = joined(text, kept);
        RunningProgram program(run);
        program.wait_for_output(20);
        program.send(signal);
        const ProgramResult cut = program.finish();
        EXPECT_EQ(cut.code, signal == SIGQUIT ? -1 - SIGQUIT : 128 + signal) << cut.err;
        EXPECT_THAT(whole.out, testing::StartsWith(cut.out)) << signal;
        EXPECT_EQ(holds_tables(tables), signal != SIGQUIT) << signal;
        EXPECT_EQ(run_program(joined(text, kept)).out, whole.out) << signal;
    }
}

TEST(GenerateSignals, BeforeTheFirstWordLeaveASessionToGoOnWith) {
    for (const int signal : {SIGTERM, SIGHUP, SIGQUIT}) {
        const TemporaryFolder folder;
        const std::string session = (folder.path() / "session").string();
        ProgramRun run;
        run.arguments = joined(
            {"generate", "--no-config", "Once upon a time", "-n", "4", "--temperature", "0", "--session", session},
            kSlow);
        RunningProgram program(run);
        ASSERT_TRUE(comes_true([&] { return fs::exists(session); }));
        program.send(signal);
        const ProgramResult cut = program.finish();
        EXPECT_EQ(cut.code, signal == SIGQUIT ? -1 - SIGQUIT : 128 + signal) << cut.err;
        EXPECT_EQ(cut.out, "");
        const ProgramResult resumed = run_program({"generate", "--no-config", "--session", session, "--draft", "none"});
        EXPECT_EQ(resumed.code, 0) << resumed.err;
        EXPECT_NE(resumed.out, "");
    }
}

// A terminal that is gone and of which nobody is told by a signal: writes fail with EIO.
TEST(GenerateSignals, AGoneTerminalEndsItAndKeepsSessionAndTables) {
    const TemporaryFolder folder;
    const std::string session = (folder.path() / "session").string();
    const fs::path tables = folder.path() / "tables";
    // Without --quiet, progress bars of a slow program would be counted as text below.
    const Arguments text{"generate", "--no-config", "--quiet", "Once upon a time",
                         "--seed",   "3",           "--draft", "recycling"};
    Terminal terminal(80);
    ProgramRun run;
    run.arguments = joined(
        text, {"--session", session, "--tables", tables.string(), "--stats", (folder.path() / "stats").string()});
    run.terminal = terminal.program_end();
    RunningProgram program(run);
    ASSERT_TRUE(comes_true([&] {
        terminal.take();
        return terminal.bytes().size() > 400;
    }));
    terminal.close_program_end();
    terminal.hang_up();
    EXPECT_EQ(program.finish().code, 0);
    EXPECT_TRUE(holds_tables(tables));
    EXPECT_TRUE(fs::exists(folder.path() / "stats"));
    const ProgramResult resumed = run_program({"generate", "--no-config", "--session", session, "-n", "300"});
    EXPECT_THAT(resumed.err, Not(HasSubstr(" and 0 generated")));
}

TEST(Signals, HupIsAsTermEverywhere) {
    const TemporaryFolder folder;
    std::string ids;
    for (int i = 0; i < 8000; ++i) ids += "5 ";
    const std::string many = folder.write("ids", ids).string();
    std::string words;
    for (int i = 0; i < 3000000; ++i) words += fmt::format(" {:x}", i * 2654435761U);
    const std::string text = folder.write("text", words).string();
    const fs::path made = folder.path() / "made";
    for (const Arguments& arguments :
         std::vector<Arguments>{{"perplexity", "--tokens", many, "--logits", (made / "logits").string()},
                                {"bench", "--prompt-tokens", "4000", "--repeat", "50"},
                                {"tokenize", "--file", text},
                                {"tables", "build", "--kind", "corpus", "-o", (made / "corpus").string(), text}}) {
        fs::create_directory(made);
        ProgramRun run;
        run.arguments = arguments;
        RunningProgram program(run);
        std::this_thread::sleep_for(std::chrono::seconds(1));
        ASSERT_TRUE(program.is_running()) << arguments[0];
        program.send(SIGHUP);
        const ProgramResult result = program.finish();
        EXPECT_EQ(result.code, 129) << arguments[0] << result.err;
        EXPECT_THAT(result.err, testing::EndsWith("slipstream: interrupted\n")) << arguments[0];
        EXPECT_FALSE(holds_files(made)) << arguments[0];
    }
}

// nohup: what was ignored at the start stays so.
TEST(Signals, AnIgnoredHupStaysIgnored) {
    ProgramRun run;
    run.arguments = {"generate", "--no-config", "Once upon a time", "--seed", "3", "-n", "200"};
    run.shell = "trap '' HUP; exec \"$0\" \"$@\"";
    RunningProgram program(run);
    program.wait_for_output(20);
    program.send(SIGHUP);
    EXPECT_EQ(program.finish().code, 0);
}

}  // namespace
}  // namespace slipstream::tools
