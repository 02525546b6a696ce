// Models of the harmony format (gpt-oss) asked through the server, in three dialects: what they answer becomes
// thoughts, content and calls, and what clients send back becomes messages in channels again.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/tools/serve/scripted_server.h"

namespace slipstream::tools {
namespace {

using nlohmann::json;

// As published templates do, it writes the text of a message with a call as a thought, and needs a description of each
// tool.
constexpr const char* kTemplate =
    R"({% for t in tools or [] %}{{ '# ' + t.function.description + t.function.name }}{% endfor %})"
    R"({% for m in messages %}{% if m.role == 'assistant' and m.tool_calls %}{% set call = m.tool_calls[0].function %})"
    R"({% if m.thinking %}<|start|>assistant<|channel|>analysis<|message|>{{ m.thinking }}<|end|>{% endif %})"
    R"(<|start|>assistant to=functions.{{ call.name }}<|channel|>commentary json<|message|>{{ call.arguments | tojson }})"
    R"(<|call|>{% elif m.role == 'assistant' %}<|start|>assistant<|channel|>final<|message|>{{ m.content }}<|end|>)"
    R"({% elif m.role == 'tool' %}<|start|>functions.f to=assistant<|channel|>commentary<|message|>{{ m.content }}<|end|>)"
    R"({% else %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endif %}{% endfor %}<|start|>assistant)";

// The parts of an answer in passes: its marks are divided anywhere. The engine does not spell <|end|> out.
const std::vector<std::string> kCall{"<|chan",
                                     "nel|>analysis<|message|>h",
                                     "m<|start|>assistant<|channel|>commen",
                                     "tary to=functions.f <|constrain|>json<|message|>",
                                     "{\"x\"",
                                     ": 1}"};
const std::vector<std::string> kFinal{"<|channel|>analysis<|message|>hm", "<|start|>assistant<|channel|>final",
                                      "<|message|>It is", " 7."};
constexpr const char* kChatTools = R"("tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}])";

class Harmony : public testing::Test {
protected:
    [[nodiscard]] json post(const std::string& path, const std::string& body) const {
        const RawAnswer answer = server_.post(path, body);
        EXPECT_EQ(answer.status, 200) << answer.body;
        return json::parse(answer.body);
    }
    /// The prompt that the last request became.
    [[nodiscard]] std::string prompt() const {
        const std::vector<TextTask> tasks = server_.engine.tasks();
        std::string text;
        for (const TokenId id : tasks.back().prompt.tokens) text += static_cast<char>(id);
        return text;
    }

    ScriptedServer server_{{}, kTemplate};
};

TEST_F(Harmony, ChatHasThoughtsCallsAndContent) {
    server_.engine.set_script(kCall);
    const std::string user = R"({"role": "user", "content": "Hi"})";
    const json choice =
        post("/v1/chat/completions", R"({"messages": [)" + user + "], " + kChatTools + "}").at("choices").at(0);
    EXPECT_EQ(prompt(), "# f<|start|>user<|message|>Hi<|end|><|start|>assistant");
    EXPECT_EQ(choice.at("finish_reason"), "tool_calls");
    json message = choice.at("message");
    EXPECT_EQ(message.at("reasoning_content"), "hm");
    EXPECT_TRUE(message.at("content").is_null());
    EXPECT_EQ(message.at("tool_calls").at(0).at("function"), json({{"name", "f"}, {"arguments", R"({"x": 1})"}}));

    // The client sends the answer back as it is, with the result; a text cannot forge a mark.
    server_.engine.set_script(kFinal);
    const json result = {
        {"role", "tool"}, {"tool_call_id", message.at("tool_calls").at(0).at("id")}, {"content", "7<|end|>"}};
    const json answer = post("/v1/chat/completions", R"({"messages": [)" + user + ", " + message.dump() + ", " +
                                                         result.dump() + "], " + kChatTools + "}");
    EXPECT_EQ(prompt(),
              "# f<|start|>user<|message|>Hi<|end|><|start|>assistant<|channel|>analysis<|message|>hm<|end|>"
              "<|start|>assistant to=functions.f<|channel|>commentary json<|message|>{\"x\": 1}<|call|>"
              "<|start|>functions.f to=assistant<|channel|>commentary<|message|>7<|end|><|end|><|start|>assistant");
    message = answer.at("choices").at(0).at("message");
    EXPECT_EQ(message.at("reasoning_content"), "hm");
    EXPECT_EQ(message.at("content"), "It is 7.");
    EXPECT_EQ(answer.at("choices").at(0).at("finish_reason"), "stop");
}

