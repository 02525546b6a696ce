// Conversations of requests: the rules by which they become values for a template, what is refused, and, with published
// templates, that a forced call begins as the template writes calls, and that the reader reads what the template
// writes.
#include "runtime/text/request/conversation.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/text/request/request_json.h"
#include "runtime/text/tokenizer/sentencepiece_tokenizer.h"

namespace slipstream {
namespace {

using testing::HasSubstr;

const Tokenizer& tokenizer() {
    static const SentencePieceTokenizer kTokenizer = [] {
        SentencePieceModel model;
        model.unk_id = 0;
        model.bos_id = 1;
        model.eos_id = 2;
        model.pieces = {
            {"<unk>", 0, TokenKind::Unknown}, {"<s>", 0, TokenKind::Control}, {"</s>", 0, TokenKind::Control}};
        for (int byte = 0; byte < 256; ++byte)
            model.pieces.push_back({fmt::format("<0x{:02X}>", byte), 0, TokenKind::Byte});
        return SentencePieceTokenizer(std::move(model));
    }();
    return kTokenizer;
}

PromptTemplate template_of(std::string_view source) {
    return {ChatTemplate::parse(std::string(source), "the template"), {}, tokenizer()};
}

// A request as JSON; texts between ' instead of ".
RequestedConversation request(std::string json) {
    for (char& c : json)
        if (c == '\'') c = '"';
    const TemplateValue value = parse_request_json(json, "test");
    RequestedConversation made;
    for (const auto& [key, item] : value.dict().items()) {
        if (key.view() == "messages") made.messages = item;
        if (key.view() == "tools") made.tools = item;
        if (key.view() == "tool_choice") made.tool_choice = item;
        if (key.view() == "chat_template_kwargs") made.template_arguments = item;
        if (key.view() == "reasoning_effort") made.reasoning_effort = item;
        if (key.view() == "response_format") made.response_format = item;
    }
    return made;
}

std::string messages(const std::string& json) {
    return fmt::format("{{'messages': [{}]}}", json);
}

ConversationPrompt rendered(const std::string& json, const PromptTemplate* form) {
    return render_conversation(form, make_conversation(request(json), form));
}

// The messages as the template sees them, with ' for ".
std::string seen(const std::string& messages_json, std::string_view marks = "") {
    const PromptTemplate form = template_of(fmt::format("{{{{ messages | tojson }}}}{{# {} #}}", marks));
    std::string text = rendered(messages(messages_json), &form).text.bytes;
    for (char& c : text)
        if (c == '"') c = '\'';
    return text;
}

TEST(Conversation, ContentIsTextOrPartsOrAbsent) {
    EXPECT_EQ(seen("{'role': 'user', 'content': 'a'}"), "[{'role': 'user', 'content': 'a'}]");
    EXPECT_EQ(seen("{'role': 'user', 'content': [{'type': 'text', 'text': 'a'}, {'type': 'text', 'text': 'b'}]}"),
              "[{'role': 'user', 'content': 'a\\nb'}]");
    EXPECT_EQ(seen("{'role': 'user', 'content': 'a', 'name': 'Ann', 'cache_control': {}}"),
              "[{'role': 'user', 'content': 'a', 'name': 'Ann'}]");
    EXPECT_EQ(seen("{'role': 'user', 'content': 'a'}, {'role': 'assistant', 'content': null, 'tool_calls': []}, "
                   "{'role': 'user', 'content': 'b'}"),
              "[{'role': 'user', 'content': 'a'}, {'role': 'assistant', 'content': ''}, "
              "{'role': 'user', 'content': 'b'}]");
}

TEST(Conversation, SystemMessagesKeepTheirPlaceButNotTheirRole) {
    EXPECT_EQ(seen("{'role': 'developer', 'content': 's'}, {'role': 'system', 'content': 't'}, "
                   "{'role': 'user', 'content': 'a'}"),
              "[{'role': 'system', 'content': 's\\n\\nt'}, {'role': 'user', 'content': 'a'}]");
    EXPECT_EQ(seen("{'role': 'user', 'content': 'a'}, {'role': 'system', 'content': 's'}"),
              "[{'role': 'user', 'content': 'a\\n\\ns'}]");
    // After an answer it begins the next message of the user, or is one.
    const std::string talk = "{'role': 'user', 'content': 'a'}, {'role': 'assistant', 'content': 'b'}, ";
    EXPECT_EQ(seen(talk + "{'role': 'system', 'content': 's'}, {'role': 'user', 'content': 'c'}"),
              "[" + talk + "{'role': 'user', 'content': 's\\n\\nc'}]");
    EXPECT_EQ(seen(talk + "{'role': 'system', 'content': 's'}, {'role': 'system', 'content': 't'}"),
              "[" + talk + "{'role': 'user', 'content': 's\\n\\nt'}]");
    EXPECT_EQ(seen("{'role': 'user', 'content': 'a'}, {'role': 'system', 'content': ''}"),
              "[{'role': 'user', 'content': 'a'}]");
    // Between calls and results there is no message of the user.
    const std::string call =
        "{'role': 'user', 'content': 'a'}, {'role': 'assistant', 'content': '', 'tool_calls': [{'type': 'function', "
        "'function': {'name': 'f', 'arguments': {}}}]}, ";
    EXPECT_EQ(seen(call + "{'role': 'system', 'content': 's'}, {'role': 'tool', 'content': 'r'}, {'role': 'tool', "
                          "'content': 'q'}"),
              "[" + call + "{'role': 'tool', 'content': 'r\\n\\ns'}, {'role': 'tool', 'content': 'q'}]");
}

// The arguments of a call as a template writes them.
std::string written(const std::string& arguments, std::string_view expression) {
    const PromptTemplate form = template_of(fmt::format(
        "{{% for m in messages %}}{{% for c in m.tool_calls or [] %}}{}{{% endfor %}}{{% endfor %}}", expression));
    return rendered(messages("{'role': 'user', 'content': 'a'}, {'role': 'assistant', 'tool_calls': [{'function': "
                             "{'name': 'f', 'arguments': " +
                             arguments + "}}]}, {'role': 'tool', 'content': 'r'}"),
                    &form)
        .text.bytes;
}

TEST(Conversation, ArgumentsHaveTheFormThatTheTemplateWrites) {
    constexpr std::string_view kMembers =
        "{% for k, v in c.function.arguments | items %}<parameter={{ k }}>{{ v }}</parameter>{% endfor %}";
    EXPECT_EQ(written("{'x': 1}", kMembers), "<parameter=x>1</parameter>");
    EXPECT_EQ(written("null", kMembers), "");
    EXPECT_EQ(written("'null'", kMembers), "");
    EXPECT_EQ(written("'no JSON'", kMembers), "<parameter=arguments>no JSON</parameter>");
    EXPECT_EQ(written("'[5]'", kMembers), "<parameter=arguments>[5]</parameter>");
    constexpr std::string_view kText = "{{ 'f: ' + c.function.arguments }}";
    EXPECT_EQ(written("{'x': 1}", kText), "f: {\"x\": 1}");
    EXPECT_EQ(written("[1]", kText), "f: [1]");
    EXPECT_EQ(written("'no JSON'", kText), "f: no JSON");
    EXPECT_EQ(written("''", kText), "f: {}");
    // Most templates take both.
    constexpr std::string_view kJson = "{{ c.function.arguments | tojson }}";
    EXPECT_EQ(written("{'x': 1}", kJson), "{\"x\": 1}");
    EXPECT_EQ(written("'5'", kJson), "\"5\"");
    // A template that fails on any short conversation says nothing about the form.
    constexpr std::string_view kLong =
        "{% if messages[2].content != 'r' %}{{ raise_exception('short') }}{% endif %}{{ c.function.arguments }}";
    EXPECT_EQ(written("'no JSON'", kLong), "no JSON");
    EXPECT_EQ(written("{'x': 1}", kLong), "{'x': 1}");
    // The error of a template that takes neither is its own.
    EXPECT_THROW(static_cast<void>(written("{}", "{{ raise_exception('calls') }}")), TemplateError);
}

TEST(Conversation, ArgumentsOfAllCallsTogetherAreBounded) {
    std::string many = "{\\\"x\\\": [1";
    for (int i = 0; i < 400'000; ++i) many += ",1";
    many += "]}";
    std::string calls;
    for (int i = 0; i < 3; ++i)
        calls += fmt::format("{}{{'function': {{'name': 'f', 'arguments': '{}'}}}}", i == 0 ? "" : ", ", many);
    const std::string deep = "{\\\"x\\\": " + std::string(64, '[') + std::string(64, ']') + "}";
    calls += fmt::format(", {{'function': {{'name': 'f', 'arguments': '{}'}}}}", deep);
    const PromptTemplate form = template_of(
        "{% for c in messages[1].tool_calls %}{{ 'text ' if c.function.arguments is string else 'object ' }}{% endfor "
        "%}");
    EXPECT_EQ(rendered(messages("{'role': 'user', 'content': 'a'}, {'role': 'assistant', 'tool_calls': [" + calls +
                                "]}, {'role': 'tool', 'content': 'r'}"),
                       &form)
                  .text.bytes,
              "object object text text ");
}

TEST(Conversation, ReasoningEffortGoesToATemplateThatReadsIt) {
    const PromptTemplate form = template_of("{{ reasoning_effort }}"), plain = template_of("none");
    const std::string asked = "{'messages': [{'role': 'user', 'content': 'a'}], 'reasoning_effort': 'low'";
    const ConversationPrompt prompt = rendered(asked + "}", &form);
    EXPECT_EQ(prompt.text.bytes, "low");
    EXPECT_EQ(prompt.text.said.size(), 1U);
    EXPECT_EQ(rendered(asked + ", 'chat_template_kwargs': {'reasoning_effort': 'high'}}", &form).text.bytes, "high");
    EXPECT_EQ(rendered(asked + "}", &plain).text.bytes, "none");
    EXPECT_EQ(rendered(asked + "}", nullptr).text.bytes, "a");
}

TEST(Conversation, ArgumentsOfCallsAreParsedOrStayText) {
    const PromptTemplate form = template_of("{{ messages | tojson }}");
    RequestedConversation made;
    made.messages = parse_request_json(
        R"([{"role": "user", "content": "a"}, {"role": "assistant", "tool_calls": [
               {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{\"x\": 1.50}"}},
               {"id": "call_2", "function": {"name": "g", "arguments": "no JSON"}},
               {"function": {"name": "h", "arguments": " "}}]},
            {"role": "tool", "tool_call_id": "call_1", "content": "one"},
            {"role": "tool", "content": [{"type": "text", "text": "two"}]}])",
        "test");
    const std::string text = render_conversation(&form, make_conversation(made, &form)).text.bytes;
    EXPECT_THAT(text, HasSubstr(R"({"id": "call_1", "type": "function", "function": {"name": "f", "arguments": )"
                                R"({"x": 1.5}}})"));
    EXPECT_THAT(text, HasSubstr(R"({"name": "g", "arguments": "no JSON"})"));
    EXPECT_THAT(text, HasSubstr(R"({"name": "h", "arguments": {}})"));
    EXPECT_THAT(text, HasSubstr(R"({"role": "tool", "content": "one", "tool_call_id": "call_1"})"));
    EXPECT_THAT(text, HasSubstr(R"({"role": "tool", "content": "two"})"));
}

