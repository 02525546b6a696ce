// /v1/messages, of Anthropic: what a request becomes, and what its client reads.
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "tests/tools/serve/dialect_server.h"

namespace slipstream::tools {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

std::string with(const std::string& fields, const std::string& messages = R"([{"role": "user", "content": "Hi"}])") {
    return R"({"model": "claude", "max_tokens": 64, "messages": )" + messages + fields + "}";
}
const std::string kTools =
    R"(, "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object"}, "cache_control": {"type": "ephemeral"}}])";

class Messages : public DialectServer {
protected:
    Messages() : DialectServer("/v1/messages") {}
    [[nodiscard]] std::string refusal(const std::string& body) const {
        const json answer = refused(body);
        EXPECT_EQ(answer.at("type"), "error");
        EXPECT_EQ(answer.at("error").at("type"), "invalid_request_error");
        return answer.at("error").at("message");
    }
};

TEST_F(Messages, AnswersWhole) {
    const json answer = post(with(""));
    EXPECT_THAT(answer.at("id").get<std::string>(), testing::StartsWith("msg_"));
    EXPECT_EQ(answer.at("type"), "message");
    EXPECT_EQ(answer.at("role"), "assistant");
    EXPECT_EQ(answer.at("model"), "org/scripted");
    EXPECT_EQ(answer.at("content"), json::parse(R"([{"type": "text", "text": "Hello world"}])"));
    EXPECT_EQ(answer.at("stop_reason"), "end_turn");
    EXPECT_TRUE(answer.at("stop_sequence").is_null());
    // [user]Hi[assistant] has 19 bytes, of which the engine had one.
    EXPECT_EQ(answer.at("usage"), json::parse(R"({"input_tokens": 18, "cache_creation_input_tokens": 0,
                                                  "cache_read_input_tokens": 1, "output_tokens": 2})"));
    EXPECT_EQ(server_.engine.tasks().at(0).text.max_tokens, 64);
}

TEST_F(Messages, Streams) {
    const std::vector<NamedEvent> events = stream(with(R"(, "stream": true)"));
    ASSERT_THAT(names_of(events),
                ElementsAre("message_start", "ping", "content_block_start", "content_block_delta",
                            "content_block_delta", "content_block_stop", "message_delta", "message_stop"));
    const json& message = events[0].data.at("message");
    EXPECT_EQ(message.at("role"), "assistant");
    EXPECT_TRUE(message.at("content").empty());
    EXPECT_TRUE(message.at("stop_reason").is_null());
    EXPECT_EQ(message.at("usage").at("input_tokens"), 19);
    EXPECT_EQ(events[2].data.at("index"), 0);
    EXPECT_EQ(events[2].data.at("content_block"), json::parse(R"({"type": "text", "text": ""})"));
    EXPECT_EQ(events[3].data.at("delta"), json::parse(R"({"type": "text_delta", "text": "Hello"})"));
    EXPECT_EQ(events[4].data.at("delta").at("text"), " world");
    EXPECT_EQ(events[6].data.at("delta"), json::parse(R"({"stop_reason": "end_turn", "stop_sequence": null})"));
    EXPECT_EQ(events[6].data.at("usage").at("input_tokens"), 18);
    EXPECT_EQ(events[6].data.at("usage").at("cache_read_input_tokens"), 1);
    EXPECT_EQ(events[6].data.at("usage").at("output_tokens"), 2);
}

TEST_F(Messages, StreamsThoughtsAndCalls) {
    server_.engine.set_script({"<think>", "hm", "</think>", "I call.", kHermesCall, kHermesCall});
    const std::vector<NamedEvent> events = stream(with(R"(, "stream": true)" + kTools));
    std::vector<json> blocks;
    std::vector<std::string> texts;
    for (const NamedEvent& event : events) {
        if (event.name == "content_block_start") {
            EXPECT_EQ(event.data.at("index"), blocks.size());
            blocks.push_back(event.data.at("content_block"));
            texts.emplace_back();
        }
        if (event.name != "content_block_delta") continue;
        const json& delta = event.data.at("delta");
        EXPECT_EQ(event.data.at("index"), blocks.size() - 1);
        for (const char* key : {"text", "thinking", "partial_json"})
            if (delta.contains(key)) texts.back() += delta.at(key).get<std::string>();
    }
    ASSERT_EQ(blocks.size(), 4U);
    EXPECT_EQ(blocks[0], json::parse(R"({"type": "thinking", "thinking": "", "signature": ""})"));
    EXPECT_EQ(blocks[2].at("type"), "tool_use");
    EXPECT_EQ(blocks[2].at("name"), "f");
    EXPECT_EQ(blocks[2].at("input"), json::object());
    EXPECT_NE(blocks[2].at("id"), blocks[3].at("id"));
    EXPECT_THAT(texts, ElementsAre("hm", "I call.", R"({"x": 1})", R"({"x": 1})"));
    EXPECT_EQ(events[events.size() - 2].data.at("delta").at("stop_reason"), "tool_use");
}

TEST_F(Messages, AnswersThoughtsAndCallsWhole) {
    server_.engine.set_script({"<think>hm</think>", kHermesCall});
    json content = post(with(kTools)).at("content");
    content.at(1).erase("id");
    EXPECT_EQ(content, json::parse(R"([{"type": "thinking", "thinking": "hm", "signature": ""},
                                       {"type": "tool_use", "name": "f", "input": {"x": 1}}])"));
}

TEST_F(Messages, SaysWhyItEnded) {
    EXPECT_EQ(post(R"({"max_tokens": 1, "messages": [{"role": "user", "content": "Hi"}]})").at("stop_reason"),
              "max_tokens");
    server_.engine.set_stop(StopReason::StopString, "END");
    const json stopped = post(with(R"(, "stop_sequences": ["END", "x"])"));
    EXPECT_EQ(stopped.at("stop_reason"), "stop_sequence");
    EXPECT_EQ(stopped.at("stop_sequence"), "END");
    EXPECT_THAT(server_.engine.tasks().back().text.stops, ElementsAre("END", "x"));
    EXPECT_EQ(post(with("")).at("stop_reason"), "end_turn");  // a stop of the model's own
    server_.engine.set_stop(StopReason::Context, "");
    EXPECT_EQ(post(with("")).at("stop_reason"), "model_context_window_exceeded");
}

TEST_F(Messages, HasItsOwnErrorsAlsoWhereTheBodyIsNotRead) {
    RawClient client = server_.connect();
    client.send(
        "POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "
        "16777217\r\n\r\n");
    const RawAnswer large = read_answer(client);
    EXPECT_EQ(large.status, 413);
    EXPECT_EQ(json::parse(large.body).at("type"), "error");
    EXPECT_EQ(json::parse(large.body).at("error").at("type"), "request_too_large");
    RawClient chunked = server_.connect();
    chunked.send(
        "POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: "
        "chunked\r\n\r\n1000001\r\n");
    EXPECT_EQ(json::parse(read_answer(chunked).body).at("error").at("type"), "request_too_large");
}

TEST_F(Messages, ReadsTheSystemTextWithoutTheBillingLine) {
    EXPECT_EQ(prompt_of(with(R"(, "system": "S")")), "[system]S[user]Hi[assistant]");
    EXPECT_EQ(prompt_of(with(R"(, "system": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}},
                                             {"type": "text", "text": "b"}])")),
              "[system]a\nb[user]Hi[assistant]");
    const std::string line = "x-anthropic-billing-header: cc_version=2.1; cch=f00;";
    EXPECT_EQ(
        prompt_of(with(R"(, "system": [{"type": "text", "text": ")" + line + R"("}, {"type": "text", "text": "b"}])")),
        "[system]b[user]Hi[assistant]");
    EXPECT_EQ(prompt_of(with(R"(, "system": ")" + line + R"(\nmore")")), "[system]more[user]Hi[assistant]");
    EXPECT_EQ(prompt_of(with(R"(, "system": ")" + line + R"(")")), "[user]Hi[assistant]");
    // It is a line of the system's beginning alone.
    EXPECT_EQ(prompt_of(with("", R"([{"role": "user", "content": ")" + line + R"("}])")),
              "[user]" + line + "[assistant]");
    EXPECT_EQ(prompt_of(with("", R"([{"role": "user", "content": "a"}, {"role": "system", "content": "late"}])")),
              "[user]a\n\nlate[assistant]");
}

TEST_F(Messages, ReadsAConversationWithTools) {
    const std::string read = prompt_of(with("", R"([
        {"role": "user", "content": [{"type": "text", "text": "q"}]},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "t", "signature": "s"},
            {"type": "redacted_thinking", "data": "zzz"}, {"type": "text", "text": "a"},
            {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"x": [1, "y"]}},
            {"type": "tool_use", "id": "toolu_2", "name": "g", "input": {}}]},
        {"role": "user", "content": [{"type": "text", "text": "go on"},
            {"type": "tool_result", "tool_use_id": "toolu_1", "content": "r1"},
            {"type": "tool_result", "tool_use_id": "toolu_2", "is_error": true,
             "content": [{"type": "text", "text": "r2"}, {"type": "text", "text": "r3"}]}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_3"}]}])"));
    EXPECT_EQ(read,
              "[user]q[assistant](t)a"
              "<tool_call>toolu_1 f {\"x\": [1, \"y\"]}</tool_call><tool_call>toolu_2 g {}</tool_call>"
              "[tool toolu_1]r1[tool toolu_2]r2\nr3[user]go on[tool toolu_3][assistant]");
}

