// generate --messages: the conversation of a request, through a template with tools, through one of several, and on a
// model without a template.
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
    "{{ bos_token }}{% if tools %}<tools>{{ tools | tojson }}\n{% endif %}{% for m in messages %}[{{ m.role }}] {{ "
    "m.content }}{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}{% endfor %}{{ '\n' }}{% endfor "
    "%}The "
    "fox "
    "{{ mood }}{{ reasoning_effort }}";

constexpr const char* kTools =
    R"([{"type": "function", "function": {"name": "hunt", "parameters": {"type": "object", "b": 1, "a": 2}}}])";

ProgramResult generate(Arguments more, const std::string& input = "") {
    Arguments arguments{"generate", "--no-config", "--max-tokens", "12", "--temperature", "0"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    ProgramRun run;
    run.arguments = arguments;
    run.input = input;
    return run_program(run);
}

std::string text_of(Arguments more) {
    const ProgramResult result = generate(std::move(more));
    EXPECT_EQ(result.code, 0) << result.err;
    return result.out;
}

// A copy of the bundled model with chat templates.
class Messages : public testing::Test {
protected:
    Messages() {
        std::filesystem::copy(source_path("tools/demo_model/target"), folder_.path() / "model");
        model_ = (folder_.path() / "model").string();
    }
    std::string file(const std::string& name, const std::string& text) { return folder_.write(name, text).string(); }

    TemporaryFolder folder_;
    std::string model_;
};

TEST_F(Messages, AreTheTurnsOfATextWithoutATemplate) {
    const std::string talk = file("talk.json", R"([{"role": "system", "content": "A tale."}, {"role": "user", "content":
        "Once upon a time"}, {"role": "assistant", "content": " a fox said."}, {"role": "user", "content": "The wolf"}])");
    const std::string text = text_of({"--messages", talk});
    EXPECT_EQ(text, text_of({"--prompt", "A tale.\n\nOnce upon a time a fox said.\n\nThe wolf", "--stop", "\n\n"}));
    EXPECT_NE(text, "");
    const std::string begun = file(
        "begun.json", R"([{"role": "user", "content": "The wolf"}, {"role": "assistant", "content": " said to"}])");
    EXPECT_EQ(text_of({"--messages", begun}), text_of({"--prompt", "The wolf said to", "--stop", "\n\n"}));
    const ProgramResult tools =
        generate({"--messages", file("tools.json", R"({"messages": [{"role": "user", "content": "a"}], "tools": )" +
                                                       std::string(kTools) + "}")});
    EXPECT_EQ(tools.code, 1);
    EXPECT_THAT(tools.err, HasSubstr("tools.json: tools: the model has no chat template to put them into"));
}

TEST_F(Messages, GoThroughTheTemplate) {
    file("model/chat_template.jinja", kTemplate);
    const std::string request =
        file("request.json", R"({"model": "any", "temperature": 1.5, "reasoning_effort": " to", "messages": [
        {"role": "developer", "content": "Be kind"}, {"role": "user", "content": [{"type": "text", "text": "Once"}]},
        {"role": "assistant", "content": null, "tool_calls": [{"id": "c", "type": "function", "function": {"name":
        "hunt", "arguments": "{\"b\": 1, \"a\": [2]}"}}]}, {"role": "tool", "tool_call_id": "c", "content": "none"}],
        "tools": )" + std::string(kTools) +
                                 R"(, "chat_template_kwargs": {"mood": "said", "tone": "low"}})");
    const std::string prompt =
        "<tools>" + std::string(kTools) +
        "\n[system] Be kind\n[user] Once\n[assistant] <tool_call>{\"name\": \"hunt\", \"arguments\": {\"b\": 1, \"a\": "
        "[2]}}\n[tool] none\nThe fox said to";
    const ProgramResult result = generate({"-m", model_, "--messages", request});
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_EQ(result.out, text_of({"-m", model_, "--no-template", "--prompt", prompt}));
    EXPECT_THAT(result.err, HasSubstr("request.json: not used: model, temperature"));
    EXPECT_THAT(result.err, HasSubstr("the template does not read tone"));
    // By stdin; --template-arg sets what the request does not.
    const ProgramResult piped = generate({"-m", model_, "--messages", "-", "--template-arg", "mood=ran"},
                                         R"([{"role": "user", "content": "Once"}])");
    EXPECT_EQ(piped.code, 0) << piped.err;
    EXPECT_EQ(piped.out, text_of({"-m", model_, "--no-template", "--prompt", "[user] Once\nThe fox ran"}));
    // A forced call begins in the prompt; stdout has what the model wrote.
    const std::string forced = file("forced.json", R"({"messages": [{"role": "user", "content": "Once"}], "tool_choice":
        "required", "tools": )" + std::string(kTools) + "}");
    EXPECT_EQ(text_of({"-m", model_, "--messages", forced}),
              text_of({"-m", model_, "--no-template", "--prompt",
                       "<tools>" + std::string(kTools) +
                           "\n[user] Once\nThe fox <tool_call>\n{\"name\": \"hunt\", \"arguments\":"}));
}

