// The interface of chat templates: inputs, arguments, errors with their place, and the choice of a template.
#include "runtime/text/chat/chat_template.h"

#include <gtest/gtest.h>

#include "runtime/formats/model_files.h"
#include "runtime/text/chat/builtin.h"
#include "runtime/text/chat/choose_template.h"
#include "tests/runtime/template_goldens.h"
#include "tests/support/error_text.h"
#include "tests/support/temp_folder.h"

namespace slipstream {
namespace {

TemplateInputs inputs_of_user(std::string_view text) {
    TemplateInputs inputs;
    inputs.messages = TemplateValue::list({chat_message("user", text)});
    inputs.now = stopped_clock();
    return inputs;
}

std::string rendered(const std::string& source, const TemplateInputs& inputs) {
    return ChatTemplate::parse(source, "test").render(inputs).bytes;
}

TEST(ChatTemplateInputs, WhatIsNotGivenIsNoneOrUndefined) {
    const TemplateInputs inputs = inputs_of_user("hi");
    EXPECT_EQ(
        rendered("{{ tools }} {{ documents }} {{ add_generation_prompt }} {{ bos_token is defined }} {{ messages }}",
                 inputs),
        "None None True False [{'role': 'user', 'content': 'hi'}]");
    TemplateInputs full = inputs;
    full.bos_token = "<s>";
    full.eos_token = "</s>";
    full.tools = parse_template_json(R"([{"b": 1, "a": 2}])", "tools");
    full.add_generation_prompt = false;
    EXPECT_EQ(rendered("{{ tools }}{{ add_generation_prompt }}{{ bos_token ~ eos_token }}", full),
              "[{'b': 1, 'a': 2}]False<s></s>");
}

TEST(ChatTemplateInputs, ArgumentsAreJsonOrTextAndHideWhatIsThere) {
    TemplateInputs inputs = inputs_of_user("hi");
    for (const char* argument : {"thinking=true", "effort=high", "date=2024-01-01", "list=[1, \"x\"]", "bos_token=<b>",
                                 "empty=", "formula=a=b", "range=5", "quoted=\"text\""})
        inputs.arguments.push_back(parse_template_argument(argument));
    inputs.bos_token = "<s>";
    EXPECT_EQ(rendered("{{ [thinking, effort, date, list, bos_token, empty, formula, range, quoted] }}", inputs),
              "[True, 'high', '2024-01-01', [1, 'x'], '<b>', '', 'a=b', 5, 'text']");
    EXPECT_EQ(error_text<RequestError>([] { static_cast<void>(parse_template_argument("novalue")); }),
              "template argument \"novalue\": write NAME=VALUE, the value as JSON or text");
    EXPECT_THROW(static_cast<void>(parse_template_argument("=1")), RequestError);
}

TEST(ChatTemplateInputs, IntegersBeyond64BitsComeThroughAsTheyAre) {
    TemplateInputs inputs = inputs_of_user("hi");
    inputs.tools = parse_template_json(
        R"([{"max": 18446744073709551615, "min": -99999999999999999999, "all": [9223372036854775807, 9223372036854775808]}])",
        "tools");
    EXPECT_EQ(rendered("{{ tools|tojson }}", inputs), R"([{"max": 18446744073709551615, "min": -99999999999999999999, )"
                                                      R"("all": [9223372036854775807, 9223372036854775808]}])");
    EXPECT_EQ(rendered("{% set t = tools[0] %}{{ t.max }} {{ t }} {{ t.max == t.max }} {{ t.max == t.min }} "
                       "{{ t.max is number and t.max is not string }} {{ 1 if t.max else 0 }}",
                       inputs),
              "18446744073709551615 {'max': 18446744073709551615, 'min': -99999999999999999999, "
              "'all': [9223372036854775807, 9223372036854775808]} True False True 1");
    EXPECT_EQ(error_text<TemplateError>([&] { static_cast<void>(rendered("{{ tools[0].max + 1 }}", inputs)); }),
              "test: line 1: unsupported operand type(s) for +: 'int beyond 64 bits' and 'int'");
}

TEST(ChatTemplateInputs, ReasoningGoesByTheNameThatTheTemplateReads) {
    TemplateInputs inputs;
    inputs.messages = parse_template_json(
        R"([{"role":"assistant","reasoning":"r"},{"role":"assistant","thinking":"t","content":"c"},
            {"role":"assistant","reasoning_content":"rc","thinking":"t"},{"role":"user","content":"u"}])",
        "messages");
    const auto of_each = [&](const std::string& shown) {
        return rendered("{% for m in messages %}" + shown + "|{% endfor %}", inputs);
    };
    EXPECT_EQ(of_each("{{ m.thinking }}"), "r|t|t||");
    EXPECT_EQ(of_each("{{ m['reasoning_content'] }}"), "r|t|rc||");
    EXPECT_EQ(of_each("{{ m.reasoning_content if 'reasoning_content' in m }}"), "r|t|rc||");
    EXPECT_EQ(of_each("{{ m.get('thinking') or '-' }}"), "r|t|t|-|");
    // A template that looks at several names tells them apart.
    EXPECT_EQ(of_each("{{ m.thinking }}/{{ m.reasoning_content }}"), "r/r|t/|t/rc|/|");
    EXPECT_EQ(of_each("{{ m.reasoning }}/{{ m['thinking'] }}"), "r/|/t|/t|/|");
    // One that looks at none sees the message as it is.
    EXPECT_EQ(of_each("{{ m.keys()|list|length }}"), "2|3|3|2|");
}