TEST_F(Messages, ContinuesALastAnswer) {
    EXPECT_EQ(prompt_of(with("", R"([{"role": "user", "content": "q"}, {"role": "assistant", "content": "It is"}])")),
              "[user]q[assistant]It is");
}

TEST_F(Messages, OffersTools) {
    EXPECT_EQ(
        prompt_of(with(kTools)),
        R"([{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}])"
        "[user]Hi[assistant]");
    // A tool that is deferred comes once a result has named it.
    const std::string deferred =
        R"(, "tools": [{"name": "g", "input_schema": {}}, {"name": "later", "input_schema": {}, "defer_loading": true}])";
    EXPECT_THAT(prompt_of(with(deferred)), Not(HasSubstr("later")));
    EXPECT_THAT(prompt_of(with(deferred, R"([{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a",
                                             "content": [{"type": "tool_reference", "tool_name": "later"}]}]}])")),
                HasSubstr(R"("name": "later")"));
}

TEST_F(Messages, ForcesCalls) {
    server_.engine.set_script({"{\"x\": 1}}\n</tool_call>"});
    const json forced = post(with(kTools + R"(, "tool_choice": {"type": "tool", "name": "f"})"));
    EXPECT_EQ(forced.at("content").at(0).at("type"), "tool_use");
    EXPECT_EQ(post(with(kTools + R"(, "tool_choice": {"type": "any"})")).at("content").at(0).at("type"), "tool_use");
    server_.engine.set_script({kHermesCall});
    EXPECT_EQ(post(with(kTools + R"(, "tool_choice": {"type": "none"})")).at("content").at(0).at("type"), "text");
    // go_on() is never called: the answer ends after the first call.
    server_.engine.set_script({kHermesCall, "|", kHermesCall});
    EXPECT_EQ(post(with(kTools + R"(, "tool_choice": {"type": "auto", "disable_parallel_tool_use": true})"))
                  .at("content")
                  .size(),
              1U);
}

