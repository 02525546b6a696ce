// Signals and closed pipes: what was generated is kept, and the exit code says what happened.
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <random>
#include <thread>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/tools/run_program.h"
#include "tests/tools/temporary_folder.h"

namespace slipstream::tools {
namespace {

using testing::HasSubstr;

// Fills a context of 8192 tokens: seconds.
ProgramRun endless(std::vector<std::string> more) {
    ProgramRun run;
    run.arguments = {"generate", "--prompt", "Once upon a time", "--seed", "3"};
    run.arguments.insert(run.arguments.end(), more.begin(), more.end());
    return run;
}

// Looks again and again, for a minute at most.
bool comes_true(const std::function<bool()>& condition) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (!condition()) {
        if (std::chrono::steady_clock::now() > end) return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
}

std::ptrdiff_t n_files(const TemporaryFolder& folder) {
    return std::distance(std::filesystem::directory_iterator(folder.path()), std::filesystem::directory_iterator());
}

// A pipe that a program such as node has made non-blocking, and that is full most of the time.
TEST(NonblockingOutput, IsWaitedFor) {
    ProgramRun run;
    run.arguments = {"tokenize", "--file", source_path("README.md")};
    const ProgramResult expected = run_program(run);
    ASSERT_GT(expected.out.size(), 20'000U);
    run.output_pipe_bytes = 4096;
    run.nonblocking = true;
    RunningProgram program(run);
    program.wait_until_asleep();
    const ProgramResult result = program.finish();
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_EQ(result.out, expected.out);
}

TEST(NonblockingOutput, ASignalEndsTheWait) {
    ProgramRun run;
    run.arguments = {"tokenize", "--file", source_path("README.md")};
    run.output_pipe_bytes = 4096;
    run.nonblocking = true;
    RunningProgram program(run);
    program.wait_until_asleep();
    program.send(SIGINT);
    EXPECT_TRUE(comes_true([&] { return !program.is_running(); }));  // though nobody reads
    EXPECT_EQ(program.finish().code, 130);
}

TEST(Interrupt, KeepsTheTextAndTheFigures) {
    for (const int signal : {SIGINT, SIGTERM}) {
        const TemporaryFolder folder;
        const std::string stats = (folder.path() / "stats.json").string();
        RunningProgram program(endless({"--stats", stats}));
        program.wait_for_output(20);
        program.send(signal);
        const ProgramResult result = program.finish();
        EXPECT_EQ(result.code, 128 + signal);
        EXPECT_GE(result.out.size(), 20U);
        EXPECT_THAT(result.err, HasSubstr("interrupted"));
        const nlohmann::json json = nlohmann::json::parse(file_text(stats));
        EXPECT_EQ(json["stop_reason"], "interrupt");
        EXPECT_EQ(json["text_bytes"], result.out.size());
    }
}

TEST(Interrupt, KeepsTheFileOfOutput) {
    const TemporaryFolder folder;
    const std::string text = (folder.path() / "text").string();
    RunningProgram program(endless({"--output", text}));
    ASSERT_TRUE(comes_true([&] { return file_text(text).size() >= 20; }));
    program.send(SIGINT);
    EXPECT_EQ(program.finish().code, 130);
    EXPECT_GE(file_text(text).size(), 20U);
}

TEST(Interrupt, AClosedPipeEndsQuietly) {
    RunningProgram program(endless({}));
    program.wait_for_output(20);
    program.close_output();
    const ProgramResult result = program.finish();
    EXPECT_EQ(result.code, 0);
    EXPECT_EQ(result.err, "");
}

TEST(Interrupt, LeavesNoHalfFileOfLogits) {
    const TemporaryFolder folder;
    std::string ids;
    for (int i = 0; i < 8000; ++i) ids += "5 ";
    ProgramRun run;
    run.arguments = {"perplexity", "--tokens", folder.write("ids", ids).string(), "--logits",
                     (folder.path() / "logits").string()};
    RunningProgram program(run);
    ASSERT_TRUE(comes_true([&] { return program.n_unfinished_files(folder.path().string()) == 1; }));
    program.send(SIGINT);
    EXPECT_EQ(program.finish().code, 130);
    EXPECT_EQ(n_files(folder), 1);
}

// Words that no two of are alike, so that none is looked up: the whole takes ten seconds and more.
TEST(Interrupt, ALongTextIsNotTokenisedToItsEnd) {
    const TemporaryFolder folder;
    std::mt19937 random(5);
    std::string text;
    while (text.size() < (std::size_t{64} << 20)) text += fmt::format(" {:08x}{:08x}", random(), random());
    const std::string file = folder.write("text", text).string();
    for (const char* command : {"tokenize", "perplexity"}) {
        ProgramRun run;
        run.arguments = {command, "--file", file};
        RunningProgram program(run);
        std::this_thread::sleep_for(std::chrono::seconds(1));
        ASSERT_TRUE(program.is_running()) << command;
        const auto told = std::chrono::steady_clock::now();
        program.send(SIGINT);
        const ProgramResult result = program.finish();
        EXPECT_LT(std::chrono::steady_clock::now() - told, std::chrono::seconds(4)) << command;
        EXPECT_EQ(result.code, 130) << command;
        EXPECT_EQ(result.out, "") << command;
        EXPECT_EQ(result.err, "slipstream: interrupted\n") << command;
    }
}

TEST(Interrupt, EndsTheWaitForTheOtherEndOfAPipe) {
    const TemporaryFolder folder;
    const std::string pipe = (folder.path() / "pipe").string();
    ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
    for (const char* option : {"--prompt-file", "--output", "--config", "--log-file"}) {
        for (const int signal : {SIGINT, SIGTERM}) {
            ProgramRun run;
            run.arguments = {"generate", option, pipe};
            if (option != std::string_view("--prompt-file"))
                run.arguments.insert(run.arguments.end(), {"--prompt", "x", "--max-tokens", "1"});
            RunningProgram program(run);
            program.wait_until_asleep();
            program.send(signal);
            const ProgramResult result = program.finish();
            EXPECT_EQ(result.code, 128 + signal) << option;
            EXPECT_EQ(result.err, "slipstream: interrupted\n") << option;
        }
    }
    // Statistics are written at the end, so that is when their reader is waited for.
    ProgramRun run;
    run.arguments = {"generate", "--prompt", "x", "--max-tokens", "1", "--stats", pipe};
    RunningProgram program(run);
    program.wait_until_asleep();
    program.send(SIGINT);
    EXPECT_EQ(program.finish().code, 130);
}

TEST(Interrupt, ASecondSignalEndsAtOnceAndLeavesNoHalfFiles) {
    const TemporaryFolder folder;
    // Nobody reads stdout: the program waits for room in the pipe, where the first signal alone does not reach it.
    ProgramRun run =
        endless({"--stats", (folder.path() / "stats").string(), "--token-ids", (folder.path() / "ids").string()});
    run.output_pipe_bytes = 4096;
    RunningProgram program(run);
    program.wait_until_asleep();
    ASSERT_EQ(program.n_unfinished_files(folder.path().string()), 2);
    program.send(SIGINT);
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    ASSERT_TRUE(program.is_running());
    program.send(SIGINT);
    EXPECT_TRUE(comes_true([&] { return !program.is_running(); }));  // though stdout is as full as before
    const ProgramResult result = program.finish();
    EXPECT_EQ(result.code, 130);
    EXPECT_GE(result.out.size(), 2000U);
    EXPECT_EQ(n_files(folder), 0);
}

TEST(Interrupt, AModelFileCutShortMeanwhileIsSaid) {
    const TemporaryFolder folder;
    const std::filesystem::path model = folder.path() / "model";
    std::filesystem::copy(source_path("tools/demo_model/target"), model);
    RunningProgram program(endless({"-m", model.string(), "--stats", (folder.path() / "stats").string()}));
    program.wait_for_output(20);
    std::filesystem::resize_file(model / "model.safetensors", 4096);
    const ProgramResult result = program.finish();
    EXPECT_EQ(result.code, 1);
    EXPECT_GE(result.out.size(), 20U);
    EXPECT_THAT(result.err, testing::StartsWith("slipstream: a model file was changed or cut short"));
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    EXPECT_EQ(n_files(folder), 1);  // the model alone
}

TEST(DraftProgram, AnInterruptedRunKeepsWhatItLearnt) {
    const TemporaryFolder folder;
    ProgramRun run;
    run.arguments = {"generate", "--prompt", "The wolf knocked at the door, and the wolf", "--seed", "3",
                     "--draft",  "recycling"};
    run.environment = {{"XDG_CACHE_HOME", folder.path().string()}};
    RunningProgram program(run);
    program.wait_for_output(20);
    program.send(SIGINT);
    EXPECT_EQ(program.finish().code, 130);
    std::ptrdiff_t n_tables = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder.path() / "slipstream/tables"))
        n_tables += entry.path().extension() == ".table" ? 1 : 0;
    EXPECT_EQ(n_tables, 1);
}

TEST(Tables, AnInterruptLeavesNothingBehind) {
    const TemporaryFolder folder;
    const std::string table = (folder.path() / "t.table").string();
    std::string tale;  // seconds of work
    for (int i = 0; i < 300'000; ++i)
        tale += fmt::format("Once upon a time there was a king who had {} sons and {} daughters.\n", i % 7,
                            (i % 91) * (i % 91) % 91);
    const std::string text = folder.write("long.txt", tale).string();
    for (const char* kind : {"cacheback", "corpus"}) {
        ProgramRun run;
        run.arguments = {"tables", "build", "--kind", kind, "-o", table, text};
        RunningProgram program(run);
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        program.send(SIGINT);
        const ProgramResult result = program.finish();
        EXPECT_EQ(result.code, 130) << kind;
        EXPECT_EQ(result.err, "slipstream: interrupted\n") << kind;
        EXPECT_EQ(n_files(folder), 1) << kind;
    }
    // While it waits for its text.
    const std::string pipe = (folder.path() / "pipe").string();
    ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
    ProgramRun run;
    run.arguments = {"tables", "build", "--kind", "corpus", "-o", table, pipe};
    RunningProgram program(run);
    program.wait_until_asleep();
    program.send(SIGTERM);
    EXPECT_EQ(program.finish().code, 143);
    EXPECT_EQ(n_files(folder), 2);
}

TEST(Bench, ASignalEndsItAndLeavesNothing) {
    const TemporaryFolder folder;
    ProgramRun run;
    run.arguments = {"bench",    "--passes", "1", "--depth", "8000", "--stats", (folder.path() / "s.json").string(),
                     "--repeat", "1000000"};
    RunningProgram program(run);
    // Statistics are begun before the work.
    EXPECT_TRUE(comes_true([&] { return program.n_unfinished_files(folder.path().string()) > 0; }));
    ASSERT_EQ(program.n_unfinished_files(folder.path().string()), 1);
    program.send(SIGINT);
    const ProgramResult result = program.finish();
    EXPECT_EQ(result.code, 130);
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(n_files(folder), 0);
}

TEST(Chat, AnInterruptKeepsWhatWasSaid) {
    for (const int signal : {SIGINT, SIGTERM}) {
        const TemporaryFolder folder;
        const std::string session = (folder.path() / "chat.json").string();
        ProgramRun run;
        // With the stop text, which no text has, a turn of a tale goes on.
        run.arguments = {"chat", "--seed", "3", "--stop", "no text has this", "--session", session};
        run.input = "Once upon a time\nnever reached\n";
        RunningProgram program(run);
        program.wait_for_output(40);
        program.send(signal);
        const ProgramResult result = program.finish();
        EXPECT_EQ(result.code, 128 + signal);
        const nlohmann::json messages = nlohmann::json::parse(file_text(session)).at("messages");
        ASSERT_EQ(messages.size(), 2U);
        EXPECT_EQ(messages[1].at("content"), result.out);
    }
}

}  // namespace
}  // namespace slipstream::tools
