// /v1/responses, of OpenAI: what a request becomes, and what its client reads.
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "tests/tools/serve/dialect_server.h"

namespace slipstream::tools {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

std::string with(const std::string& fields, const std::string& input = R"("Hi")") {
    return R"({"model": "m", "input": )" + input + fields + "}";
}
const std::string kTools =
    R"(, "tools": [{"type": "function", "name": "f", "description": "d", "strict": false, "parameters": {"type": "object"}}])";

class Responses : public DialectServer {
protected:
    Responses() : DialectServer("/v1/responses") {}
    [[nodiscard]] std::string refusal(const std::string& body) const {
        return refused(body).at("error").at("param").get<std::string>();
    }
};

TEST_F(Responses, AnswersWhole) {
    const json answer = post(with(""));
    EXPECT_EQ(answer.at("object"), "response");
    EXPECT_EQ(answer.at("status"), "completed");
    EXPECT_TRUE(answer.at("error").is_null());
    EXPECT_EQ(answer.at("tool_choice"), "auto");
    EXPECT_EQ(answer.at("parallel_tool_calls"), true);
    json item = answer.at("output").at(0);
    EXPECT_THAT(item.at("id").get<std::string>(), testing::StartsWith("msg_"));
    item.erase("id");
    EXPECT_EQ(item, json::parse(R"({"type": "message", "status": "completed", "role": "assistant",
        "content": [{"type": "output_text", "text": "Hello world", "annotations": [], "logprobs": []}]})"));
    EXPECT_EQ(answer.at("usage"), json::parse(R"({"input_tokens": 19, "input_tokens_details":
        {"cached_tokens": 1, "cache_write_tokens": 0}, "output_tokens": 2,
        "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 21})"));
}

/// Checks what holds for every stream, and returns its items as response.output_item.done has them.
std::vector<json> checked_items(const std::vector<NamedEvent>& events) {
    std::vector<json> items;
    json open;
    std::string text;
    for (std::size_t i = 0; i < events.size(); ++i) {
        const json& event = events[i].data;
        const std::string& name = events[i].name;
        EXPECT_EQ(event.at("sequence_number"), i);
        if (event.contains("response")) continue;
        EXPECT_EQ(event.at("output_index"), items.size());
        if (name == "response.output_item.added") {
            open = event.at("item");
            text.clear();
            continue;
        }
        if (name != "response.output_item.done") {
            EXPECT_EQ(event.at("item_id"), open.at("id"));
        }
        if (name.starts_with("response.content_part.") || name.starts_with("response.output_text.") ||
            name.starts_with("response.reasoning_text.")) {
            EXPECT_EQ(event.at("content_index"), 0);
        }
        if (name.ends_with(".delta")) text += event.at("delta").get<std::string>();
        if (name == "response.output_text.done" || name == "response.reasoning_text.done") {
            EXPECT_EQ(event.at("text"), text);
        }
        if (name == "response.function_call_arguments.done") {
            EXPECT_EQ(event.at("arguments"), text);
        }
        if (name != "response.output_item.done") continue;
        EXPECT_EQ(event.at("item").at("id"), open.at("id"));
        items.push_back(event.at("item"));
    }
    EXPECT_EQ(events.back().data.at("response").at("output"), json(items));
    return items;
}

TEST_F(Responses, Streams) {
    const std::vector<NamedEvent> events = stream(with(R"(, "stream": true)"));
    ASSERT_THAT(names_of(events),
                ElementsAre("response.created", "response.in_progress", "response.output_item.added",
                            "response.content_part.added", "response.output_text.delta", "response.output_text.delta",
                            "response.output_text.done", "response.content_part.done", "response.output_item.done",
                            "response.completed"));
    EXPECT_EQ(events[0].data.at("response").at("status"), "in_progress");
    EXPECT_TRUE(events[0].data.at("response").at("output").empty());
    EXPECT_EQ(events[4].data.at("delta"), "Hello");
    const std::vector<json> items = checked_items(events);
    EXPECT_EQ(items.at(0).at("content").at(0).at("text"), "Hello world");
    EXPECT_EQ(items.at(0).at("status"), "completed");
    EXPECT_EQ(events.back().data.at("response").at("usage").at("total_tokens"), 21);
}

TEST_F(Responses, StreamsThoughtsAndCalls) {
    server_.engine.set_script({"<think>", "hm", "</think>", "I call.", kHermesCall, kHermesCall});
    const std::vector<NamedEvent> events = stream(with(R"(, "stream": true)" + kTools));
    const std::vector<json> items = checked_items(events);
    ASSERT_EQ(items.size(), 4U);
    EXPECT_EQ(items[0].at("type"), "reasoning");
    EXPECT_EQ(items[0].at("content"), json::parse(R"([{"type": "reasoning_text", "text": "hm"}])"));
    EXPECT_EQ(items[1].at("type"), "message");
    EXPECT_EQ(items[2].at("type"), "function_call");
    EXPECT_EQ(items[2].at("name"), "f");
    EXPECT_EQ(items[2].at("arguments"), R"({"x": 1})");
    EXPECT_EQ(items[2].at("status"), "completed");
    EXPECT_NE(items[2].at("call_id"), items[3].at("call_id"));
    EXPECT_EQ(events.back().name, "response.completed");
    EXPECT_EQ(events.back().data.at("response").at("usage").at("output_tokens_details").at("reasoning_tokens"), 2);
}

TEST_F(Responses, IsIncompleteAtTheLength) {
    const std::vector<NamedEvent> events = stream(with(R"(, "stream": true, "max_output_tokens": 1)"));
    EXPECT_EQ(checked_items(events).at(0).at("status"), "incomplete");
    EXPECT_EQ(events.back().name, "response.incomplete");
    const json& response = events.back().data.at("response");
    EXPECT_EQ(response.at("status"), "incomplete");
    EXPECT_EQ(response.at("incomplete_details").at("reason"), "max_output_tokens");
    EXPECT_EQ(post(with(R"(, "max_output_tokens": 1)")).at("status"), "incomplete");
}

TEST_F(Responses, ReadsItems) {
    const std::string read = prompt_of(with(R"(, "instructions": "I")", R"([
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "D"}]},
        {"role": "user", "content": "q"},
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "no"}],
         "content": [{"type": "reasoning_text", "text": "t"}], "encrypted_content": null},
        {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed",
         "content": [{"type": "output_text", "text": "a", "annotations": []}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "b"}]},
        {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": "{\"x\": 1}"},
        {"type": "function_call", "call_id": "c2", "name": "g", "arguments": ""},
        {"type": "function_call_output", "call_id": "c1", "output": "r1"},
        {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "r2"}]},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "s"}]},
        {"type": "function_call", "call_id": "c3", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c3", "output": "r3"}])"));
    EXPECT_EQ(read,
              "[system]I\n\nD[user]q[assistant](t)a\nb"
              "<tool_call>c1 f {\"x\": 1}</tool_call><tool_call>c2 g {}</tool_call>[tool c1]r1[tool c2]r2"
              "[assistant](s)<tool_call>c3 f {}</tool_call>[tool c3]r3[assistant]");
}