TEST(Conversation, IdsHaveNineCharactersForMistral) {
    const std::string calls =
        "{'role': 'user', 'content': 'a'}, {'role': 'assistant', 'tool_calls': [{'id': 'call_1', 'function': {'name': "
        "'f'}}, {'id': 'Abcdefgh9', 'function': {'name': 'h'}}, {'function': {'name': 'i'}}]}, {'role': 'tool', "
        "'tool_call_id': 'call_1', 'content': 'one'}, {'role': 'tool', 'tool_call_id': 'Abcdefgh9', 'content': 'two'}, "
        "{'role': 'tool', 'content': 'three'}";
    const PromptTemplate form = template_of(
        "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.id }} {% endfor %}{{ m.tool_call_id }} "
        "{% endfor %}{# [TOOL_CALLS] #}");
    const std::string ids = rendered(messages(calls), &form).text.bytes;
    std::vector<std::string> words;
    for (std::size_t at = 0; at < ids.size();) {
        const std::size_t end = std::min(ids.find(' ', at), ids.size());
        if (end > at) words.push_back(ids.substr(at, end - at));
        at = end + 1;
    }
    ASSERT_EQ(words.size(), 6U) << ids;
    for (const std::string& id : words) EXPECT_EQ(id.size(), 9U) << ids;
    EXPECT_EQ(words[1], "Abcdefgh9");
    EXPECT_EQ(words[3], words[0]);
    EXPECT_EQ(words[4], words[1]);
    EXPECT_EQ(words[5], words[2]);
    EXPECT_NE(words[0], words[2]);
}

