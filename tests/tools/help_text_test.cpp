#include "tools/options/help_text.h"

#include <algorithm>
#include <sstream>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/base/usage_error.h"
#include "tools/options/draft_options.h"
#include "tools/options/help_files.h"
#include "tools/options/offload_options.h"
#include "tools/options/sampling_options.h"

namespace slipstream::tools {
namespace {

using testing::HasSubstr;
using testing::Not;

const std::vector<CommandSpec>& commands() {
    static const std::vector<CommandSpec> kCommands{generate_command(), bench_command(),      inspect_command(),
                                                    models_command(),   perplexity_command(), plan_command(),
                                                    tables_command(),   tokenize_command(),   version_command()};
    return kCommands;
}

// Of all that is no command line to be copied.
std::size_t widest(const std::string& help) {
    std::size_t widest = 0;
    std::istringstream lines(help.substr(0, help.find("Example:")));
    for (std::string line; std::getline(lines, line);) widest = std::max(widest, line.size());
    return widest;
}

TEST(HelpText, WordsAreWrapped) {
    EXPECT_EQ(wrapped("one two three", 7), "one two\nthree");
    EXPECT_EQ(wrapped("one two\nthree\n\nfour", 9, 2), "one two\n  three\n\n  four");
    EXPECT_EQ(wrapped("  a-word-that-is-long  b ", 4), "a-word-that-is-long\nb");
    EXPECT_EQ(wrapped("\xc3\xa9\xc3\xa9 \xc3\xa9\xc3\xa9", 5), "\xc3\xa9\xc3\xa9 \xc3\xa9\xc3\xa9");
    EXPECT_EQ(wrapped("", 9), "");
}

TEST(HelpText, FitsEightyColumns) {
    EXPECT_LE(widest(program_help({.name = "slipstream", .purpose = "What it is for.", .commands = commands()})), 80U);
    for (const CommandSpec& command : commands()) {
        EXPECT_LE(widest(command_help("slipstream", command, HelpDepth::Common)), 80U) << command.name;
        EXPECT_LE(widest(command_help("slipstream", command, HelpDepth::All)), 80U) << command.name;
    }
}

TEST(HelpText, OptionsStandInGroupsAndThoseForResearchApart) {
    const CommandSpec generate = generate_command();
    const std::string common = command_help("slipstream", generate, HelpDepth::Common);
    const std::string all = command_help("slipstream", generate, HelpDepth::All);
    for (const char* title :
         {"\nText\n", "\nModel and device\n", "\nMemory\n", "\nSampling\n", "\nSpeculative decoding\n"})
        EXPECT_THAT(common, HasSubstr(title));
    for (const OptionSpec& option : generate.options)
        for (const std::string& spelling : spellings_of(option))
            EXPECT_THAT(all, HasSubstr(spelling.starts_with("-") ? std::string_view(spelling) : option.value));
    EXPECT_THAT(common, Not(HasSubstr("--noise-ranking")));
    EXPECT_THAT(common, Not(HasSubstr("--n-predict")));
    EXPECT_THAT(common, HasSubstr("--help-all"));
    std::size_t n = 0;
    for (const OptionGroup& group : grouped_options(generate, HelpDepth::All)) n += group.options.size();
    EXPECT_EQ(n, generate.options.size() + common_options().size()) << "each once";
}

TEST(HelpText, OptionsOfASubjectAreNoCommandsOwn) {
    for (const auto& specs : {sampling_option_specs(), offload_option_specs(), draft_option_specs(DraftPlace::OnModel)})
        for (const OptionGroup& group : grouped_options(CommandSpec{.name = "x", .options = specs}, HelpDepth::All))
            EXPECT_NE(group.title, "Options") << group.options.front()->name;
}

TEST(HelpFiles, TellOfEveryOption) {
    const std::string page = manual_page(commands());
    const std::string bash = completion_script("bash", commands());
    const std::string zsh = completion_script("zsh", commands());
    const std::string fish = completion_script("fish", commands());
    for (const CommandSpec& command : commands())
        for (const OptionSpec& option : command.options)
            for (const std::string& spelling : spellings_of(option)) {
                if (!spelling.starts_with("--")) continue;
                EXPECT_THAT(bash, HasSubstr(spelling + " "));
                EXPECT_THAT(zsh, HasSubstr(fmt::format("'{}:", spelling)));
                EXPECT_THAT(fish, HasSubstr(fmt::format("-l {} ", spelling.substr(2))));
                std::string in_roff;
                for (const char c : spelling) in_roff.append(c == '-' ? "\\" : "").append(1, c);
                EXPECT_THAT(page, HasSubstr(in_roff + "\\fR"));
            }
    EXPECT_THROW(static_cast<void>(completion_script("csh", commands())), UsageError);
}

}  // namespace
}  // namespace slipstream::tools