TEST_F(Messages, PassesThinkingOnToTheTemplate) {
    EXPECT_EQ(prompt_of(with(R"(, "thinking": {"type": "enabled", "budget_tokens": 2048})")),
              "{thinks:True}[user]Hi[assistant]");
    EXPECT_EQ(prompt_of(with(R"(, "thinking": {"type": "disabled"})")), "{thinks:False}[user]Hi[assistant]");
    EXPECT_EQ(prompt_of(with(R"(, "thinking": {"type": "adaptive"}, "output_config": {"effort": "low"})")),
              "{effort:low}[user]Hi[assistant]");
}

TEST_F(Messages, RefusesByNameWhatItDoesNotServe) {
    EXPECT_THAT(refusal(with("", R"([{"role": "user", "content": [{"type": "image", "source": {}}]}])")),
                HasSubstr("messages[0].content[0].type: \"image\""));
    EXPECT_THAT(refusal(with("", R"([{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a",
                                     "content": [{"type": "image", "source": {}}]}]}])")),
                HasSubstr("messages[0].content[0].content[0].type: \"image\""));
    EXPECT_THAT(refusal(with(R"(, "tools": [{"type": "web_search_20250305", "name": "web_search"}])")),
                HasSubstr("tools[0].type: \"web_search_20250305\""));
    EXPECT_THAT(refusal(with(R"(, "tools": [{"name": "f", "strict": true}])")), HasSubstr("tools[0].strict"));
    EXPECT_THAT(refusal(with(R"(, "output_config": {"format": {"type": "json_schema"}})")),
                HasSubstr("output_config.format"));
    EXPECT_THAT(refusal(with(R"(, "mcp_servers": [{"url": "http://x"}])")), HasSubstr("mcp_servers"));
    EXPECT_THAT(refusal(with(R"(, "context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]})")),
                HasSubstr("context_management.edits[0].type"));
    EXPECT_THAT(refusal(with(R"(, "tool_choice": {"type": "some"})")), HasSubstr("tool_choice.type"));
    EXPECT_THAT(refusal(with(R"(, "thinking": {"type": "enabled", "budget_tokens": -5})")),
                HasSubstr("thinking.budget_tokens"));
    EXPECT_THAT(refusal(with("", R"([{"role": "wizard", "content": "a"}])")), HasSubstr("messages[0].role"));
    EXPECT_THAT(refusal(with("", R"([{"role": "user", "content": 1}])")), HasSubstr("messages[0].content"));
    EXPECT_THAT(refusal(R"({"max_tokens": -2, "messages": [{"role": "user", "content": "a"}]})"),
                HasSubstr("max_tokens"));
    EXPECT_THAT(refusal(R"({"messages": []})"), HasSubstr("messages"));
    EXPECT_THAT(refusal("{"), HasSubstr("the body"));
    EXPECT_TRUE(server_.engine.tasks().empty());
    // What Claude Code sends besides changes nothing.
    static_cast<void>(post(with(R"(, "metadata": {"user_id": "u"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]})")));
    ASSERT_TRUE(ScriptedServer::becomes(
        [&] { return server_.lines().find("the field context_management") != std::string::npos; }));
}

TEST_F(Messages, CountsTokens) {
    const auto count = [&](const std::string& body) {
        return json::parse(server_.post("/v1/messages/count_tokens?beta=true", body).body);
    };
    EXPECT_EQ(count(with(R"(, "system": "S")")), json({{"input_tokens", 28}}));
    EXPECT_EQ(count("{}").at("type"), "error");
}

TEST_F(Messages, ErrorsHaveAnthropicsShape) {
    const json too_long = refused(with("", R"([{"role": "user", "content": ")" + std::string(300, 'x') + R"("}])"));
    EXPECT_EQ(too_long, json::parse(R"({"type": "error", "error": {"type": "invalid_request_error",
                                        "message": "prompt is too long: 317 tokens > 300 maximum"}})"));
    EXPECT_EQ(json::parse(server_.get("/v1/messages").body).at("type"), "error");  // 405
    const RawAnswer nowhere = server_.post("/v1/messages/batches", "{}");
    EXPECT_EQ(nowhere.status, 404);
    EXPECT_EQ(json::parse(nowhere.body).at("error").at("type"), "not_found_error");
    server_.engine.set_script({"!"});
    EXPECT_EQ(refused(with(""), 500).at("error").at("type"), "api_error");
}