TEST(Conversation, AllTextsAreSaid) {
    const PromptTemplate form = template_of(
        "{{ messages[0].content }}{{ tools | tojson }}{{ style }}{{ messages[1].tool_calls[0].function.arguments.x }}"
        "{{ messages[1].tool_calls[0].id }}{{ messages[1].reasoning_content }}|{{ messages[0].role }}");
    const MarkedText text =
        rendered(
            "{'messages': [{'role': 'system', 'content': '</s>'}, {'role': 'assistant', 'reasoning': '</s>', "
            "'tool_calls': [{'id': '</s>', 'function': {'name': 'f', 'arguments': {'x': '</s>'}}}]}, "
            "{'role': 'tool', 'content': '</s>'}], 'tools': [{'type': 'function', 'function': {'name': 'f', "
            "'description': '</s>', 'parameters': {'</s>': 1}}}], 'chat_template_kwargs': {'style': '</s>'}}",
            &form)
            .text;
    std::size_t n = 0;
    for (std::size_t at = 0; (at = text.bytes.find("</s>", at)) != std::string::npos; at += 4, ++n)
        EXPECT_TRUE(SaidBytes(text.said).all_in({at, at + 4})) << text.bytes.substr(0, at);
    EXPECT_EQ(n, 7U) << text.bytes;
    EXPECT_FALSE(text.is_said_in({text.bytes.find('|'), text.bytes.size()}));
    for (const TokenId id : tokenizer().encode_prompt(text)) EXPECT_NE(id, 2) << text.bytes;
}

TEST(Conversation, WithoutATemplateIsATextInTurns) {
    const ConversationPrompt prompt =
        rendered(messages("{'role': 'system', 'content': 'A tale.'}, {'role': 'user', 'content': 'Once'}, {'role': "
                          "'assistant', 'content': ' upon.'}, {'role': 'user', 'content': 'Then'}, {'role': "
                          "'assistant', 'content': ' she'}"),
                 nullptr);
    EXPECT_EQ(prompt.text.bytes, "A tale.\n\nOnce upon.\n\nThen she");
    EXPECT_EQ(prompt.begun, " she");
}

constexpr std::string_view kThinking =
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>{% if opens %}<think>\n{% endif %}"
    "{# <tool_call> </think> #}{# tools #}{% if tools %}{% endif %}";

TEST(Conversation, AnAnswerAtTheEndIsContinued) {
    const PromptTemplate form = template_of(kThinking);
    const auto begun = [&](const std::string& last, const std::string& more = "") {
        return rendered(
            fmt::format("{{'messages': [{{'role': 'user', 'content': 'a'}}, {{'role': 'assistant', {}}}]{}}}", last,
                        more),
            &form);
    };
    const std::string opens = ", 'chat_template_kwargs': {'opens': true}";
    EXPECT_EQ(begun("'content': 'It is '").text.bytes, "<user>a<assistant>It is ");
    EXPECT_EQ(begun("'content': 'It is '").begun, "It is ");
    EXPECT_EQ(begun("'content': 'It', 'reasoning_content': 'Hm'").begun, "<think>\nHm\n</think>\n\nIt");
    EXPECT_EQ(begun("'content': 'It'", opens).begun, "\n</think>\n\nIt");
    EXPECT_EQ(begun("'content': '', 'thinking': 'Hm'", opens).begun, "Hm\n</think>\n\n");
    EXPECT_EQ(begun("'content': ''", opens).begun, "");
    EXPECT_EQ(begun("'content': ''", opens).start, AnswerReader::Start::Thought);
    EXPECT_EQ(begun("'content': ''").start, AnswerReader::Start::Text);
}

TEST(Conversation, ACallIsForcedByItsBeginning) {
    const PromptTemplate form = template_of(kThinking);
    const auto begun = [&](const std::string& choice, const std::string& more = "") {
        return rendered(fmt::format("{{'messages': [{{'role': 'user', 'content': 'a'}}], 'tools': [{{'function': "
                                    "{{'name': 'f'}}}}{}], 'tool_choice': {}}}",
                                    more, choice),
                        &form)
            .begun;
    };
    const std::string other = ", {'function': {'name': 'g'}}";
    EXPECT_EQ(begun("'auto'"), "");
    EXPECT_EQ(begun("'none'"), "");
    EXPECT_EQ(begun("'required'"), "<tool_call>\n{\"name\": \"f\", \"arguments\":");  // there is only one
    EXPECT_EQ(begun("'required'", other), "<tool_call>\n{\"name\": \"");
    EXPECT_EQ(begun("{'type': 'function', 'function': {'name': 'g'}}", other),
              "<tool_call>\n{\"name\": \"g\", \"arguments\":");
    const RequestedConversation none = request(
        "{'messages': [{'role': 'user', 'content': 'a'}], 'tools': [{'function': {'name': 'f'}}], 'tool_choice': "
        "'none'}");
    EXPECT_TRUE(make_conversation(none, &form).tools.empty());
    EXPECT_EQ(make_conversation(none, &form).arguments.size(), 1U);
}