TEST_F(Responses, LeavesOutToolsThatAreNoFunctions) {
    const std::string tools = R"(, "tools": [{"type": "web_search", "external_web_access": false},
        {"type": "namespace", "name": "n", "tools": []}, {"type": "custom", "name": "apply_patch", "format": {}},
        {"type": "function", "name": "f", "parameters": {}}])";
    EXPECT_EQ(prompt_of(with(tools)),
              R"([{"type": "function", "function": {"name": "f", "parameters": {}}}][user]Hi[assistant])");
    ASSERT_TRUE(ScriptedServer::becomes(
        [&] { return server_.lines().find("the field tools (type web_search)") != std::string::npos; }));
    EXPECT_EQ(prompt_of(with(R"(, "tools": [{"type": "web_search"}])")), "[user]Hi[assistant]");
}

TEST_F(Responses, ForcesCalls) {
    server_.engine.set_script({"{\"x\": 1}}\n</tool_call>"});
    const json forced = post(with(kTools + R"(, "tool_choice": {"type": "function", "name": "f"})"));
    EXPECT_EQ(forced.at("output").at(0).at("type"), "function_call");
    EXPECT_EQ(forced.at("tool_choice"), json::parse(R"({"type": "function", "name": "f"})"));
    // go_on() is never called: the answer ends after the first call.
    server_.engine.set_script({kHermesCall, "|", kHermesCall});
    EXPECT_EQ(post(with(kTools + R"(, "parallel_tool_calls": false)")).at("output").size(), 1U);
}