TEST(ChatTemplateInputs, MessagesMustBeAListOfObjects) {
    TemplateInputs inputs;
    EXPECT_EQ(error_text<TemplateError>([&] { static_cast<void>(rendered("x", inputs)); }),
              "test: the messages are not a list");
    inputs.messages = parse_template_json("[1]", "messages");
    EXPECT_EQ(error_text<TemplateError>([&] { static_cast<void>(rendered("x", inputs)); }),
              "test: a message is not an object with a role and a content");
}

TEST(ChatTemplate, SaysWhatItReads) {
    const ChatTemplate parsed = ChatTemplate::parse(
        "{% for m in messages %}{{ m.content }}{% if enable_thinking is defined %}{% endif %}{% endfor %}"
        "{% set mine = 1 %}{{ mine }}{% macro f(x) %}{{ x }}{{ in_macro }}{% endmacro %}",
        "test");
    EXPECT_TRUE(parsed.reads("messages"));
    EXPECT_TRUE(parsed.reads("enable_thinking"));
    EXPECT_TRUE(parsed.reads("in_macro"));
    EXPECT_FALSE(parsed.reads("tools"));
    EXPECT_FALSE(parsed.reads("mine"));
    EXPECT_FALSE(parsed.reads("x"));
    EXPECT_FALSE(parsed.reads("m"));
    // What only some branches set may come from the context.
    const ChatTemplate branches = ChatTemplate::parse(
        "{% if a %}{% set tools = a %}{% set always = 1 %}{% elif b %}{% set always = 2 %}{% else %}{% set always = 3 "
        "%}{% endif %}{{ tools }}{{ always }}",
        "test");
    EXPECT_TRUE(branches.reads("tools"));
    EXPECT_FALSE(branches.reads("always"));
}

TEST(ChatTemplate, ErrorsNameTemplateAndLineInOneLine) {
    EXPECT_EQ(error_text<TemplateError>([] { static_cast<void>(ChatTemplate::parse("a\n{% if %}", "my.jinja")); }),
              "my.jinja: line 2: expected an expression, got '%}'");
    const TemplateInputs inputs = inputs_of_user("hi");
    try {
        static_cast<void>(ChatTemplate::parse("\n\n{{ raise_exception('two\\nlines \\x1b[1m') }}", "T").render(inputs));
        FAIL() << "nothing thrown";
    } catch (const TemplateError& error) {
        EXPECT_EQ(error.message(), "two\nlines \x1b[1m");
        EXPECT_EQ(error.line(), 3);
        EXPECT_STREQ(error.what(), "T: line 3: two\\x0Alines \\x1B[1m");
    }
}

TEST(ChatTemplate, LinesAreThoseOfTheMacroThatFails) {
    const Rendering inside =
        rendering_of("{% macro m(x) %}\n{{ x.y }}\n{% endmacro %}\n\n{{ m(1) }}\n{{ m() }}", inputs_of_user(""));
    EXPECT_EQ(inside.line, 2);
    const Rendering after =
        rendering_of("{% macro m(x) %}\n{{ x }}\n{% endmacro %}\n\n{{ m(1) + 1 }}", inputs_of_user(""));
    EXPECT_EQ(after.line, 5);
    EXPECT_EQ(after.error, "can only concatenate str (not \"int\") to str");
}

