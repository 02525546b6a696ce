#include "tools/options/options.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/terminal/usage_error.h"

namespace slipstream::tools {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

ParsedCommandLine parse(const std::vector<std::string>& arguments) {
    static const std::vector<CommandSpec> kCommands{generate_command(), inspect_command(), version_command()};
    return parse_command_line(kCommands, arguments);
}

std::string error_of(const std::vector<std::string>& arguments) {
    try {
        static_cast<void>(parse(arguments));
    } catch (const UsageError& error) {
        return error.what();
    }
    return "";
}

TEST(Options, TakesValuesAsTheyStand) {
    const auto parsed =
        parse({"generate", "--prompt", "", "--stop", "[a,b]", "--stop=", "--stop", "-ngl", "--stop=x=y", "-n5"});
    ASSERT_NE(parsed.command, nullptr);
    EXPECT_EQ(parsed.command->name, "generate");
    EXPECT_THAT(parsed.values.at("prompt"), ElementsAre(""));
    EXPECT_THAT(parsed.values.at("stop"), ElementsAre("[a,b]", "", "-ngl", "x=y"));
    EXPECT_THAT(parsed.values.at("max-tokens"), ElementsAre("5"));
    EXPECT_FALSE(parsed.values.contains("seed"));
}

TEST(Options, UnderstandsTheNamesOfLlamaCpp) {
    const auto parsed = parse({"generate", "-c", "64", "-n", "5", "-t", "1", "-p", "x", "-s", "9", "--temp", "0",
                               "-dev", "cpu", "-ctk", "f16", "-m", "model"});
    EXPECT_THAT(parsed.values.at("ctx"), ElementsAre("64"));
    EXPECT_THAT(parsed.values.at("max-tokens"), ElementsAre("5"));
    EXPECT_THAT(parsed.values.at("threads"), ElementsAre("1"));
    EXPECT_THAT(parsed.values.at("prompt"), ElementsAre("x"));
    EXPECT_THAT(parsed.values.at("seed"), ElementsAre("9"));
    EXPECT_THAT(parsed.values.at("temperature"), ElementsAre("0"));
    EXPECT_THAT(parsed.values.at("devices"), ElementsAre("cpu"));
    EXPECT_THAT(parsed.values.at("kv-type"), ElementsAre("f16"));
    EXPECT_THAT(parsed.values.at("model"), ElementsAre("model"));
    EXPECT_THAT(parse({"generate", "-md", "x"}).values.at("draft-model"), ElementsAre("x"));
    EXPECT_THAT(parse({"generate", "--model-draft", "x"}).values.at("draft-model"), ElementsAre("x"));
    EXPECT_THAT(parse({"generate", "-sys", "x"}).values.at("system"), ElementsAre("x"));
    const auto longer = parse({"generate", "--ctx-size", "64", "--n-predict", "5", "--file", "f"});
    EXPECT_THAT(longer.values.at("ctx"), ElementsAre("64"));
    EXPECT_THAT(longer.values.at("max-tokens"), ElementsAre("5"));
    EXPECT_THAT(longer.values.at("prompt-file"), ElementsAre("f"));
}

TEST(Options, AnswersNamesWithoutACounterpart) {
    EXPECT_THAT(error_of({"generate", "-ngl", "99"}), HasSubstr("--device-memory"));
    EXPECT_THAT(error_of({"generate", "-ts", "1,1"}), HasSubstr("--split"));
    EXPECT_THAT(error_of({"generate", "-fa"}), HasSubstr("leave it out"));
}

TEST(Options, RefusesWhatThisVersionDoesNotHave) {
    for (const char* option : {"--split", "--shares"})
        EXPECT_THAT(error_of({"generate", option, "x"}), HasSubstr(option));
    EXPECT_THAT(error_of({"serve"}), HasSubstr("no command 'serve'"));
    EXPECT_THAT(error_of({}), HasSubstr("no command was given"));
    EXPECT_THAT(error_of({"generate", "stray"}), HasSubstr("'stray' is not expected"));
    EXPECT_THAT(error_of({"generate", "--prompt"}), HasSubstr("--prompt"));
}

TEST(Options, TakesAModelByPlaceOrByName) {
    EXPECT_THAT(parse({"inspect", "file"}).values.at("model"), ElementsAre("file"));
    EXPECT_THAT(parse({"inspect", "-m", "file", "--json"}).values.at("model"), ElementsAre("file"));
    EXPECT_THAT(parse({"inspect", "--", "-odd"}).values.at("model"), ElementsAre("-odd"));
    EXPECT_THAT(parse({"inspect"}).values, IsEmpty());
}

TEST(Options, HelpShowsAnExample) {
    const auto help = parse({"generate", "--help"});
    EXPECT_EQ(help.command, nullptr);
    EXPECT_THAT(help.text, HasSubstr("Example:\n  slipstream generate "));
    EXPECT_THAT(parse({"--help"}).text, HasSubstr("inspect"));
    EXPECT_THAT(parse({"--version"}).text, testing::StartsWith("slipstream "));
}

}  // namespace
}  // namespace slipstream::tools