TEST_F(Responses, RefusesByNameWhatItDoesNotServe) {
    EXPECT_EQ(refusal(with(R"(, "previous_response_id": "resp_1")")), "previous_response_id");
    EXPECT_EQ(refusal(with(R"(, "conversation": "c")")), "conversation");
    EXPECT_EQ(refusal(with(R"(, "prompt": {"id": "p"})")), "prompt");
    EXPECT_EQ(refusal(with(R"(, "background": true)")), "background");
    EXPECT_EQ(refusal(with(R"(, "text": {"format": {"type": "json_schema"}})")), "text.format");
    EXPECT_EQ(refusal(with(R"(, "top_logprobs": 2)")), "top_logprobs");
    EXPECT_EQ(refusal(with(R"(, "include": ["message.output_text.logprobs"])")), "include");
    EXPECT_EQ(refusal(with(R"(, "tools": [{"type": "function", "name": "f", "strict": true}])")), "tools[0].strict");
    EXPECT_EQ(refusal(with(R"(, "tool_choice": {"type": "web_search"})")), "tool_choice.type");
    EXPECT_EQ(refusal(with("", R"([{"type": "item_reference", "id": "x"}])")), "input[0].type");
    EXPECT_EQ(refusal(with("", R"([{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}])")),
              "input[0].content[0].type");
    EXPECT_EQ(refusal(with("", R"([{"type": "function_call_output", "call_id": "a",
                                    "output": [{"type": "input_image", "image_url": "x"}]}])")),
              "input[0].output[0].type");
    EXPECT_EQ(refusal(with("", R"([{"type": "function_call", "name": "f", "arguments": "{}"}])")), "input[0].call_id");
    EXPECT_EQ(refusal(with("", R"([{"role": "tool", "content": "a"}])")), "input[0].role");
    EXPECT_EQ(refusal(with("", "[1]")), "input[0]");
    EXPECT_EQ(refusal(with("", "[]")), "input");
    EXPECT_EQ(refusal("{}"), "input");
    EXPECT_EQ(refusal(with(R"(, "max_output_tokens": -2)")), "max_output_tokens");
    EXPECT_TRUE(server_.engine.tasks().empty());
    // What Codex sends besides changes nothing.
    static_cast<void>(
        post(with(R"(, "store": false, "include": ["reasoning.encrypted_content"], "prompt_cache_key": "k",
        "client_metadata": {}, "text": {"verbosity": "low", "format": {"type": "text"}}, "truncation": "auto",
        "previous_response_id": null, "background": false)")));
}

TEST_F(Responses, CountsTokens) {
    EXPECT_EQ(json::parse(server_.post("/v1/responses/input_tokens", with(R"(, "instructions": "S")")).body),
              json::parse(R"({"object": "response.input_tokens", "input_tokens": 28})"));
}

TEST_F(Responses, FailsInAStreamAndEndsTheConnection) {
    server_.engine.set_script({"Hello", "!"});
    RawClient client = server_.connect();
    client.send(post_request(path_, with(R"(, "stream": true)")));
    const std::string all = client.read_all();
    EXPECT_THAT(all, HasSubstr("event: response.failed\n"));
    EXPECT_THAT(all, HasSubstr(R"("error":{"code":"server_error","message":"the script fails"})"));
    EXPECT_THAT(all, Not(HasSubstr("response.completed")));
}

TEST_F(Responses, SaysInAStreamThatAPromptIsTooLong) {
    const std::string input = "\"" + std::string(300, 'x') + "\"";
    const std::vector<NamedEvent> events = stream(with(R"(, "stream": true)", input));
    EXPECT_THAT(names_of(events), ElementsAre("response.created", "response.in_progress", "response.failed"));
    EXPECT_EQ(events.back().data.at("response").at("error").at("code"), "context_length_exceeded");
    EXPECT_EQ(refused(with("", input)).at("error").at("code"), "context_length_exceeded");
    EXPECT_TRUE(server_.engine.tasks().empty());
    EXPECT_THAT(server_.get("/metrics").body, HasSubstr("requests_deferred 0\n"));
}

TEST_F(Responses, RepeatsResponseInProgressDuringSilence) {
    server_.engine.set_script({"|", "done"});
    RawClient client = server_.connect();
    client.send(post_request(path_, with(R"(, "stream": true)")));
    const std::string first = client.read_until("event: response.in_progress\n") + client.read_until("\n\n");
    server_.clock.advance(std::chrono::seconds(15));
    const std::string again = client.read_until("event: response.in_progress\n") + client.read_until("\n\n");
    EXPECT_THAT(again, HasSubstr(R"("sequence_number":1,)"));
    server_.engine.go_on();
    EXPECT_THAT(client.read_until("event: response.completed"), HasSubstr("done"));
}

}  // namespace
}  // namespace slipstream::tools
