// bench with chat templates: what generate reads is what it measures.
#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/tools/run_program.h"
#include "tests/tools/temporary_folder.h"

namespace slipstream::tools {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;
using Arguments = std::vector<std::string>;

// Each turn on a line, and an answer is told without the space in front of it.
constexpr const char* kTemplate =
    "{% for m in messages %}[{{ m.role }}: {{ m.content | trim }}]\n{% endfor %}The fox said";

// The bundled model with a template of its own.
class BenchTemplate : public testing::Test {
protected:
    BenchTemplate() {
        std::filesystem::copy(source_path("tools/demo_model/target"), folder_.path() / "model");
        folder_.write("model/chat_template.jinja", kTemplate);
    }
    ProgramResult bench(const Arguments& more) const {
        Arguments arguments{"bench", "--no-config", "--threads", "1", "-m", (folder_.path() / "model").string()};
        arguments.insert(arguments.end(), more.begin(), more.end());
        return run_program(arguments);
    }
    json run_of(Arguments more) {
        more.insert(more.end(), {"--json", "--repeat", "1"});
        const ProgramResult result = bench(more);
        EXPECT_EQ(result.code, 0) << result.err;
        told_ = result.err;
        const json document = json::parse(result.out, nullptr, false);
        return document.is_discarded() ? json::object() : document["runs"][0];
    }
    std::string refused(const Arguments& more) const {
        const ProgramResult result = bench(more);
        EXPECT_EQ(result.code, 2) << result.err;
        return result.err;
    }
    // How many tokens generate reads of this prompt.
    std::int64_t generate_reads(const Arguments& more) const {
        Arguments arguments{"generate", "--no-config", "-n", "1", "-m", (folder_.path() / "model").string()};
        arguments.insert(arguments.end(), more.begin(), more.end());
        std::string text;
        return run_with_statistics(arguments, text)["prompt_tokens"];
    }
    TemporaryFolder folder_;
    std::string file_ = folder_.write("question", "Where is the wolf?").string();
    std::string told_;
};

TEST_F(BenchTemplate, APromptIsWhatGenerateReads) {
    const json run = run_of({"-p", "Where is the wolf?", "-n", "3"});
    EXPECT_EQ(run["template"], "the model's chat template");
    EXPECT_EQ(run["prompt_tokens"], generate_reads({"-p", "Where is the wolf?"}));
    EXPECT_THAT(told_, HasSubstr("the prompt goes through the model's chat template (--no-template: raw text)"));
    EXPECT_EQ(run_of({"-p", "Where?", "-n", "3", "--system", "Be kind"})["prompt_tokens"],
              generate_reads({"-p", "Where?", "--system", "Be kind"}));
    EXPECT_EQ(run_of({"-p", "Where?", "-n", "3", "--template", "vicuna"})["prompt_tokens"],
              generate_reads({"-p", "Where?", "--template", "vicuna"}));
    EXPECT_EQ(run_of({"-f", file_, "-n", "3"})["prompt_tokens"], generate_reads({"-f", file_}));
    EXPECT_THAT(bench({"-p", "Where?", "-n", "3"}).out, HasSubstr("(text through the model's chat template)"));
}

TEST_F(BenchTemplate, DecodingFollowsAPromptAsItIsAndPrefillHasItsOwnText) {
    for (const Arguments& more : {Arguments{"-p", "Where is the wolf?", "--no-template"},
                                  Arguments{"-p", "Where is the wolf?"}, Arguments{"-f", file_}}) {
        Arguments arguments = more;
        arguments.insert(arguments.end(), {"-n", "3"});
        const json usual = run_of(arguments);
        EXPECT_EQ(usual["prompt_tokens"], generate_reads(more));
        EXPECT_EQ(usual["phases"][0]["tokens"], 512);
        arguments.insert(arguments.end(), {"--prompt-tokens", "40"});
        const json run = run_of(arguments);
        EXPECT_EQ(run["template"], usual["template"]);
        EXPECT_EQ(run["prompt_tokens"], usual["prompt_tokens"]);
        EXPECT_EQ(run["phases"][0]["phase"], "prefill");
        EXPECT_EQ(run["phases"][0]["tokens"], 40);
        EXPECT_EQ(run["phases"][0]["runs"], 1);
    }
    // What is decoded is what generate writes.
    std::string text;
    const json generated = run_with_statistics(
        {"generate", "--no-config", "-m", (folder_.path() / "model").string(), "-f", file_, "--temperature", "0",
         "--draft", "context", "-n", "40", "--ignore-eos", "--tables", "off", "--budget", "4"},
        text);
    const json run = run_of({"-f", file_, "-n", "39", "--draft", "context", "--budget", "4"});
    const json& drafted = run["drafts"][1];
    EXPECT_EQ(drafted["texts_equal"], 1);
    // The pass of the prompt carries draft tokens in generate, none here.
    EXPECT_NEAR(drafted["passes"].get<double>(), generated["passes"].get<double>(), 1.0);
    EXPECT_THAT(bench({"-p", "Where?", "-n", "3", "--repeat", "1"}).out, HasSubstr("prefill of the built-in text"));
    const ProgramResult small = bench({"-p", "Where?", "-n", "3", "--ctx", "64", "--prompt-tokens", "64"});
    EXPECT_EQ(small.code, 1);
    EXPECT_THAT(small.err, HasSubstr("--prompt-tokens 64 do not fit into a context of 64"));
}

TEST_F(BenchTemplate, TheBuiltInTextStaysRawUnlessATemplateIsRequested) {
    const json raw = run_of({"-n", "3", "--prompt-tokens", "40"});
    EXPECT_TRUE(raw["template"].is_null());
    EXPECT_EQ(raw["prompt_tokens"], 40);
    EXPECT_EQ(raw["phases"][0]["tokens"], 40);
    EXPECT_THAT(told_, Not(HasSubstr("template")));
    // The built-in text goes through a template that is asked for.
    const json run = run_of({"-n", "3", "--template", "chatml"});
    EXPECT_EQ(run["template"], "the chatml template");
    EXPECT_GT(run["prompt_tokens"], 500);
}

TEST_F(BenchTemplate, TurnsOfAFileAreAConversation) {
    const std::string file =
        folder_.write("p.jsonl", R"({"turns": ["Where is the wolf?", "And then?", "Who?"]})").string();
    const json raw = run_of({"--prompts", file, "-n", "6", "--no-template"});
    EXPECT_TRUE(raw["template"].is_null());
    const json run = run_of({"--prompts", file, "-n", "6", "--draft", "context,suffix"});
    EXPECT_EQ(run["template"], "the model's chat template");
    EXPECT_EQ(run["turns"], 3);
    // The first prompt is generate's; later ones read what is new to the cache.
    const std::int64_t first = generate_reads({"-p", "Where is the wolf?"});
    const std::int64_t read = run["phases"][0]["tokens"];
    EXPECT_GT(read, raw["phases"][0]["tokens"]);
    EXPECT_GT(read, first);
    // KV of earlier turns is kept: fewer than all prompts have, even without the answers in them.
    EXPECT_LT(read, first + generate_reads({"-p", "Where is the wolf?]\n[user: And then?"}) +
                        generate_reads({"-p", "Where is the wolf?]\n[user: And then?]\n[user: Who?"}));
    // The same texts with guesses.
    ASSERT_EQ(run["drafts"].size(), 2U);
    EXPECT_EQ(run["drafts"][1]["texts_equal"], 1) << run["drafts"][1];
    EXPECT_THAT(bench({"--prompts", file, "-n", "6"}).out, HasSubstr("in all through the model's chat template"));
}

TEST_F(BenchTemplate, OptionsThatCannotActAreMistakes) {
    EXPECT_THAT(refused({"--template", "chatml", "--prompt-tokens", "9"}), HasSubstr("--prompt-tokens"));
    EXPECT_THAT(refused({"--passes", "1", "--template", "chatml"}), HasSubstr("without --passes"));
    EXPECT_THAT(refused({"-p", "x", "-f", "x"}), HasSubstr("--file"));
    EXPECT_THAT(refused({"--session", "s", "--template", "chatml"}), HasSubstr("which has its own text"));
    EXPECT_THAT(refused({"-p", "x", "--no-template", "--system", "x"}), HasSubstr("--no-template leaves"));
    EXPECT_THAT(refused({"-p", "x", "--template-arg", "nobody=1"}), HasSubstr("does not read nobody"));
}

}  // namespace
}  // namespace slipstream::tools
