// Requests as clients send them, byte for byte (tests/golden/serve, with the script that recorded them), to a whole
// server with a scripted engine: what the client reads of the answer must be there.
#include <fstream>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/tools/serve/scripted_server.h"

namespace slipstream::tools {
namespace {

using nlohmann::json;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

constexpr const char* kTemplate =
    R"({% if tools %}{{ tools|tojson }}{% endif %}{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>
{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments|tojson }}}
</tool_call>{% endfor %}{% endfor %})";

class RecordedClient : public testing::Test {
protected:
    explicit RecordedClient(std::string folder) : folder_(std::move(folder)) {}

    [[nodiscard]] RawAnswer answer_to(const std::string& name) const {
        std::ifstream file(SLIPSTREAM_GOLDEN_DIR "/serve/" + folder_ + "/" + name + ".http", std::ios::binary);
        std::ostringstream request;
        request << file.rdbuf();
        EXPECT_FALSE(request.str().empty());
        RawClient client = server_.connect();
        client.send(request.str());
        RawAnswer answer = read_answer(client);
        EXPECT_EQ(answer.status, 200) << answer.body;
        return answer;
    }
    std::string folder_;
    ScriptedServer server_{{}, kTemplate};
};

class RecordedOpenAi : public RecordedClient {
protected:
    RecordedOpenAi() : RecordedClient("openai_python") {}
};

class RecordedAnthropic : public RecordedClient {
protected:
    RecordedAnthropic() : RecordedClient("anthropic_python") {}
};

TEST_F(RecordedOpenAi, Chat) {
    const json answer = json::parse(answer_to("chat").body);
    EXPECT_EQ(answer.at("object"), "chat.completion");
    EXPECT_EQ(answer.at("choices").at(0).at("message").at("role"), "assistant");
    EXPECT_EQ(answer.at("choices").at(0).at("message").at("content"), "Hello world");
    EXPECT_EQ(answer.at("choices").at(0).at("finish_reason"), "stop");
    EXPECT_EQ(answer.at("slipstream").at("seed"), 7);
    const std::vector<TextTask> tasks = server_.engine.tasks();
    EXPECT_EQ(tasks.at(0).text.max_tokens, 24);
    EXPECT_EQ(tasks.at(0).sampling.seed, 7U);
}

TEST_F(RecordedOpenAi, ChatStream) {
    const RawAnswer answer = answer_to("chat_stream");
    EXPECT_THAT(answer.head, HasSubstr("Content-Type: text/event-stream\r\n"));
    EXPECT_THAT(answer.body, HasSubstr(R"("choices":[],"usage":{"prompt_tokens":11,)"));
    EXPECT_THAT(answer.body, EndsWith("data: [DONE]\n\n"));
}

TEST_F(RecordedOpenAi, ChatTools) {
    server_.engine.set_script({"<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n</tool_call>"});
    const json choice = json::parse(answer_to("chat_tools").body).at("choices").at(0);
    EXPECT_EQ(choice.at("finish_reason"), "tool_calls");
    EXPECT_EQ(choice.at("message").at("tool_calls").at(0).at("function").at("arguments"), "{\"x\": 1}");
}

TEST_F(RecordedOpenAi, Completion) {
    EXPECT_EQ(json::parse(answer_to("completion").body).at("choices").at(0).at("text"), "Hello world");
    EXPECT_EQ(server_.engine.tasks().at(0).text.stops, std::vector<std::string>{"\n"});
    EXPECT_EQ(server_.engine.tasks().at(0).sampling.temperature, 0.0);
}

TEST_F(RecordedOpenAi, Models) {
    const json answer = json::parse(answer_to("models").body);
    EXPECT_EQ(answer.at("object"), "list");
    EXPECT_EQ(answer.at("data").at(0).at("object"), "model");
}

TEST_F(RecordedOpenAi, Responses) {
    const json answer = json::parse(answer_to("responses").body);
    EXPECT_EQ(answer.at("status"), "completed");
    EXPECT_EQ(answer.at("output").at(0).at("content").at(0).at("text"), "Hello world");
    EXPECT_EQ(server_.engine.tasks().at(0).text.max_tokens, 24);
}

TEST_F(RecordedOpenAi, ResponsesStream) {
    server_.engine.set_script({"<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n</tool_call>"});
    const std::string body = answer_to("responses_stream").body;
    EXPECT_THAT(body, StartsWith("event: response.created\ndata: {"));
    EXPECT_THAT(body, HasSubstr(R"("type":"function_call","status":"completed")"));
    EXPECT_THAT(body, HasSubstr("event: response.completed\n"));
}

TEST_F(RecordedAnthropic, Messages) {
    const json answer = json::parse(answer_to("messages").body);
    EXPECT_EQ(answer.at("content").at(0).at("text"), "Hello world");
    EXPECT_EQ(answer.at("stop_reason"), "end_turn");
    EXPECT_EQ(server_.engine.tasks().at(0).text.max_tokens, 24);
}

TEST_F(RecordedAnthropic, MessagesStream) {
    server_.engine.set_script({"<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n</tool_call>"});
    const std::string body = answer_to("messages_stream").body;
    EXPECT_THAT(body, StartsWith("event: message_start\ndata: {"));
    EXPECT_THAT(body, HasSubstr(R"("partial_json":"{\"x\": 1}")"));
    EXPECT_THAT(body, HasSubstr(R"("stop_reason":"tool_use")"));
    EXPECT_THAT(body, EndsWith("event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"));
}

TEST_F(RecordedAnthropic, CountTokens) {
    EXPECT_GT(json::parse(answer_to("count_tokens").body).at("input_tokens"), 2);
}

}  // namespace
}  // namespace slipstream::tools
