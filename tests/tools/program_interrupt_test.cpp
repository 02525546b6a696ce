// Signals and closed pipes: what was generated is kept, and the exit code says what happened.
#include <signal.h>

#include <chrono>
#include <functional>
#include <thread>

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
    const auto n_files = [&] {
        return std::distance(std::filesystem::directory_iterator(folder.path()), std::filesystem::directory_iterator());
    };
    ASSERT_TRUE(comes_true([&] { return n_files() == 2; }));  // the ids, and the file that is being written
    program.send(SIGINT);
    EXPECT_EQ(program.finish().code, 130);
    EXPECT_EQ(n_files(), 1);
}

}  // namespace
}  // namespace slipstream::tools