TEST(Conversation, ToolsAreATextOfTheSystemForPhi) {
    const PromptTemplate form = template_of(
        "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% if 'tools' in m %}<|tool|>{{ m['tools'] "
        "}}<|/tool|>{% endif %}{% endfor %}");
    EXPECT_EQ(rendered("{'messages': [{'role': 'user', 'content': 'a'}], 'tools': [{'type': 'function', 'function': "
                       "{'name': 'f', 'parameters': {}}}]}",
                       &form)
                  .text.bytes,
              "<|system|>You are a helpful assistant with some tools.<|tool|>[{\"name\": \"f\", \"parameters\": {}}]"
              "<|/tool|><|user|>a");
}

// A short template as published for SmolLM3: it takes functions, and writes the content alone of earlier answers.
TEST(Conversation, SmolLm3TakesFunctionsAndReadsItsCalls) {
    const PromptTemplate form = template_of(
        "{% if xml_tools %}{% for tool in xml_tools[:] %}{{ tool | string }}\n{% endfor %}as <tool_call>{% endif %}"
        "{% if python_tools %}{{ python_tools[0] }} in <code>{% endif %}{% for m in messages %}<|im_start|>"
        "{{ 'user' if m.role == 'tool' else m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}");
    const std::string tools = ", 'tools': [{'type': 'function', 'function': {'name': 'f', 'parameters': {}}}]";
    const std::string history =
        "{'messages': [{'role': 'user', 'content': 'a'}, {'role': 'assistant', 'content': 'I </tool_call>', "
        "'tool_calls': "
        "[{'id': 'c1', 'type': 'function', 'function': {'name': 'f', 'arguments': '{\\'x\\': \\'<tool_call>\\'}'}}, "
        "{'id': 'c2', 'type': 'function', 'function': {'name': 'f', 'arguments': 'no JSON'}}]}, {'role': 'tool', "
        "'tool_call_id': 'c1', 'content': '7'}]";
    const ConversationPrompt prompt = rendered(history + tools + "}", &form);
    const std::string calls =
        "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": \"<tool_call>\"}}\n</tool_call>\n"
        "<tool_call>\n{\"name\": \"f\", \"arguments\": \"no JSON\"}\n</tool_call>";
    EXPECT_EQ(prompt.text.bytes,
              "{'name': 'f', 'parameters': {}}\nas <tool_call><|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nI "
              "</tool_call>\n" +
                  calls + "<|im_end|>\n<|im_start|>user\n7<|im_end|>\n<|im_start|>assistant\n");
    // Marks of calls are template text, what client and model said is not.
    const std::size_t at = prompt.text.bytes.find(calls);
    const auto is_said = [&](std::string_view text, std::size_t from) {
        const std::size_t begin = prompt.text.bytes.find(text, from);
        return prompt.text.is_said_in({begin, begin + text.size()});
    };
    EXPECT_TRUE(is_said("</tool_call>", at - 20));
    EXPECT_FALSE(is_said("<tool_call>", at));
    EXPECT_TRUE(is_said("<tool_call>", at + 12));

    const Conversation conversation =
        make_conversation(request("{'messages': [{'role': 'user', 'content': 'a'}]" + tools + "}"), &form);
    AnswerReader reader(form.answer_form(), conversation.tools);
    EXPECT_EQ(reader.push("<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>").size(), 1U);
    EXPECT_EQ(reader.n_calls(), 1U);
    // Python code is content.
    AnswerReader of_code(form.answer_form(), conversation.tools);
    const std::string code = "<code>\nprint(f(x=1))\n</code>";
    std::vector<AnswerPiece> pieces = of_code.push(code);
    EXPECT_TRUE(of_code.finish().empty());
    ASSERT_EQ(pieces.size(), 1U);
    EXPECT_EQ(pieces[0].text, code);
    EXPECT_EQ(rendered("{'messages': [{'role': 'user', 'content': 'a'}], 'chat_template_kwargs': {'python_tools': "
                       "['def f(x): ...']}}",
                       &form)
                  .text.bytes,
              "def f(x): ... in <code><|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n");
}

TEST(Conversation, PhiReadsItsCalls) {
    const PromptTemplate form = template_of(
        "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% if 'tools' in m %}<|tool|>{{ m['tools'] "
        "}}<|/tool|>{% endif %}<|end|>{% endfor %}");
    const ConversationPrompt prompt = rendered(
        "{'messages': [{'role': 'user', 'content': 'a'}, {'role': 'assistant', 'content': null, 'tool_calls': "
        "[{'function': {'name': 'f', 'arguments': '{}'}}, {'function': {'name': 'g', 'arguments': '{}'}}]}]}",
        &form);
    const std::string answer =
        "<|tool_call|>[{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"g\", \"arguments\": "
        "{}}]<|/tool_call|>";
    EXPECT_EQ(prompt.text.bytes, "<|user|>a<|end|><|assistant|>" + answer + "<|end|>");
    AnswerReader reader(form.answer_form(), {{.name = "f"}, {.name = "g"}});
    EXPECT_EQ(reader.push(answer).size(), 2U);
}

// A short template in the harmony format. As published ones do, it reads the first call of a message alone, writes its
// text as a thought, names a result by the call before it, and needs a description of each tool.
constexpr std::string_view kHarmony =
    "{% set last = namespace(name='') %}{% for t in tools or [] %}{{ '# ' + t.function.description }}{{ "
    "t.function.name }}\n{% endfor %}{% for m in messages %}{% if m.role == 'assistant' and m.tool_calls %}"
    "{% if m.content and m.thinking %}{{ raise_exception('a content and a thought') }}{% endif %}"
    "{% if m.content or m.thinking %}<|start|>assistant<|channel|>analysis<|message|>{{ m.thinking or m.content }}"
    "<|end|>{% endif %}{% set call = m.tool_calls[0].function %}{% set last.name = call.name %}"
    "<|start|>assistant to=functions.{{ call.name }}<|channel|>commentary json<|message|>{{ call.arguments | tojson }}"
    "<|call|>{% elif m.role == 'assistant' %}<|start|>assistant<|channel|>final<|message|>{{ m.content }}<|end|>"
    "{% elif m.role == 'tool' %}<|start|>functions.{{ last.name }} to=assistant<|channel|>commentary<|message|>"
    "{{ m.content }}<|end|>{% else %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endif %}{% endfor %}"
    "<|start|>assistant";