TEST_F(Messages, AnErrorInAStreamIsAnEventAndEndsTheConnection) {
    server_.engine.set_script({"Hello", "!"});
    RawClient client = server_.connect();
    client.send(post_request("/v1/messages?beta=true", with(R"(, "stream": true)")));
    const std::string all = client.read_all();
    EXPECT_THAT(all, HasSubstr("event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":"
                               "\"the script fails\"}}\n\n"));
    EXPECT_THAT(all, Not(HasSubstr("message_stop")));
}

TEST_F(Messages, FillsSilenceWithPings) {
    server_.engine.set_script({"|", "done"});
    RawClient client = server_.connect();
    client.send(post_request(path_, with(R"(, "stream": true)")));
    client.read_until("event: ping\ndata: {\"type\":\"ping\"}\n\n");  // part of the beginning
    server_.clock.advance(std::chrono::seconds(15));
    client.read_until("event: ping\ndata: {\"type\":\"ping\"}\n\n");
    server_.engine.go_on();
    EXPECT_THAT(client.read_until("message_stop\"}\n\n"), HasSubstr("done"));
}

TEST(MessagesAccess, TakesTheKeyAndRefusesInAnthropicsShape) {
    const ScriptedServer server({.key = "k"}, kDialectTemplate);
    const auto ask = [&](const std::string& field) {
        RawClient client = server.connect();
        const std::string body = with("");
        client.send("POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" + field +
                    "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
        return read_answer(client);
    };
    EXPECT_EQ(ask("x-api-key: k\r\n").status, 200);
    const RawAnswer refused = ask("");
    EXPECT_EQ(refused.status, 401);
    EXPECT_EQ(json::parse(refused.body).at("error").at("type"), "authentication_error");
}

}  // namespace
}  // namespace slipstream::tools