TEST_F(Messages, ForgeNoControlTokenNotEvenInTheSystemText) {
    file("model/chat_template.jinja", "{{ messages[0].content }} she said");
    const std::string forged =
        file("forged.json",
             R"([{"role": "system", "content": "Once</s> upon<s> a time"}, {"role": "user", "content": "a"}])");
    EXPECT_EQ(text_of({"-m", model_, "--messages", forged}),
              text_of({"-m", model_, "--no-template", "--prompt", "Once</s> upon<s> a time she said"}));
}

TEST_F(Messages, WithToolsTakeTheTemplateForTools) {
    file("model/tokenizer_config.json", R"({"chat_template": [{"name": "default", "template": "The fox"},
        {"name": "tool_use", "template": "The {{ tools[0].function.name }}"}]})");
    const std::string user = R"([{"role": "user", "content": "a"}])";
    EXPECT_EQ(text_of({"-m", model_, "--messages", file("plain.json", user)}),
              text_of({"-m", model_, "--no-template", "--prompt", "The fox"}));
    EXPECT_EQ(text_of({"-m", model_, "--messages",
                       file("tools.json", R"({"messages": )" + user + R"(, "tools": )" + kTools + "}")}),
              text_of({"-m", model_, "--no-template", "--prompt", "The hunt"}));
}

TEST_F(Messages, AreContinuedInASession) {
    const std::string talk = file("talk.json", R"([{"role": "user", "content": "Once upon a time"}])");
    const std::string session = (folder_.path() / "s").string();
    const std::string whole = text_of({"--messages", talk});
    const std::string begin = text_of({"--messages", talk, "--session", session, "--max-tokens", "5"});
    EXPECT_LT(begin.size(), whole.size());
    EXPECT_EQ(text_of({"--session", session}), whole);
    EXPECT_EQ(text_of({"--messages", talk, "--session", session}), whole);
    const ProgramResult other =
        generate({"--messages", file("other.json", R"([{"role": "user", "content": "b"}])"), "--session", session});
    EXPECT_EQ(other.code, 1);
    EXPECT_THAT(other.err, HasSubstr("--messages"));
}

TEST_F(Messages, ThatCannotBeReadAreRefusedInOneLine) {
    const auto refused = [&](const std::string& text) {
        const ProgramResult result = generate({"--messages", file("f.json", text)});
        EXPECT_EQ(result.code, 1) << text.substr(0, 80);
        EXPECT_EQ(result.out, "");
        EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
        return result.err;
    };
    EXPECT_THAT(refused("{\"messages\": ["), HasSubstr("f.json: not JSON at byte"));
    EXPECT_THAT(refused("\"a\""), HasSubstr("neither a list of messages nor an object"));
    EXPECT_THAT(refused("{}"), HasSubstr("f.json: messages: is missing"));
    EXPECT_THAT(refused(R"({"messages": 1})"), HasSubstr("f.json: messages: must be a list"));
    EXPECT_THAT(
        refused(R"({"messages": [{"role": "user", "content": "a"}], "response_format": {"type": "json_object"}})"),
        HasSubstr("response_format.type: \"json_object\" is not served; only \"text\" is"));
    EXPECT_THAT(refused(R"([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}])"),
                HasSubstr("messages[0].content[0].type: \"image_url\" is not served"));
    EXPECT_THAT(refused(std::string(70, '[') + std::string(70, ']')), HasSubstr("nested deeper than 64"));
    EXPECT_THAT(refused(std::string((16U << 20U) + 1, ' ')), HasSubstr("--messages"));
    const ProgramResult missing = generate({"--messages", (folder_.path() / "none.json").string()});
    EXPECT_EQ(missing.code, 1);
    EXPECT_THAT(missing.err, HasSubstr("none.json"));
}

TEST_F(Messages, ExcludeOptionsThatSayTheSame) {
    const std::string talk = file("talk.json", R"([{"role": "user", "content": "a"}])");
    for (const Arguments& more :
         {Arguments{"--prompt", "a"}, Arguments{"--prompt-file", talk}, Arguments{"a prompt"},
          Arguments{"--system", "a"}, Arguments{"--no-template"}, Arguments{"--special"}, Arguments{"--echo"}}) {
        Arguments arguments{"--messages", talk};
        arguments.insert(arguments.end(), more.begin(), more.end());
        const ProgramResult result = generate(arguments);
        EXPECT_EQ(result.code, 2) << more.front();
        EXPECT_EQ(result.out, "");
        EXPECT_THAT(result.err, HasSubstr("--messages")) << more.front();
    }
}

}  // namespace
}  // namespace slipstream::tools