// The pieces of an answer, as a client sends them back in a message: its fields, in JSON.
std::string sent_back(const std::vector<AnswerPiece>& pieces) {
    std::string thought, content, calls;
    for (const AnswerPiece& piece : pieces) {
        if (piece.kind == AnswerPiece::Kind::Thought) thought += piece.text;
        if (piece.kind == AnswerPiece::Kind::Content) content += piece.text;
        if (piece.kind != AnswerPiece::Kind::Call) continue;
        calls += fmt::format("{}{{'id': 'call_{}', 'function': {{'name': '{}', 'arguments': {}}}}}",
                             calls.empty() ? "" : ", ", piece.name, piece.name, piece.text);
    }
    return fmt::format("{{'role': 'assistant', 'reasoning_content': '{}', 'content': '{}', 'tool_calls': [{}]}}",
                       thought, content, calls);
}

// The answer of a model in the harmony format, after the prompt for `json`.
std::vector<AnswerPiece> harmony_answer(const std::string& json, const PromptTemplate& form, std::string_view answer) {
    const Conversation conversation = make_conversation(request(json), &form);
    const ConversationPrompt prompt = render_conversation(&form, conversation);
    AnswerReader reader(form.answer_form(), conversation.tools, prompt.start);
    reader.skip(prompt.begun);
    std::vector<AnswerPiece> pieces = reader.push(answer);
    for (AnswerPiece& piece : reader.finish()) pieces.push_back(std::move(piece));
    return pieces;
}

constexpr std::string_view kTwoTools =
    "'tools': [{'function': {'name': 'time', 'description': 'now'}}, {'function': {'name': 'weather', 'description': "
    "'soon'}}]";

TEST(Conversation, AHarmonyAnswerWithAThoughtAPreambleAndACallComesBack) {
    const PromptTemplate form = template_of(kHarmony);
    const std::string user = "{'role': 'user', 'content': 'Ulm?'}";
    const auto talk = [&](const std::string& more) {
        return fmt::format("{{'messages': [{}{}], {}}}", user, more, kTwoTools);
    };
    const std::vector<AnswerPiece> pieces = harmony_answer(
        talk(""), form,
        "<|channel|>analysis<|message|>Hm.<|start|>assistant<|channel|>commentary<|message|>I look.<|start|>assistant"
        "<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{\"city\": \"Ulm\"}");
    ASSERT_EQ(pieces.size(), 3U);
    EXPECT_EQ(pieces[0].text, "Hm.");
    EXPECT_EQ(pieces[1].text, "I look.");
    EXPECT_EQ(pieces[2].name, "weather");
    const std::string back =
        talk(", " + sent_back(pieces) + ", {'role': 'tool', 'tool_call_id': 'call_weather', 'content': '7'}");
    EXPECT_THAT(rendered(back, &form).text.bytes,
                testing::EndsWith(
                    "<|start|>assistant<|channel|>analysis<|message|>Hm.\n\nI look.<|end|><|start|>assistant "
                    "to=functions.weather<|channel|>commentary json<|message|>{\"city\": \"Ulm\"}<|call|><|start|>"
                    "functions.weather to=assistant<|channel|>commentary<|message|>7<|end|><|start|>assistant"));
    const std::vector<AnswerPiece> last = harmony_answer(back, form, "<|channel|>final<|message|>7 degr");
    ASSERT_EQ(last.size(), 1U);
    EXPECT_EQ(last[0].text, "7 degr");
}

// A short template in the form of Muse Glimmer's: its messages with calls have no text, and its tools need descriptions
// and schemas.
constexpr std::string_view kMuse =
    "{% for t in tools or [] %}{{ '# ' + t.function.description }}{{ t.function.name }}{{ t.function.parameters | "
    "tojson }}\n{% endfor %}{% for m in messages %}{% if m.role == 'assistant' %}{% if m.reasoning_content %}"
    "<|start|>assistant to=self<|message|>{{ m.reasoning_content }}<|eom|>{% endif %}{% if m.tool_calls %}"
    "{% for c in m.tool_calls %}<|start|>assistant to={{ c.function.name }}<|message|><atem:function_calls>\n"
    "<atem:invoke name=\"{{ c.function.name }}\">\n{% for k, v in c.function.arguments.items() %}"
    "<atem:parameter name=\"{{ k }}\">{{ v }}</atem:parameter>\n{% endfor %}</atem:invoke>\n</atem:function_calls>"
    "{{ '<|eot|>' if loop.last else '<|eom|>' }}{% endfor %}{% else %}<|start|>assistant to=user<|message|>"
    "{{ m.content }}{{ '<|eom|>' if m.end_turn is false else '<|eot|>' }}{% endif %}{% else %}"
    "<|start|>{{ m.role }}<|message|>{{ m.content }}<|eot|>{% endif %}{% endfor %}<|start|>assistant";

