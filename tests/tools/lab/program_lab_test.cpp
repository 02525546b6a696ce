// slipstream-lab as it is called: examples of its help, usage errors, the configuration file that it shares.
#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tools/run_program.h"
#include "tests/tools/temporary_folder.h"
#include "tools/lab/lab.h"

namespace slipstream::tools {
namespace {

using testing::HasSubstr;

ProgramResult run_product(const std::vector<std::string>& arguments) {
    ProgramRun run;
    run.shell = fmt::format("exec '{}' \"$@\"", SLIPSTREAM_PRODUCT);
    run.arguments = arguments;
    return run_program(run);
}

TEST(LabProgram, TheExampleOfEachHelpRuns) {
    for (const CommandSpec& command : lab_program().commands) {
        const std::string help = run_program({std::string(command.name), "--help"}).out;
        const std::size_t at = help.find("Example:\n");
        ASSERT_NE(at, std::string::npos) << command.name;
        ProgramRun run;
        // A name with a dash cannot be a function of sh.
        std::string line = help.substr(at + 9);
        ASSERT_THAT(line, HasSubstr("slipstream-lab"));
        line.replace(line.find("slipstream-lab"), 14, "\"$0\"");
        run.shell = fmt::format("cd '{}' && {}", source_path(""), line);
        const ProgramResult result = run_program(run);
        const bool has_no_gpu = result.err.find("no GPU to measure") != std::string::npos;
        if (command.name == "card" && result.code == 1 && has_no_gpu) continue;
        EXPECT_EQ(result.code, 0) << command.name << ": " << result.err;
        EXPECT_FALSE(result.out.empty()) << command.name;
    }
}

TEST(LabProgram, SlipstreamRefusesWhatMovedHere) {
    for (const std::vector<std::string>& arguments :
         {std::vector<std::string>{"replay", "--trace", "x"}, {"bench", "--views", "mass", "--file", "x"}}) {
        const ProgramResult result = run_product(arguments);
        EXPECT_EQ(result.code, 2);
        EXPECT_EQ(result.out, "");
        EXPECT_EQ(std::ranges::count(result.err, '\n'), 1) << result.err;
        EXPECT_THAT(result.err, HasSubstr("slipstream-lab"));
        EXPECT_THAT(result.err, HasSubstr("cmake --preset release -DSLIPSTREAM_LAB=ON"));
    }
}

TEST(LabProgram, MistakesNameThisProgram) {
    const ProgramResult unknown = run_program({"views", "--nonsense"});
    EXPECT_EQ(unknown.code, 2);
    EXPECT_THAT(unknown.err, HasSubstr("(see slipstream-lab views --help)"));
    const ProgramResult elsewhere = run_program({"generate"});
    EXPECT_EQ(elsewhere.code, 2);
    EXPECT_THAT(elsewhere.err, HasSubstr("unknown command 'generate'"));
}

// One file serves both programs: each checks its own sections and leaves those of the other alone.
TEST(LabProgram, SharesTheConfigurationFile) {
    const TemporaryFolder folder;
    const auto codes = [&](const char* text) {
        const std::string file = folder.write("config.toml", text).string();
        return std::pair(run_product({"version", "--config", file}).code,
                         run_program({"views", "--config", file, "--file", "/nonexistent", "--views", "mass"}).code);
    };
    EXPECT_EQ(codes("min-p = 0.1\n[chat]\nsystem = \"x\"\n[views]\nview-sinks = 4\n"), std::pair(0, 1));
    EXPECT_EQ(codes("[views]\nnonsense = 4\n"), std::pair(0, 2));
    EXPECT_EQ(codes("[chat]\nnonsense = 4\n"), std::pair(2, 1));
    EXPECT_EQ(codes("[nowhere]\nx = 4\n"), std::pair(2, 1));
}

// Absurd values are refused in one line that names the option and the range, as in program_ranges_test.
TEST(LabProgram, RangesAreTold) {
    const TemporaryFolder folder;
    const std::string text = folder.write("text", "Once upon a time there was a king.").string();
    for (const char* option : {"depth", "max-tokens", "ctx", "threads", "temperature", "seed", "view-budgets",
                               "view-recent", "view-sinks", "view-half-life", "view-rows", "view-rebuild"})
        for (const char* value : {"-99999999999999999999999", "1e999", "x"}) {
            const ProgramResult result = run_program(
                {"views", "--no-config", "--views", "mass", "--file", text, fmt::format("--{}={}", option, value)});
            EXPECT_EQ(result.code, 2) << option << " " << value << ": " << result.err;
            EXPECT_EQ(std::ranges::count(result.err, '\n'), 1) << result.err;
            EXPECT_THAT(result.err, HasSubstr(fmt::format("--{}: ", option)));
            EXPECT_THAT(result.err, testing::ContainsRegex("from -?[0-9].* to -?[0-9]|of at least -?[0-9]"));
        }
    const ProgramResult budget =
        run_program({"replay", "--no-config", "--trace", text, "--prompts", text, "--tokenizer", "demo", "--budget=x"});
    EXPECT_EQ(budget.code, 2);
    EXPECT_THAT(budget.err, HasSubstr("--budget: "));
}

TEST(LabProgram, TextsThatHaveNoEndAreRefused) {
    const ProgramResult result =
        run_program({"replay", "--trace", "/dev/zero", "--prompts", "/dev/zero", "--tokenizer", "demo"});
    EXPECT_EQ(result.code, 1);
    EXPECT_THAT(result.err, HasSubstr("a device"));
}

}  // namespace
}  // namespace slipstream::tools
