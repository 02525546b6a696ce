#include "tools/options/output_files.h"

#include <array>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tools/temporary_folder.h"
#include "tools/base/usage_error.h"

namespace slipstream::tools {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

class OutputFiles : public testing::Test {
protected:
    [[nodiscard]] std::string path(const std::string& name) const { return (folder_.path() / name).string(); }

    // What is said about these options of `generate`: "usage: ...", "request: ...", or nothing.
    // `saved`: a file that is written in the middle of the run.
    [[nodiscard]] static std::string answer(const OptionValues& values, const std::string& saved = "") {
        static const std::array<CommandSpec, 1> commands{generate_command()};
        const EnvironmentReader nothing = [](const std::string&) { return std::nullopt; };
        try {
            const Settings settings(commands.front(), commands, values, nothing, {}, "");
            check_output_files(settings);
            if (!saved.empty()) check_output_file(settings, "/save", saved);
        } catch (const UsageError& error) {
            return fmt::format("usage: {}", error.what());
        } catch (const RequestError& error) {
            return fmt::format("request: {}", error.what());
        }
        return "";
    }

    TemporaryFolder folder_;
};

TEST_F(OutputFiles, TwoOptionsNeedTwoFiles) {
    EXPECT_EQ(answer({{"output", {path("a")}}, {"stats", {path("b")}}}), "");
    EXPECT_THAT(answer({{"output", {path("a")}}, {"stats", {path("x/../a")}}}),
                AllOf(HasSubstr("usage: "), HasSubstr("--output and --stats name the same file")));
    folder_.write("a", "");
    EXPECT_EQ(answer({{"output", {path("a")}}, {"stats", {path("b")}}}), "");
    fs::create_hard_link(path("a"), path("hard"));
    fs::create_symlink(path("a"), path("soft"));
    EXPECT_THAT(answer({{"output", {path("a")}}, {"token-ids", {path("hard")}}}), HasSubstr("usage: "));
    EXPECT_THAT(answer({{"log-file", {path("soft")}}, {"token-ids", {path("a")}}}), HasSubstr("usage: "));
}

TEST_F(OutputFiles, WhatIsReadIsNotWritten) {
    folder_.write("corpus", "");
    EXPECT_THAT(answer({{"corpus", {path("corpus")}}, {"stats", {path("./corpus")}}}),
                AllOf(HasSubstr("usage: "), HasSubstr("--corpus and --stats name the same file")));
    EXPECT_EQ(answer({{"corpus", {path("corpus")}}, {"stats", {path("other")}}}), "");
    // The draft model's files are a model's too.
    folder_.write("small.gguf", "GGUF");
    EXPECT_THAT(answer({{"draft-model", {path("small.gguf")}}, {"output", {path("small.gguf")}}}),
                HasSubstr("a file of the model"));
}

TEST_F(OutputFiles, APromptIsNotWritten) {
    folder_.write("prompt", "Once");
    EXPECT_THAT(answer({{"prompt-file", {path("prompt")}}, {"output", {path("prompt")}}}),
                AllOf(HasSubstr("usage: "), HasSubstr("--prompt-file and --output name the same file")));
    folder_.write("config.toml", "");
    EXPECT_THAT(answer({{"config", {path("config.toml")}}, {"log-file", {path("config.toml")}}}),
                HasSubstr("--config and --log-file name the same file"));
    EXPECT_EQ(answer({{"prompt-file", {"-"}}, {"output", {"-"}}}), "");
}

// Every option that names a file to read says so, in every command.
TEST_F(OutputFiles, AllOptionsThatNameAFileHaveARole) {
    const auto names_a_file = [](const OptionSpec& option) { return option.value == "F" || option.value == "FILE..."; };
    for (const CommandSpec& command : {bench_command(), generate_command(), inspect_command(), perplexity_command(),
                                       plan_command(), tables_command(), tokenize_command()})
        for (const OptionSpec& option : command.options)
            EXPECT_FALSE(names_a_file(option) && option.role == OptionRole::Value)
                << command.name << " --" << option.name;
    for (const OptionSpec& option : common_options())
        EXPECT_FALSE(names_a_file(option) && option.role == OptionRole::Value) << option.name;
}

TEST_F(OutputFiles, OneMoreIsCheckedInTheMiddleOfARun) {
    folder_.write("model/config.json", "{}");
    folder_.write("form", "");
    const OptionValues values{{"model", {path("model")}}, {"template", {path("form")}}, {"stats", {path("stats")}}};
    EXPECT_EQ(answer(values, path("chat")), "");
    EXPECT_THAT(answer(values, path("model/config.json")),
                AllOf(HasSubstr("request: /save"), HasSubstr("a file of the model")));
    EXPECT_THAT(answer(values, path("form")), HasSubstr("usage: --template and /save name the same file"));
    EXPECT_THAT(answer(values, path("x/../stats")), HasSubstr("usage: --stats and /save name the same file"));
}

TEST_F(OutputFiles, DevicesMayBeShared) {
    EXPECT_EQ(answer({{"output", {"/dev/null"}}, {"stats", {"/dev/null"}}}), "");
    EXPECT_EQ(answer({{"output", {"-"}}, {"stats", {"-"}}}), "");
}

TEST_F(OutputFiles, ANameIsNeeded) {
    EXPECT_THAT(answer({{"token-ids", {"-"}}}), AllOf(HasSubstr("usage: --token-ids"), HasSubstr("stdout")));
    EXPECT_THAT(answer({{"log-file", {"-"}}}), HasSubstr("usage: --log-file"));
    EXPECT_THAT(answer({{"output", {""}}}), HasSubstr("usage: --output"));
}

TEST_F(OutputFiles, ADirectorysOwnFilesAreRefused) {
    for (const char* name : {"model/config.json", "model/model-00001-of-00002.safetensors", "model/tokenizer.model",
                             "model/tekken.json", "model/generation_config.json"}) {
        folder_.write(name, "{}");
        EXPECT_THAT(answer({{"model", {path("model")}}, {"output", {path(name)}}}),
                    AllOf(HasSubstr("request: --output"), HasSubstr("a file of the model")))
            << name;
    }
    fs::create_symlink(path("model/config.json"), path("link"));
    EXPECT_THAT(answer({{"model", {path("model/config.json")}}, {"log-file", {path("link")}}}), HasSubstr("request: "));
    // A part that the folder lacks would be read the next time.
    EXPECT_THAT(answer({{"model", {path("model")}}, {"stats", {path("model/tokenizer_config.json")}}}),
                AllOf(HasSubstr("request: --stats"), HasSubstr("the model would read this file")));
    // Other files may lie beside them.
    folder_.write("model/stats.json", "{}");
    EXPECT_EQ(answer({{"model", {path("model")}}, {"stats", {path("model/stats.json")}}}), "");
}

TEST_F(OutputFiles, EveryPartOfAGgufModelIsRefused) {
    folder_.write("m-00001-of-00002.gguf", "1");
    folder_.write("m-00002-of-00002.gguf", "2");
    folder_.write("other.gguf", "3");
    for (const char* name : {"m-00001-of-00002.gguf", "m-00002-of-00002.gguf"})
        EXPECT_THAT(answer({{"model", {path("m-00001-of-00002.gguf")}}, {"stats", {path(name)}}}),
                    HasSubstr("request: --stats"));
    EXPECT_EQ(answer({{"model", {path("m-00001-of-00002.gguf")}}, {"stats", {path("other.gguf")}}}), "");
}

}  // namespace
}  // namespace slipstream::tools
