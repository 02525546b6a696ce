#include "tools/options/options.h"

#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/base/usage_error.h"
#include "tools/options/program.h"

namespace slipstream::tools {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// The real one needs a line editor.
CommandSpec chat_stand_in() {
    CommandSpec chat = generate_command();
    chat.name = "chat";
    std::erase_if(chat.options, [](const OptionSpec& option) { return option.name == "prompt"; });
    return chat;
}

ParsedCommandLine parse(const std::vector<std::string>& arguments) {
    static const ProgramSpec kProgram{
        .name = "slipstream",
        .purpose = "What it is for.",
        .first_steps = {},
        .audience = Audience::Users,
        .commands = {generate_command(), chat_stand_in(), bench_command(), inspect_command(), version_command()}};
    return parse_command_line(kProgram, arguments);
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
    EXPECT_THAT(error_of({"generate", "-ngl", "20"}), HasSubstr("-ngl 20: --device-memory decides what is resident"));
    EXPECT_THAT(error_of({"generate", "-ngl"}), HasSubstr("--device-memory"));
    EXPECT_THAT(error_of({"generate", "-ts", "1,1"}), HasSubstr("--split"));
    EXPECT_THAT(error_of({"generate", "-fa", "off"}), HasSubstr("leave it out"));
    EXPECT_THAT(error_of({"generate", "--mlock=1"}), HasSubstr("takes no value"));
    EXPECT_THAT(error_of({"chat", "-st"}), HasSubstr("'generate' answers once"));
    EXPECT_EQ(error_of({"generate", "--metrics"}), "unknown option --metrics");
    EXPECT_EQ(error_of({"inspect", "-fa"}), "unknown option -fa");
    EXPECT_THAT(error_of({"generate", "--grammar", "x"}), HasSubstr("not limited by a grammar"));
    EXPECT_THAT(error_of({"generate", "--json"}), HasSubstr("--stats"));
}

// Scripts made for llama.cpp go on: what they ask for happens anyway.
TEST(Options, OptionsForWhatHappensAnywayAreTakenWithANote) {
    const ParsedCommandLine all = parse({"generate", "-ngl", "99", "-fa", "on", "--mlock", "-st", "-p", "x"});
    EXPECT_THAT(all.values.at("prompt"), ElementsAre("x"));
    EXPECT_FALSE(all.values.contains("devices"));
    EXPECT_THAT(all.notes, ElementsAre(HasSubstr("-ngl 99: all layers are computed on the device"),
                                       HasSubstr("-fa: there is one"), HasSubstr("--mlock: "), HasSubstr("-st: ")));
    for (const char* value : {"all", "999", "-1", "auto"})
        EXPECT_EQ(parse({"generate", "-ngl", value, "-p", "x"}).notes.size(), 1U) << value;
    const ParsedCommandLine none = parse({"generate", "--n-gpu-layers=0", "-p", "x"});
    EXPECT_THAT(none.values.at("devices"), ElementsAre("cpu"));
    EXPECT_THAT(none.notes, ElementsAre(HasSubstr("that is --devices cpu")));
    EXPECT_THAT(error_of({"generate", "-ngl", "0", "--devices", "cpu,cpu"}), HasSubstr("leave one out"));
    // A value of -fa is not needed; a text after it stays a text.
    EXPECT_THAT(parse({"generate", "-fa", "a text"}).values.at("prompt"), ElementsAre("a text"));
    EXPECT_THAT(parse({"generate", "-p", "x"}).notes, IsEmpty());
}

TEST(Options, RefusesWhatThisVersionDoesNotHave) {
    EXPECT_THAT(error_of({"serve"}), HasSubstr("unknown command 'serve'"));
    EXPECT_EQ(error_of({"generate", "Once", "stray"}), "'stray' is not expected here; a text with spaces needs quotes");
    EXPECT_EQ(error_of({"chat", "smollm2"}), "'smollm2' is not expected here; -m smollm2 names a model");
    EXPECT_EQ(error_of({"chat", "hello there"}), "'hello there' is not expected here");
    EXPECT_THAT(error_of({"run"}), AllOf(HasSubstr("unknown command 'run'"), HasSubstr("'chat'")));
    EXPECT_THAT(error_of({"pull", "smollm2"}),
                AllOf(HasSubstr("unknown command 'pull'"), HasSubstr("get_model smollm2")));
    EXPECT_THAT(error_of({"generate", "--prompt"}), HasSubstr("--prompt"));
}

TEST(Options, AValueThatIsMissingIsNamedWithItsOption) {
    EXPECT_EQ(error_of({"generate", "-hf"}), "-hf requires a value, PATH (it is --model here); none follows it");
    EXPECT_EQ(error_of({"generate", "-hf", "--prompt", "x"}), error_of({"generate", "-hf"}));
    EXPECT_EQ(error_of({"generate", "--seed", "--prompt=x"}), "--seed requires a value, N; none follows it");
    EXPECT_THAT(parse({"generate", "--prompt", "--seed", "--seed", "-1"}).values.at("prompt"), ElementsAre("--seed"));
    EXPECT_THAT(parse({"generate", "-m", "--odd-name"}).values.at("model"), ElementsAre("--odd-name"));
}

TEST(Options, TakesAModelByPlaceOrByName) {
    EXPECT_THAT(parse({"inspect", "file"}).values.at("model"), ElementsAre("file"));
    EXPECT_THAT(parse({"inspect", "-m", "file", "--json"}).values.at("model"), ElementsAre("file"));
    EXPECT_THAT(parse({"inspect", "--", "-odd"}).values.at("model"), ElementsAre("-odd"));
    EXPECT_THAT(parse({"inspect"}).values, IsEmpty());
}

TEST(Options, AWordOfOneDashIsNeverReadAsLetters) {
    for (const char* option : {"-xyz", "-hf2", "-qv", "-st1", "-nope", "-cnvx", "-mfile", "-p20x"})
        EXPECT_EQ(error_of({"generate", option, "x"}), fmt::format("unknown option {}", option));
    EXPECT_THAT(parse({"generate", "-n20", "-c4096", "-s=7"}).values.at("max-tokens"), ElementsAre("20"));
    EXPECT_THAT(parse({"generate", "-s-1"}).values.at("seed"), ElementsAre("-1"));
    EXPECT_THAT(parse({"generate", "-l5=1.5"}).values.at("logit-bias"), ElementsAre("5=1.5"));
    EXPECT_THAT(error_of({"generate", "-s-"}), HasSubstr("unknown option -s-"));
    EXPECT_THAT(error_of({"generate", "--promt", "x"}), HasSubstr("unknown option --promt; --prompt is one"));
    EXPECT_THAT(error_of({"generate", "--echo=yes"}), HasSubstr("--echo takes no value"));
    EXPECT_THAT(error_of({"generat"}), HasSubstr("did you mean 'generate'"));
}

TEST(Options, WhatLlamaCppNamesAndIsThereIsServed) {
    EXPECT_THAT(parse({"generate", "-hf", "org/name:Q4_0"}).values.at("model"), ElementsAre("org/name:Q4_0"));
    EXPECT_EQ(parse({"generate", "-no-cnv"}).values.count("no-template"), 1U);
    EXPECT_EQ(parse({"generate", "-cnv", "-n", "5"}).command->name, "chat");
    EXPECT_EQ(parse({"chat", "-cnv"}).command->name, "chat");
    EXPECT_EQ(parse({"generate", "--prompt", "-cnv"}).command->name, "generate") << "a value is left alone";
    for (const char* option : {"-sm", "-ot", "-b", "-ub"})
        EXPECT_THAT(error_of({"generate", option, "x"}), testing::AllOf(HasSubstr(option), HasSubstr("leave it out")));
}

TEST(Options, CacheTypesOfLlamaCppMustBeOneType) {
    EXPECT_THAT(parse({"generate", "-ctk", "q8_0", "-ctv=q8_0"}).values.at("kv-type"), ElementsAre("q8_0", "q8_0"));
    EXPECT_THAT(parse({"generate", "--cache-type-v", "f16"}).values.at("kv-type"), ElementsAre("f16"));
    EXPECT_THAT(parse({"generate", "--kv-type", "q8"}).values.at("kv-type"), ElementsAre("q8"));
    for (const std::vector<std::string>& one : std::vector<std::vector<std::string>>{
             {"-ctk", "q8_0"}, {"-ctv", "q8_0"}, {"-ctk", "q8_0", "-ctv", "f16"}, {"--cache-type-k=q8_0"}}) {
        std::vector<std::string> arguments{"generate"};
        arguments.insert(arguments.end(), one.begin(), one.end());
        EXPECT_THAT(error_of(arguments), HasSubstr("give --kv-type instead"));
    }
}

TEST(Options, APromptMayBeTheArgument) {
    EXPECT_THAT(parse({"generate", "Once upon", "-n", "5"}).values.at("prompt"), ElementsAre("Once upon"));
    EXPECT_THAT(parse({"generate", "-n", "5", "--", "-5 degrees"}).values.at("prompt"), ElementsAre("-5 degrees"));
}

TEST(Options, OfSeveralPromptsTheLastCounts) {
    EXPECT_EQ(parse({"generate", "-p", "A", "-p", "B"}).values.at("prompt").back(), "B");
    EXPECT_EQ(parse({"generate", "A", "-p", "B"}).values.at("prompt").back(), "B");
}

TEST(Options, WhatIsRefusedIsWhatWasTyped) {
    EXPECT_EQ(error_of({"inspect", "-sys", "x"}), "unknown option -sys");
    for (const std::vector<std::string>& asked :
         std::vector<std::vector<std::string>>{{"generate", "Hi there", "-cnv"}, {"generate", "-cnv", "-p", "hi"}})
        EXPECT_THAT(error_of(asked), HasSubstr("-cnv is 'slipstream chat' here"));
}

TEST(Options, WithoutACommandThereIsAList) {
    const std::string list = parse({}).text;
    EXPECT_THAT(list, HasSubstr("  inspect "));
    for (const std::vector<std::string>& asked :
         std::vector<std::vector<std::string>>{{"help"}, {"--help"}, {"-h"}, {"help", "help"}})
        EXPECT_EQ(parse(asked).text, list);
    EXPECT_EQ(parse({"help", "generate"}).text, parse({"generate", "-h"}).text);
    EXPECT_EQ(parse({"help", "generate", "--all"}).text, parse({"generate", "--help-all"}).text);
    EXPECT_THAT(error_of({"help", "nothing"}), HasSubstr("unknown command 'nothing'"));
    EXPECT_THAT(error_of({"help", "chat", "generate"}), HasSubstr("one command"));
    EXPECT_EQ(parse({"generate", "--prompt", "--help"}).text, "") << "a value is left alone";
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