TEST(Conversation, AMuseAnswerWithAThoughtATextAndCallsComesBack) {
    const PromptTemplate form = template_of(kMuse);
    const auto talk = [&](const std::string& more) {
        return fmt::format(
            "{{'messages': [{{'role': 'user', 'content': 'Ulm?'}}{}], "
            "'tools': [{{'function': {{'name': 'time'}}}}, {{'function': {{'name': 'weather'}}}}]}}",
            more);
    };
    const std::string answer =
        " to=self<|message|>Hm.<|eom|><|start|>assistant to=user<|message|>I look.<|eom|><|start|>assistant to=weather"
        "<|message|><atem:function_calls>\n<atem:invoke name=\"weather\">\n<atem:parameter name=\"city\">Ulm"
        "</atem:parameter>\n</atem:invoke>\n</atem:function_calls><|eom|><|start|>assistant to=time<|message|>"
        "<atem:function_calls>\n<atem:invoke name=\"time\">\n</atem:invoke>\n</atem:function_calls>";
    const std::vector<AnswerPiece> pieces = harmony_answer(talk(""), form, answer);
    ASSERT_EQ(pieces.size(), 4U);
    EXPECT_EQ(pieces[0].text, "Hm.");
    EXPECT_EQ(pieces[1].text, "I look.");
    EXPECT_EQ(pieces[2].text, R"({"city": "Ulm"})");
    EXPECT_EQ(pieces[3].name, "time");
    const std::string prompt =
        rendered(talk(", " + sent_back(pieces) + ", {'role': 'tool', 'tool_call_id': 'call_time', 'content': '7'}"),
                 &form)
            .text.bytes;
    EXPECT_THAT(prompt, testing::StartsWith("# time{\"type\": \"object\", \"properties\": {}}\n# weather"));
    EXPECT_THAT(prompt, testing::EndsWith("<|start|>user<|message|>Ulm?<|eot|><|start|>assistant" + answer +
                                          "<|eot|><|start|>tool<|message|>7<|eot|><|start|>assistant"));
    // An answer that is continued, and one that must be a call.
    EXPECT_EQ(rendered(messages("{'role': 'user', 'content': 'a'}, {'role': 'assistant', 'reasoning_content': 'Hm.', "
                                "'content': '7 '}"),
                       &form)
                  .begun,
              " to=self<|message|>Hm.<|eom|><|start|>assistant to=user<|message|>7 ");
    EXPECT_EQ(rendered("{'messages': [{'role': 'user', 'content': 'a'}], 'tool_choice': 'required', "
                       "'tools': [{'function': {'name': 'time'}}]}",
                       &form)
                  .begun,
              " to=time<|message|><atem:function_calls>\n<atem:invoke name=\"time\">\n");
}

TEST(Conversation, ThinkingGoesToTheVariableThatTheTemplateReads) {
    const auto prompt = [](std::string_view source, TemplateValue thinking, const std::string& kwargs) {
        const PromptTemplate form = template_of(source);
        RequestedConversation made = request(
            fmt::format("{{'messages': [{{'role': 'user', 'content': 'a'}}], 'chat_template_kwargs': {}}}", kwargs));
        made.thinking = std::move(thinking);
        return render_conversation(&form, make_conversation(made, &form)).text.bytes;
    };
    constexpr std::string_view kUsual = "{{ enable_thinking is defined and enable_thinking }}";
    constexpr std::string_view kGranite = "{{ thinking is defined and thinking }}";
    constexpr std::string_view kBoth = "{{ enable_thinking is defined }} {{ thinking is defined }}";
    EXPECT_EQ(template_of(kUsual).thinking_variable(), "enable_thinking");
    EXPECT_EQ(template_of(kGranite).thinking_variable(), "thinking");
    EXPECT_EQ(template_of("{{ messages }}").thinking_variable(), "");
    for (const std::string_view source : {kUsual, kGranite}) {
        EXPECT_EQ(prompt(source, TemplateValue::none(), "{}"), "False");
        EXPECT_EQ(prompt(source, TemplateValue(true), "{}"), "True");
        EXPECT_EQ(prompt(source, TemplateValue::none(), "{'enable_thinking': true}"), "True");
        EXPECT_EQ(prompt(source, TemplateValue::none(), "{'thinking': true}"), "True");
        EXPECT_EQ(prompt(source, TemplateValue(false), "{'enable_thinking': true, 'thinking': true}"), "True");
    }
    EXPECT_EQ(prompt(kBoth, TemplateValue(true), "{}"), "True False");
    EXPECT_EQ(prompt(kBoth, TemplateValue::none(), "{'thinking': true}"), "False True");
}

TEST(Conversation, AHarmonyAnswerThatIsCutOffIsContinued) {
    const PromptTemplate form = template_of(kHarmony);
    const auto talk = [](const std::string& thought, const std::string& content) {
        return messages(
            fmt::format("{{'role': 'user', 'content': 'Ulm?'}}, {{'role': 'assistant', "
                        "'reasoning_content': '{}', 'content': '{}'}}",
                        thought, content));
    };
    const std::vector<AnswerPiece> cut = harmony_answer(messages("{'role': 'user', 'content': 'Ulm?'}"), form,
                                                        "<|channel|>analysis<|message|>Hm.<|start|>assistant<|chan");
    ASSERT_EQ(cut.size(), 1U);
    EXPECT_EQ(cut[0].kind, AnswerPiece::Kind::Thought);
    EXPECT_EQ(cut[0].text, "Hm.");
    EXPECT_EQ(rendered(talk("Hm.", "7 "), &form).text.bytes,
              "<|start|>user<|message|>Ulm?<|end|><|start|>assistant<|channel|>analysis<|message|>Hm.<|end|><|start|>"
              "assistant<|channel|>final<|message|>7 ");
    for (const char* begun : {"", "7 "}) {
        const std::vector<AnswerPiece> rest = harmony_answer(talk(cut[0].text, begun), form, "degrees");
        ASSERT_EQ(rest.size(), 1U);
        EXPECT_EQ(rest[0].kind, AnswerPiece::Kind::Content);
        EXPECT_EQ(rest[0].text, "degrees");
    }
}

