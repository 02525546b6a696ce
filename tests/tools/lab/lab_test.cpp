// What slipstream-lab declares: commands that `slipstream` knows by name, help that fits, files with a role.
#include "tools/lab/lab.h"

#include <algorithm>
#include <sstream>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/base/usage_error.h"
#include "tools/options/help_text.h"
#include "tools/options/lab_commands.h"
#include "tools/options/program.h"

namespace slipstream::tools {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string error_of(const std::vector<std::string>& arguments) {
    static const ProgramSpec kProduct{.name = "slipstream",
                                      .purpose = {},
                                      .first_steps = {},
                                      .audience = Audience::Users,
                                      .commands = {bench_command(), generate_command()}};
    try {
        static_cast<void>(parse_command_line(kProduct, arguments));
    } catch (const UsageError& error) {
        return error.what();
    }
    return "";
}

// Who types it as it was, or asks the wrong program, is told the command and how to build the lab.
TEST(Lab, SlipstreamSaysWhereACommandOfTheLabIs) {
    for (const CommandSpec& command : lab_program().commands) {
        EXPECT_TRUE(is_lab_command(command.name)) << command.name;
        EXPECT_THAT(
            error_of({std::string(command.name), "--json"}),
            AllOf(HasSubstr(fmt::format("use 'slipstream-lab {}'", command.name)), HasSubstr("-DSLIPSTREAM_LAB=ON")));
    }
    for (const char* option :
         {"--views", "--view-budgets=8", "--view-recent", "--view-sinks", "--view-half-life", "--view-rows"})
        EXPECT_THAT(error_of({"bench", option, "1"}), HasSubstr("use 'slipstream-lab views'")) << option;
    EXPECT_THAT(error_of({"generate", "--views", "mass"}), HasSubstr("unknown option --views"));
    EXPECT_THAT(error_of({"replays"}), HasSubstr("unknown command 'replays'"));
}

TEST(Lab, HelpFitsEightyColumns) {
    const ProgramSpec lab = lab_program();
    std::string all = program_help(lab);
    EXPECT_THAT(all, HasSubstr("Usage: slipstream-lab COMMAND"));
    for (const CommandSpec& command : lab.commands)
        for (const HelpDepth depth : {HelpDepth::Common, HelpDepth::All}) {
            const std::string help = command_help(lab.name, command, depth);
            EXPECT_THAT(help, HasSubstr(fmt::format("Usage: slipstream-lab {}", command.name)));
            all += help.substr(0, help.find("Example:"));
        }
    std::istringstream lines(all);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80U) << line;
}

// As output_files_test asks of the commands of `slipstream`.
TEST(Lab, OptionsThatNameAFileHaveARole) {
    for (const CommandSpec& command : lab_program().commands)
        for (const OptionSpec& option : command.options)
            EXPECT_FALSE(option.value == "F" && option.role == OptionRole::Value)
                << command.name << " --" << option.name;
}

// It is in no package: its help makes no files to install.
TEST(Lab, MakesNoManualPageAndNoCompletions) {
    const ProgramSpec lab = lab_program();
    for (const std::vector<std::string>& asked :
         {std::vector<std::string>{"help", "--man"}, {"help", "--completion", "bash"}})
        EXPECT_THROW(static_cast<void>(parse_command_line(lab, asked)), UsageError);
    EXPECT_THAT(parse_command_line(lab, std::vector<std::string>{"--version"}).text,
                testing::StartsWith("slipstream-lab "));
}

}  // namespace
}  // namespace slipstream::tools