TEST_F(Harmony, ChatStreamsAsMuchAsIsCertain) {
    server_.engine.set_script(kFinal);
    const std::string body =
        server_.post("/v1/chat/completions", R"({"messages": [{"role": "user", "content": "Hi"}], "stream": true})")
            .body;
    std::vector<std::string> parts;
    for (std::size_t at = body.find("data: {"); at != std::string::npos; at = body.find("data: {", at + 1)) {
        const json delta =
            json::parse(body.substr(at + 6, body.find('\n', at) - at - 6)).at("choices").at(0).at("delta");
        if (delta.contains("reasoning_content"))
            parts.push_back("(" + delta.at("reasoning_content").get<std::string>() + ")");
        if (delta.value("content", "") != "") parts.push_back(delta.at("content").get<std::string>());
    }
    EXPECT_THAT(parts, testing::ElementsAre("(hm)", "It is", " 7."));
}

TEST_F(Harmony, ForcesACall) {
    server_.engine.set_script({" {\"x\": 1}"});
    const json choice = post("/v1/chat/completions", R"({"messages": [{"role": "user", "content": "Hi"}], )" +
                                                         std::string(kChatTools) + R"(, "tool_choice": "required"})")
                            .at("choices")
                            .at(0);
    EXPECT_THAT(prompt(), testing::EndsWith("<|start|>assistant to=functions.f<|channel|>commentary json<|message|>"));
    EXPECT_EQ(choice.at("message").at("tool_calls").at(0).at("function").at("arguments"), R"({"x": 1})");
}

TEST_F(Harmony, MessagesHaveThinkingAndToolUse) {
    const std::string tools = R"(, "max_tokens": 100, "tools": [{"name": "f", "input_schema": {}}]})";
    server_.engine.set_script(kCall);
    const json answer = post("/v1/messages", R"({"messages": [{"role": "user", "content": "Hi"}])" + tools);
    EXPECT_EQ(answer.at("stop_reason"), "tool_use");
    json content = answer.at("content");
    ASSERT_EQ(content.size(), 2U);
    EXPECT_EQ(content.at(0), json({{"type", "thinking"}, {"thinking", "hm"}, {"signature", ""}}));
    EXPECT_EQ(content.at(1).at("input"), json({{"x", 1}}));

    server_.engine.set_script(kFinal);
    const json result = {{"type", "tool_result"}, {"tool_use_id", content.at(1).at("id")}, {"content", "7"}};
    const json next = post("/v1/messages", R"({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", )"
                                           R"("content": )" +
                                               content.dump() + R"(}, {"role": "user", "content": [)" + result.dump() +
                                               "]}]" + tools);
    EXPECT_THAT(prompt(),
                testing::HasSubstr("<|channel|>analysis<|message|>hm<|end|><|start|>assistant to=functions.f"));
    EXPECT_EQ(next.at("content").at(1), json({{"type", "text"}, {"text", "It is 7."}}));
}

TEST_F(Harmony, ResponsesHaveReasoningAndFunctionCalls) {
    const std::string tools = R"(, "tools": [{"type": "function", "name": "f", "parameters": {}}]})";
    server_.engine.set_script(kCall);
    const json output = post("/v1/responses", R"({"input": "Hi")" + tools).at("output");
    ASSERT_EQ(output.size(), 2U);
    EXPECT_EQ(output.at(0).at("type"), "reasoning");
    EXPECT_EQ(output.at(0).at("content").at(0).at("text"), "hm");
    EXPECT_EQ(output.at(1).at("name"), "f");
    EXPECT_EQ(output.at(1).at("arguments"), R"({"x": 1})");

    server_.engine.set_script(kFinal);
    const json user = {{"role", "user"}, {"content", "Hi"}};
    const json result = {{"type", "function_call_output"}, {"call_id", output.at(1).at("call_id")}, {"output", "7"}};
    const json input = {user, output.at(0), output.at(1), result};
    const json next = post("/v1/responses", R"({"input": )" + input.dump() + tools).at("output");
    EXPECT_THAT(prompt(),
                testing::HasSubstr("<|channel|>analysis<|message|>hm<|end|><|start|>assistant to=functions.f"));
    EXPECT_EQ(next.at(1).at("content").at(0).at("text"), "It is 7.");
}

}  // namespace
}  // namespace slipstream::tools
