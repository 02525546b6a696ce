// What README and --help show is what a reader types first: every command of theirs runs as it stands.
#include <filesystem>
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tools/run_program.h"
#include "tests/tools/temporary_folder.h"

namespace slipstream::tools {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

// A folder as a reader has it before them: the checkout's names, an empty home, and the first real model by its name,
// which the bundled one stands in for.
class Examples : public testing::Test {
protected:
    Examples() {
        for (const char* name : {"README.md", "tools"}) fs::create_symlink(source_path(name), folder_.path() / name);
        fs::create_directories(folder_.path() / "models");
        std::ofstream(folder_.path() / "input.txt") << "Once upon a time\n";
        fs::create_directory_symlink(source_path("tools/demo_model/target"),
                                     folder_.path() / "models/smollm2-135m-instruct");
    }

    /// `line` of a shell, in that folder, with the built program as `slipstream`.
    [[nodiscard]] ProgramResult run(const std::string& line) const {
        ProgramRun run;
        // From a file: most commands end without reading their input.
        run.shell = "program=$0; slipstream() { \"$program\" \"$@\"; }; cd " + folder_.path().string() + "; { " + line +
                    "; } <input.txt; exit $?";
        run.environment = {{"SLIPSTREAM_MODELS", (folder_.path() / "models").string()}};
        return run_program(run);
    }
    TemporaryFolder folder_;
};

// The commands of a text's indented lines; one that ends in a backslash goes on.
std::vector<std::string> commands_of(const std::string& text, const std::string& indent) {
    std::vector<std::string> commands;
    bool goes_on = false;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        const bool indented = line.starts_with(indent) && line.size() > indent.size();
        if (!indented) {
            goes_on = false;
            continue;
        }
        const std::string command = line.substr(indent.size());
        if (goes_on) {
            commands.back().pop_back();
            commands.back() += command;
        } else {
            commands.push_back(command);
        }
        goes_on = command.ends_with("\\");
    }
    return commands;
}

TEST_F(Examples, EveryCommandOfTheReadmeRuns) {
    int n_run = 0;
    bool streams = false;
    for (const std::string& command : commands_of(file_text(source_path("README.md")), "    ")) {
        if (!command.starts_with("slipstream ")) continue;  // the house, and what is done around the program
        SCOPED_TRACE(command);
        const ProgramResult result = run(command);
        EXPECT_EQ(result.code, 0) << result.err;
        EXPECT_FALSE(result.out.empty());
        streams = streams || result.err.find("in each pass") != std::string::npos;
        ++n_run;
    }
    EXPECT_GE(n_run, 4);
    EXPECT_TRUE(streams) << "what this program is for";
}

TEST_F(Examples, EveryExampleOfTheHelpRuns) {
    for (const char* name :
         {"generate", "chat", "bench", "inspect", "models", "perplexity", "plan", "tables", "tokenize", "version"}) {
        const std::string help = run_program({name, "--help"}).out;
        const std::size_t at = help.find("Example:\n");
        ASSERT_NE(at, std::string::npos) << name;
        const std::vector<std::string> commands = commands_of(help.substr(at), "  ");
        ASSERT_EQ(commands.size(), 1U) << name;
        SCOPED_TRACE(commands[0]);
        EXPECT_THAT(commands[0], HasSubstr(std::string("slipstream ") + name));
        const ProgramResult result = run(commands[0]);
        EXPECT_EQ(result.code, 0) << result.err;
        EXPECT_FALSE(result.out.empty());
    }
}

// It runs until it is told to stop.
TEST_F(Examples, TheExampleOfServeServes) {
    const std::string help = run_program({"serve", "--help"}).out;
    const std::vector<std::string> commands = commands_of(help.substr(help.find("Example:\n")), "  ");
    ASSERT_EQ(commands.size(), 1U);
    // Without the function, whose process would be another one than the program's.
    const ProgramResult result =
        run("exec \"$program\"" + commands[0].substr(commands[0].find(' ')) +
            " --port 0 --log-file log & until grep -q 'is served' log; do sleep 0.1; done 2>/dev/null; "
            "kill -TERM $!; wait $!");
    EXPECT_EQ(result.code, 143) << result.err;
    EXPECT_THAT(result.err, HasSubstr("base URL http://127.0.0.1:"));
}

// What help_text_test asks of the other commands: this one, which edits lines, is the program's alone.
TEST(HelpOfChat, FitsEightyColumnsAndIsCompleted) {
    std::string completions = run_program({"help", "--completion", "bash"}).out;
    completions.erase(0, completions.find("chat) options='"));
    completions.resize(completions.find("' ;;"));
    completions += ' ';
    for (const char* depth : {"--help", "--help-all"}) {
        const std::string help = run_program({"chat", depth}).out;
        EXPECT_THAT(help, HasSubstr("\nSpeculative decoding\n"));
        EXPECT_THAT(help, testing::Not(HasSubstr("\nOptions\n"))) << "an option without a group";
        std::istringstream lines(help.substr(0, help.find("Example:")));
        for (std::string line; std::getline(lines, line);) {
            EXPECT_LE(line.size(), 80U) << line;
            const std::size_t name = line.find("--");
            if (!line.starts_with("  ") || name > 6 || line.starts_with("  --help")) continue;
            EXPECT_THAT(completions, HasSubstr(line.substr(name, line.find_first_of(" ,", name) - name) + " "));
        }
    }
}

}  // namespace
}  // namespace slipstream::tools