TEST(ChatTemplate, BrokenUtf8PassesThrough) {
    EXPECT_EQ(rendered("{{ messages[0].content }}|{{ messages[0].content|length }}|{{ messages[0].content|tojson }}",
                       inputs_of_user("a\xff"
                                      "b")),
              "a\xff"
              "b|3|\"a\xff"
              "b\"");
}

TEST(ChatTemplate, TimeIsWrittenInEnglishAndBounded) {
    EXPECT_EQ(jinja::format_time("%d %b %Y, %A %H:%M:%S %j %-d %p%%", stopped_clock()),
              "14 Mar 2025, Friday 09:05:07 073 14 AM%");
    EXPECT_EQ(jinja::format_time("", stopped_clock()), "");
    EXPECT_THROW(static_cast<void>(jinja::format_time(std::string(300, 'x'), stopped_clock())), TemplateError);
    EXPECT_THROW(static_cast<void>(jinja::format_time("%100000d", stopped_clock())), TemplateError);
}

TEST(ChatTemplate, CanBeRenderedAgainAndMoved) {
    ChatTemplate first = ChatTemplate::parse(
        "{% set ns = namespace(n=0) %}{% set ns.n = ns.n + 1 %}{{ ns.n }}{{ messages[0].content }}", "t");
    EXPECT_EQ(first.render(inputs_of_user("a")).bytes, "1a");
    const ChatTemplate second = std::move(first);
    EXPECT_EQ(second.render(inputs_of_user("b")).bytes, "1b");
    EXPECT_EQ(second.name(), "t");
}

using Templates = std::vector<NamedChatTemplate>;

TEST(ChooseTemplate, TakesTheOneForTheUse) {
    const Templates source({{"default", "d"}, {"tool_use", "t"}, {"rag", "r"}});
    EXPECT_EQ(chat_template_of(source, ToolUse::NoTools)->source(), "d");
    EXPECT_EQ(chat_template_of(source, ToolUse::Tools)->source(), "t");
    EXPECT_EQ(chat_template_of(source, ToolUse::Tools, "rag")->source(), "r");
    EXPECT_EQ(chat_template_of(source, ToolUse::Tools, "rag")->name(), "the model's chat template \"rag\"");
    EXPECT_EQ(error_text<RequestError>([&] { static_cast<void>(chat_template_of(source, ToolUse::NoTools, "x")); }),
              "the model has no chat template called \"x\"; it has: default, tool_use, rag");
    EXPECT_EQ(chat_template_of(Templates({{"default", "d"}}), ToolUse::Tools)->source(), "d");
    EXPECT_EQ(chat_template_of(Templates({{"only", "o"}}), ToolUse::NoTools)->source(), "o");
    EXPECT_THROW(static_cast<void>(chat_template_of(Templates({{"a", "1"}, {"b", "2"}}), ToolUse::NoTools)),
                 RequestError);
    EXPECT_FALSE(chat_template_of(Templates(), ToolUse::Tools).has_value());
    EXPECT_EQ(error_text<TemplateError>([] {
                  static_cast<void>(chat_template_of(Templates({{"default", "{{"}}), ToolUse::NoTools));
              }),
              "the model's chat template: line 1: expected an expression, got the end of the template");
}