TEST(Conversation, HarmonyCallsAreFollowedByTheirResults) {
    const PromptTemplate form = template_of(kHarmony);
    const auto prompt = [&](const std::string& results) {
        return rendered(messages("{'role': 'user', 'content': 'Now?'}, {'role': 'assistant', 'thinking': 'Hm.', "
                                 "'tool_calls': [{'id': 'a', 'function': {'name': 'time', 'arguments': {}}}, {'id': "
                                 "'b', 'function': {'name': 'weather', 'arguments': {}}}]}" +
                                 results + ", {'role': 'user', 'content': 'So?'}"),
                        &form)
            .text.bytes;
    };
    const std::string begin =
        "<|start|>user<|message|>Now?<|end|><|start|>assistant<|channel|>analysis<|message|>Hm."
        "<|end|><|start|>assistant to=functions.time<|channel|>commentary json<|message|>{}"
        "<|call|>";
    const std::string time = "<|start|>functions.time to=assistant<|channel|>commentary<|message|>noon<|end|>";
    const std::string call = "<|start|>assistant to=functions.weather<|channel|>commentary json<|message|>{}<|call|>";
    const std::string weather = "<|start|>functions.weather to=assistant<|channel|>commentary<|message|>rain<|end|>";
    const std::string end = "<|start|>user<|message|>So?<|end|><|start|>assistant";
    const std::string noon = ", {'role': 'tool', 'tool_call_id': 'a', 'content': 'noon'}";
    const std::string rain = ", {'role': 'tool', 'tool_call_id': 'b', 'content': 'rain'}";
    EXPECT_EQ(prompt(noon + rain), begin + time + call + weather + end);
    EXPECT_EQ(prompt(rain + noon), begin + time + call + weather + end);
    EXPECT_EQ(prompt(", {'role': 'tool', 'content': 'noon'}, {'role': 'tool', 'content': 'rain'}"),
              begin + time + call + weather + end);
    EXPECT_EQ(prompt(rain), begin + call + weather + end);
    try {
        static_cast<void>(prompt(noon + ", {'role': 'tool', 'tool_call_id': 'c', 'content': 'rain'}"));
        FAIL() << "a result of no call";
    } catch (const FieldError& error) {
        EXPECT_EQ(error.field(), "messages[3].tool_call_id");
    }
}

TEST(Conversation, AHarmonyToolNeedsNoDescription) {
    const PromptTemplate form = template_of(kHarmony);
    const std::string user = "{'messages': [{'role': 'user', 'content': 'a'}], ";
    const std::string end = "<|start|>user<|message|>a<|end|><|start|>assistant";
    EXPECT_EQ(
        rendered(user + "'tools': [{'function': {'name': 'f'}}, {'function': {'name': 'g', 'description': null}}, "
                        "{'function': {'name': 'h', 'description': 'does '}}]}",
                 &form)
            .text.bytes,
        "# f\n# g\n# does h\n" + end);
}

TEST(Conversation, RefusesByTheNameOfTheField) {
    const PromptTemplate form = template_of(kThinking), plain = template_of("{{ messages[0].content }}");
    const auto field_of = [&](const std::string& json, const PromptTemplate* of) -> std::string {
        try {
            static_cast<void>(rendered(json, of));
        } catch (const FieldError& error) {
            EXPECT_THAT(std::string(error.what()), testing::StartsWith(error.field() + ": "));
            return error.field();
        }
        return "none";
    };
    const auto refused = [&](const std::string& json) { return field_of(json, &form); };
    const std::string user = "{'role': 'user', 'content': 'a'}";
    EXPECT_EQ(refused("{}"), "messages");
    EXPECT_EQ(refused("{'messages': {}}"), "messages");
    EXPECT_EQ(refused(messages("")), "messages");
    EXPECT_EQ(refused(messages("1")), "messages[0]");
    EXPECT_EQ(refused(messages(user + ", {'content': 'a'}")), "messages[1].role");
    EXPECT_EQ(refused(messages("{'role': 'function', 'content': 'a'}")), "messages[0].role");
    EXPECT_EQ(refused(messages("{'role': 'user'}")), "messages[0].content");
    EXPECT_EQ(refused(messages("{'role': 'user', 'content': 1}")), "messages[0].content");
    EXPECT_EQ(refused(messages("{'role': 'user', 'content': [{'type': 'image_url', 'image_url': {}}]}")),
              "messages[0].content[0].type");
    EXPECT_EQ(refused(messages("{'role': 'user', 'content': [{'type': 'text'}]}")), "messages[0].content[0].text");
    EXPECT_EQ(refused(messages(user + ", {'role': 'assistant', 'function_call': {}}")), "messages[1].function_call");
    EXPECT_EQ(refused(messages(user + ", {'role': 'assistant', 'tool_calls': [{'type': 'custom'}]}")),
              "messages[1].tool_calls[0].type");
    EXPECT_EQ(refused(messages(user + ", {'role': 'assistant', 'tool_calls': [{'function': {}}]}")),
              "messages[1].tool_calls[0].function.name");
    const auto with = [&](const std::string& more) { return "{'messages': [" + user + "], " + more + "}"; };
    EXPECT_EQ(refused(with("'tools': {}")), "tools");
    EXPECT_EQ(refused(with("'tools': [{'type': 'web_search'}]")), "tools[0].type");
    EXPECT_EQ(refused(with("'tools': [{'type': 'function'}]")), "tools[0].function");
    EXPECT_EQ(refused(with("'tools': [{'function': {'name': 'a b'}}]")), "tools[0].function.name");
    EXPECT_EQ(refused(with("'tools': [{'function': {'name': 'a'}}, {'function': {'name': 'a'}}]")),
              "tools[1].function.name");
    EXPECT_EQ(refused(with("'tools': [{'function': {'name': 'a', 'strict': true}}]")), "tools[0].function.strict");
    EXPECT_EQ(refused(with("'tools': [{'function': {'name': 'a', 'parameters': []}}]")),
              "tools[0].function.parameters");
    EXPECT_EQ(refused(with("'tools': [{'type': null, 'function': {'name': 'a', 'strict': null}}]")), "none");
    EXPECT_EQ(refused(with("'reasoning_effort': 1")), "reasoning_effort");
    EXPECT_EQ(refused(with("'response_format': 1")), "response_format");
    EXPECT_EQ(refused(with("'response_format': {'type': 'json_schema'}")), "response_format.type");
    EXPECT_EQ(refused(with("'response_format': {'type': 'text'}")), "none");
    EXPECT_EQ(refused(with("'chat_template_kwargs': 1")), "chat_template_kwargs");
    EXPECT_EQ(refused(with("'chat_template_kwargs': {'messages': 1}")), "chat_template_kwargs.messages");
    const std::string tool = "'tools': [{'function': {'name': 'f'}}]";
    EXPECT_EQ(refused(with(tool + ", 'tool_choice': 'always'")), "tool_choice");
    EXPECT_EQ(refused(with(tool + ", 'tool_choice': {'function': {'name': 'g'}}")), "tool_choice");
    EXPECT_EQ(refused(with("'tool_choice': 'required'")), "tool_choice");
    EXPECT_EQ(refused("{'messages': [" + user + ", {'role': 'assistant', 'content': 'b'}], " + tool +
                      ", 'tool_choice': 'required'}"),
              "tool_choice");
    EXPECT_EQ(field_of(with(tool), &plain), "tools");
    EXPECT_EQ(field_of(with(tool), nullptr), "tools");
    EXPECT_EQ(field_of(with("'chat_template_kwargs': {'a': 1}"), nullptr), "chat_template_kwargs");
    EXPECT_EQ(field_of(messages(user + ", {'role': 'tool', 'content': 'b'}"), nullptr), "messages[1].role");
    EXPECT_EQ(field_of(with("'chat_template_kwargs': {}"), nullptr), "none");
}

