// generate with chat templates: the model's own, a named one, and none.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tools/run_program.h"
#include "tests/tools/temporary_folder.h"

namespace slipstream::tools {
namespace {

using testing::HasSubstr;
using testing::Not;
using Arguments = std::vector<std::string>;

constexpr const char* kTemplate =
    "{{ bos_token }}{{ lead }}{% for m in messages %}[{{ m.role }}: {{ m.content }}]\n{% endfor %}"
    "{% if add_generation_prompt %}The fox said{% endif %}";

ProgramResult generate(Arguments more) {
    Arguments arguments{"generate", "--no-config", "--max-tokens", "12", "--temperature", "0"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_program(arguments);
}

std::string text_of(Arguments more) {
    const ProgramResult result = generate(std::move(more));
    EXPECT_EQ(result.code, 0) << result.err;
    return result.out;
}

TEST(Template, OfAFileIsApplied) {
    const TemporaryFolder folder;
    const std::string file = folder.write("t.jinja", kTemplate).string();
    const std::string raw = text_of({"--prompt", "Hm. [system: Be kind][user: Once]The fox said"});
    // trim_blocks takes the newline behind the tag, and the one behind the bracket is not behind a tag.
    const std::string with_newlines = text_of({"--prompt", "Hm. [system: Be kind]\n[user: Once]\nThe fox said"});
    const ProgramResult result =
        generate({"--prompt", "Once", "--template", file, "--template-arg", "lead=Hm. ", "--system", "Be kind"});
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_EQ(result.out, with_newlines);
    EXPECT_NE(result.out, raw);
    EXPECT_THAT(result.err, HasSubstr("the prompt goes through " + file));
    // An echo is the prompt as it was given.
    EXPECT_THAT(text_of({"--prompt", "Once", "--template", file, "--echo"}), testing::StartsWith("Once"));
}

TEST(Template, OfTheModelIsApplied) {
    const TemporaryFolder folder;
    std::filesystem::copy(source_path("tools/demo_model/target"), folder.path() / "model");
    folder.write("model/chat_template.jinja", kTemplate);
    const std::string model = (folder.path() / "model").string();
    const ProgramResult applied = generate({"-m", model, "--prompt", "Once"});
    EXPECT_EQ(applied.out, text_of({"--prompt", "[user: Once]\nThe fox said"}));
    EXPECT_THAT(applied.err, HasSubstr("the prompt goes through the model's chat template"));
    const ProgramResult raw = generate({"-m", model, "--prompt", "Once", "--no-template"});
    EXPECT_EQ(raw.out, text_of({"--prompt", "Once"}));
    EXPECT_THAT(raw.err, Not(HasSubstr("template")));
    // A template that is none is no reason for a wrong prompt.
    folder.write("model/chat_template.jinja", "{{ bos_token }}\n{% if %}");
    const ProgramResult broken = generate({"-m", model, "--prompt", "Once"});
    EXPECT_EQ(broken.code, 1);
    EXPECT_EQ(broken.out, "");
    EXPECT_THAT(broken.err, HasSubstr("line 2"));
    EXPECT_THAT(broken.err, HasSubstr("--no-template"));
    folder.write("model/chat_template.jinja", "{{ raise_exception('only poems here') }}");
    const ProgramResult refusing = generate({"-m", model, "--prompt", "Once"});
    EXPECT_EQ(refusing.code, 1);
    EXPECT_THAT(refusing.err, HasSubstr("only poems here"));
}

TEST(Template, OfAFamilyIsNamed) {
    EXPECT_EQ(text_of({"--prompt", " Once ", "--template", "vicuna", "--system", "Hi."}),
              text_of({"--prompt", "Hi. USER: Once ASSISTANT:"}));
    EXPECT_EQ(text_of({"--prompt", "Once", "--template", "llama-2", "-sys", "Hi."}),
              text_of({"--prompt", "[INST] <<SYS>>\nHi.\n<</SYS>>\n\nOnce [/INST]"}));
    const ProgramResult unknown = generate({"--prompt", "Once", "--template", "nobodys"});
    EXPECT_EQ(unknown.code, 1);
    EXPECT_THAT(unknown.err, HasSubstr("chatml, llama-3, gemma"));
}

TEST(Template, OfSeveralThatTheModelBringsTheNameChooses) {
    const TemporaryFolder folder;
    std::filesystem::copy(source_path("tools/demo_model/target"), folder.path() / "model");
    folder.write("model/tokenizer_config.json",
                 R"({"chat_template": [{"name": "default", "template": "The fox {{ messages[0].content }}"},
                                       {"name": "tool_use", "template": "The {{ tools[0] }} {{ messages[0].content }}"},
                                       {"name": "rag", "template": "The owl {{ messages[0].content }}"}]})");
    const std::string model = (folder.path() / "model").string();
    EXPECT_EQ(text_of({"-m", model, "--prompt", "said"}), text_of({"--prompt", "The fox said"}));
    const ProgramResult named = generate({"-m", model, "--prompt", "said", "--template", "rag"});
    EXPECT_EQ(named.out, text_of({"--prompt", "The owl said"}));
    EXPECT_THAT(named.err, HasSubstr("the prompt goes through the model's chat template \"rag\""));
    EXPECT_EQ(text_of({"-m", model, "--prompt", "said", "--template-arg", "tools=[\"wolf\"]"}),
              text_of({"--prompt", "The wolf said"}));
    const ProgramResult unknown = generate({"-m", model, "--prompt", "said", "--template", "nobodys"});
    EXPECT_EQ(unknown.code, 1);
    EXPECT_THAT(unknown.err, HasSubstr("the model has only default, tool_use, rag"));
}

TEST(Template, WhatIsSaidForgesNoControlToken) {
    const TemporaryFolder folder;
    const std::string file = folder.write("t.jinja", "{{ messages[0].content }} she said").string();
    // The two spellings would be tokens to one who parsed the whole prompt.
    const std::string said = "Once</s> upon<s> a time";
    EXPECT_EQ(text_of({"--prompt", said, "--template", file}), text_of({"--prompt", said + " she said"}));
}

TEST(Template, OptionsThatCannotActAreMistakes) {
    for (const Arguments& more :
         {Arguments{"--system", "x"}, Arguments{"--template-arg", "a=1"},
          Arguments{"--template", "chatml", "--no-template"}, Arguments{"--no-template", "--system", "x"},
          Arguments{"--template", ""}, Arguments{"--template", "chatml", "--template-arg", "noequals"},
          Arguments{"--template", "chatml", "--template-arg", "messages=[]"},
          Arguments{"--template", "chatml", "--template-arg", "enable_thinkin=true"}}) {
        Arguments arguments{"--prompt", "Once"};
        arguments.insert(arguments.end(), more.begin(), more.end());
        const ProgramResult result = generate(arguments);
        EXPECT_EQ(result.code, 2) << more.back() << result.err;
        EXPECT_EQ(result.out, "");
    }
}

}  // namespace
}  // namespace slipstream::tools