TEST(ChooseTemplate, FamiliesWriteTheTurnsOfTheirModels) {
    TemplateInputs inputs;
    inputs.messages = parse_template_json(
        R"([{"role": "system", "content": "S"}, {"role": "user", "content": "U"},
            {"role": "assistant", "content": "A"}, {"role": "user", "content": "V"}])",
        "messages");
    inputs.bos_token = "<s>";
    inputs.eos_token = "</s>";
    const auto prompt = [&](std::string_view family) {
        return rendered(std::string(find_template_family(family)->source), inputs);
    };
    EXPECT_EQ(prompt("phi-4"),
              "<|im_start|>system<|im_sep|>S<|im_end|><|im_start|>user<|im_sep|>U<|im_end|><|im_start|>assistant"
              "<|im_sep|>A<|im_end|><|im_start|>user<|im_sep|>V<|im_end|><|im_start|>assistant<|im_sep|>");
    EXPECT_EQ(prompt("phi-4-mini"),
              "<|system|>S<|end|><|user|>U<|end|><|assistant|>A<|end|><|user|>V<|end|><|assistant|>");
    EXPECT_EQ(prompt("mistral-v7"), "<s>[SYSTEM_PROMPT]S[/SYSTEM_PROMPT][INST]U[/INST]A</s>[INST]V[/INST]");
    EXPECT_EQ(prompt("gemma-4"),
              "<s><|turn>system\nS<turn|>\n<|turn>user\nU<turn|>\n<|turn>model\nA<turn|>\n<|turn>user\nV<turn|>\n"
              "<|turn>model\n<|channel>thought\n<channel|>");
    EXPECT_EQ(prompt("muse"),
              "<s><|start|>system<|message|>S\n\nReasoning strength: high.\n\n# Valid recipients: \"self\", "
              "\"user\".<|eot|><|start|>user<|message|>U<|eot|><|start|>assistant to=user<|message|>A<|eot|>"
              "<|start|>user<|message|>V<|eot|><|start|>assistant");
    inputs.arguments = {{"enable_thinking", TemplateValue(true)}};
    EXPECT_TRUE(prompt("gemma-4").starts_with("<s><|turn>system\n<|think|>S<turn|>\n"));
    EXPECT_TRUE(prompt("gemma-4").ends_with("<|turn>model\n"));
}

TEST(ChooseTemplate, GuessesAFamilyBySpecialTokensThenByName) {
    const auto guess = [](std::vector<std::string_view> tokens, std::string_view name) {
        const TemplateFamily* family = guess_template_family(
            [&tokens](std::string_view token) {
                return std::find(tokens.begin(), tokens.end(), token) != tokens.end();
            },
            name);
        return family == nullptr ? std::string_view("nothing") : family->name;
    };
    EXPECT_EQ(guess({"<|im_start|>", "<|im_end|>", "<s>"}, "vicuna"), "chatml");
    EXPECT_EQ(guess({"<|im_start|>"}, ""), "nothing");
    EXPECT_EQ(guess({"<|start_header_id|>", "<|eot_id|>"}, ""), "llama-3");
    EXPECT_EQ(guess({"<|user|>", "<|assistant|>", "<|end|>"}, ""), "phi-3");
    EXPECT_EQ(guess({"<|user|>", "<|assistant|>", "<|end|>", "<|tool_response|>"}, ""), "phi-4-mini");
    EXPECT_EQ(guess({"<|im_start|>", "<|im_sep|>", "<|im_end|>"}, ""), "phi-4");
    EXPECT_EQ(guess({"<|turn>", "<turn|>"}, ""), "gemma-4");
    EXPECT_EQ(guess({"<|start|>", "<|message|>", "<|eom|>", "<|eot|>"}, ""), "muse");
    EXPECT_EQ(guess({"<|start|>", "<|message|>", "<|channel|>", "<|end|>"}, ""), "nothing");  // gpt-oss
    EXPECT_EQ(guess({"[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"}, ""), "mistral-v7");
    EXPECT_EQ(guess({"<|user|>", "<|assistant|>"}, ""), "zephyr");
    EXPECT_EQ(guess({"[INST]", "[/INST]"}, ""), "mistral");
    EXPECT_EQ(guess({"<start_of_turn>", "<end_of_turn>"}, ""), "gemma");
    EXPECT_EQ(guess({}, "Llama_2 7B chat"), "llama-2");
    EXPECT_EQ(guess({}, "Llama_2 7B"), "nothing");  // never taught to talk
    EXPECT_EQ(guess({}, "Mixtral-8x7B-Instruct"), "mistral-v1");
    EXPECT_EQ(guess({}, "TinyLlama 1.1B Chat"), "zephyr");
    EXPECT_EQ(guess({}, "lmsys/vicuna-7b-v1.5"), "vicuna");
    EXPECT_EQ(guess({"<｜User｜>", "<｜Assistant｜>"}, ""), "deepseek");
    EXPECT_EQ(guess({}, "stories260K"), "nothing");
    EXPECT_EQ(guess({}, "my-Alpaca"), "plain");
    EXPECT_EQ(find_template_family("chatml")->turn_end, "<|im_end|>");
    EXPECT_EQ(find_template_family("nope"), nullptr);
}

}  // namespace
}  // namespace slipstream