TEST(RequestJson, IsBounded) {
    const auto error_of = [](const std::string& json) -> std::string {
        try {
            static_cast<void>(parse_request_json(json, "test"));
        } catch (const RequestError& error) {
            return error.what();
        }
        return "none";
    };
    EXPECT_EQ(error_of("[\"[[{\\\"{\", 1]"), "none");
    EXPECT_THAT(error_of("[1, 2"), HasSubstr("test: not JSON at byte"));
    EXPECT_EQ(error_of(std::string(64, '[') + std::string(64, ']')), "none");
    EXPECT_THAT(error_of(std::string(65, '[') + std::string(65, ']')), HasSubstr("nested deeper than 64"));
    std::string many = "[";
    for (int i = 0; i < 600'000; ++i) many += "[],";
    EXPECT_THAT(error_of(many + "1]"), HasSubstr("more than 1000000 values"));
    EXPECT_THAT(error_of(std::string(kMaxRequestBytes + 1, ' ')), HasSubstr("16777217 bytes"));
}

// Published templates, in the folder of test data beside the checkout.
class PublishedTemplates : public testing::TestWithParam<const char*> {};

TEST_P(PublishedTemplates, WriteCallsAsTheReaderReadsThem) {
    const std::filesystem::path path =
        std::filesystem::path(SLIPSTREAM_SOURCE_DIR) / "../shared/data/chat_templates" / GetParam();
    std::ifstream file(path);
    if (!file) GTEST_SKIP() << "no " << path;
    const PromptTemplate form = template_of(std::string(std::istreambuf_iterator<char>(file), {}));
    const std::string tools =
        "'tools': [{'type': 'function', 'function': {'name': 'weather', 'description': 'd', 'parameters': {'type': "
        "'object', 'properties': {'city': {'type': 'string', 'description': 'c'}}}}}]";
    const std::string user = "{'role': 'user', 'content': 'Hello'}";
    const std::string calls =
        ", {'role': 'assistant', 'content': null, 'tool_calls': [{'id': 'call_1', 'type': 'function', 'function': "
        "{'name': 'weather', 'arguments': {'city': 'Ulm <tool_call>'}}}]}, {'role': 'tool', 'tool_call_id': 'call_1', "
        "'content': '7'}";
    const std::string history = rendered("{'messages': [" + user + calls + "], " + tools + "}", &form).text.bytes;

    const ConversationPrompt forced =
        rendered("{'messages': [" + user + "], " + tools + ", 'tool_choice': 'required'}", &form);
    const AnswerForm& answer = form.answer_form();
    MarkedText start;
    append_call_start(answer, "weather", start);
    EXPECT_TRUE(forced.text.bytes.ends_with(start.bytes));
    const std::size_t at = history.rfind(start.bytes);
    ASSERT_NE(at, std::string::npos) << start.bytes << "\nin\n" << history;

    AnswerReader reader(answer, make_conversation(request("{'messages': [" + user + "], " + tools + "}"), &form).tools);
    const std::vector<AnswerPiece> pieces = reader.push(history.substr(at));
    ASSERT_FALSE(pieces.empty());
    EXPECT_EQ(pieces[0].kind, AnswerPiece::Kind::Call);
    EXPECT_EQ(pieces[0].name, "weather");
    EXPECT_EQ(pieces[0].text, R"({"city": "Ulm <tool_call>"})");
}

INSTANTIATE_TEST_SUITE_P(
    All, PublishedTemplates,
    testing::Values("openai-gpt-oss-120b.jinja", "Qwen-Qwen2.5-7B-Instruct.jinja", "Qwen-Qwen3-0.6B.jinja",
                    "Qwen-QwQ-32B.jinja", "NousResearch-Hermes-3-Llama-3.1-8B-tool_use.jinja",
                    "meta-llama-Llama-3.1-8B-Instruct.jinja", "meta-llama-Llama-3.2-3B-Instruct.jinja",
                    "meta-llama-Llama-3.3-70B-Instruct.jinja", "mistralai-Mistral-Nemo-Instruct-2407.jinja",
                    "Mistral-Small-3.2-24B-Instruct-2506.jinja"),
    [](const testing::TestParamInfo<const char*>& tested) {
        std::string name = tested.param;
        std::erase_if(name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; });
        return name;
    });

}  // namespace
}  // namespace slipstream
