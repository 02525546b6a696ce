// Endpoints, streams, queue and access of a whole server with a scripted engine.
#include <future>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/tools/serve/scripted_server.h"

namespace slipstream::tools {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr std::string_view kChat = R"({"messages": [{"role": "user", "content": "Hi"}]})";
constexpr std::string_view kStreamedChat = R"({"messages": [{"role": "user", "content": "Hi"}], "stream": true})";
constexpr std::string_view kStreamedText = R"({"prompt": "Hi", "stream": true})";

/// The events of a stream: what follows "data: ".
std::vector<std::string> events_of(const std::string& body) {
    std::vector<std::string> events;
    for (std::size_t at = 0; at < body.size();) {
        const std::size_t end = body.find("\n\n", at);
        EXPECT_NE(end, std::string::npos) << body.substr(at);
        EXPECT_EQ(body.substr(at, 6), "data: ");
        events.push_back(body.substr(at + 6, end - at - 6));
        at = end + 2;
    }
    return events;
}

/// An event without what differs from run to run.
std::string stable(const std::string& event) {
    static const std::regex kChanging(
        R"re("(created|seed|prompt_ms|predicted_ms|predicted_per_second|time_ms)":[0-9.e+-]+)re");
    static const std::regex kId(R"re((cmpl-)[0-9a-f]+)re");
    return std::regex_replace(std::regex_replace(event, kChanging, "\"$1\":0"), kId, "$1ID");
}

json error_of(const RawAnswer& answer) {
    return json::parse(answer.body).at("error");
}

TEST(Api, AnswersAChatWhole) {
    const ScriptedServer server;
    const RawAnswer answer = server.post("/v1/chat/completions", kChat);
    EXPECT_EQ(answer.status, 200);
    EXPECT_THAT(answer.head, HasSubstr("Content-Type: application/json\r\n"));
    EXPECT_EQ(
        stable(answer.body),
        R"({"id":"chatcmpl-ID","object":"chat.completion","created":0,"model":"org/scripted","system_fingerprint":"f",)"
        R"("choices":[{"index":0,"message":{"role":"assistant","content":"Hello world"},"logprobs":null,"finish_reason":"stop"}],)"
        R"("usage":{"prompt_tokens":2,"completion_tokens":2,"total_tokens":4,"prompt_tokens_details":{"cached_tokens":1}},)"
        R"("timings":{"cache_n":1,"prompt_n":1,"prompt_ms":0,"predicted_n":2,"predicted_ms":0,"predicted_per_second":0,)"
        R"("draft_n":0,"draft_n_accepted":0},"slipstream":{"seed":0,"stop_reason":"eos","passes":0}})");
}

TEST(Api, StreamsAChat) {
    const ScriptedServer server;
    const RawAnswer answer = server.post("/v1/chat/completions", kStreamedChat);
    EXPECT_THAT(answer.head, HasSubstr("Content-Type: text/event-stream\r\n"));
    std::vector<std::string> events = events_of(answer.body);
    ASSERT_EQ(events.size(), 5U);
    const std::string head =
        R"({"id":"chatcmpl-ID","object":"chat.completion.chunk","created":0,"model":"org/scripted","system_fingerprint":"f","choices":[{"index":0,"delta":)";
    EXPECT_EQ(stable(events[0]), head + R"({"role":"assistant","content":""},"finish_reason":null}]})");
    EXPECT_EQ(stable(events[1]), head + R"({"content":"Hello"},"finish_reason":null}]})");
    EXPECT_EQ(stable(events[2]), head + R"({"content":" world"},"finish_reason":null}]})");
    EXPECT_THAT(stable(events[3]), StartsWith(head + R"({},"finish_reason":"stop"}],"timings":{"cache_n":1,)"));
    EXPECT_EQ(events[4], "[DONE]");
}

TEST(Api, StreamsUsageWhereAsked) {
    const ScriptedServer server;
    const RawAnswer answer = server.post(
        "/v1/chat/completions",
        R"({"messages": [{"role": "user", "content": "Hi"}], "stream": true, "stream_options": {"include_usage": true}})");
    const std::vector<std::string> events = events_of(answer.body);
    ASSERT_EQ(events.size(), 6U);
    EXPECT_THAT(events[3], Not(HasSubstr("timings")));
    const json usage = json::parse(events[4]);
    EXPECT_TRUE(usage.at("choices").empty());
    EXPECT_EQ(usage.at("usage").at("total_tokens"), 4);
    EXPECT_EQ(usage.at("timings").at("predicted_n"), 2);
    EXPECT_EQ(events[5], "[DONE]");
}

TEST(Api, AnswersACompletion) {
    const ScriptedServer server;
    const json whole = json::parse(server.post("/v1/completions", R"({"prompt": "Hi", "max_tokens": 1})").body);
    EXPECT_EQ(whole.at("object"), "text_completion");
    EXPECT_EQ(whole.at("choices").at(0).at("text"), "Hello");
    EXPECT_EQ(whole.at("choices").at(0).at("finish_reason"), "length");
    const std::vector<std::string> events = events_of(server.post("/completions", kStreamedText).body);
    ASSERT_EQ(events.size(), 4U);
    EXPECT_EQ(json::parse(events[0]).at("choices").at(0).at("text"), "Hello");
    EXPECT_TRUE(json::parse(events[0]).at("choices").at(0).at("finish_reason").is_null());
    EXPECT_EQ(json::parse(events[2]).at("choices").at(0).at("finish_reason"), "stop");
    EXPECT_EQ(events[3], "[DONE]");
}

TEST(Api, TellsLogProbabilitiesInBothShapes) {
    const ScriptedServer server;
    const json chat = json::parse(
        server
            .post("/v1/chat/completions",
                  R"({"messages": [{"role": "user", "content": "Hi"}], "logprobs": true, "top_logprobs": 2})")
            .body);
    const json& content = chat.at("choices").at(0).at("logprobs").at("content");
    ASSERT_EQ(content.size(), 2U);
    EXPECT_EQ(content.at(0).at("token"), "A");
    EXPECT_EQ(content.at(0).at("logprob"), -0.5);
    EXPECT_EQ(content.at(0).at("bytes"), json::array({65}));
    EXPECT_EQ(content.at(0).at("top_logprobs").at(1).at("token"), "B");
    EXPECT_EQ(content.at(0).at("top_logprobs").at(2).at("token"), "<end>");
    const json text = json::parse(server.post("/v1/completions", R"({"prompt": "Hi", "logprobs": 2})").body);
    const json& lists = text.at("choices").at(0).at("logprobs");
    EXPECT_EQ(lists.at("tokens"), json::array({"A", "A"}));
    EXPECT_EQ(lists.at("token_logprobs"), json::array({-0.5, -0.5}));
    EXPECT_EQ(lists.at("top_logprobs").at(0).at("B"), -1.5);
    EXPECT_EQ(lists.at("top_logprobs").at(0).at("<end>"), -2.5);
    EXPECT_EQ(lists.at("text_offset"), json::array({0, 1}));
}

TEST(Api, TellsThePromptsProgressWhereAsked) {
    const ScriptedServer server;
    const RawAnswer answer =
        server.post("/v1/chat/completions",
                    R"({"messages": [{"role": "user", "content": "Hi"}], "stream": true, "return_progress": true})");
    EXPECT_THAT(stable(events_of(answer.body).at(1)),
                HasSubstr(R"("prompt_progress":{"total":2,"cache":1,"processed":2,"time_ms":0})"));
}

TEST(Api, AStreamBeginsInTheQueueAndFillsItsSilence) {
    ScriptedServer server;
    server.engine.set_script({"|", "done"});
    RawClient first = server.connect();
    first.send(post_request("/v1/chat/completions", kStreamedChat));
    first.read_until("assistant");
    RawClient second = server.connect();
    second.send(post_request("/v1/chat/completions", kStreamedChat));
    second.read_until(R"("role":"assistant")");
    second.read_until("\n\n");
    server.clock.advance(seconds(15));
    EXPECT_THAT(second.read_until("\n\n"), HasSubstr(R"("delta":{},"finish_reason":null)"));
    server.engine.go_on();
    server.engine.go_on();
    EXPECT_THAT(first.read_until("[DONE]"), HasSubstr("done"));
    EXPECT_THAT(second.read_until("[DONE]"), HasSubstr("done"));
}

TEST(Api, TheQueueHasAnEnd) {
    ScriptedServer server;
    server.engine.set_script({"|", "done"});
    std::vector<RawClient> clients;
    for (int i = 0; i < 4; ++i) {  // one runs, three wait
        clients.push_back(server.connect());
        clients.back().send(post_request("/v1/completions", kStreamedText));
        clients.back().read_until("\r\n\r\n");
        ASSERT_TRUE(ScriptedServer::becomes([&] { return server.status().running.has_value(); }));
    }
    const RawAnswer refused = server.post("/v1/completions", kStreamedText);
    EXPECT_EQ(refused.status, 503);
    EXPECT_THAT(refused.head, HasSubstr("Retry-After: "));
    EXPECT_EQ(error_of(refused).at("code"), "queue_full");
    EXPECT_THAT(server.get("/metrics").body, HasSubstr("slipstream:requests_deferred 3\n"));
    clients.pop_back();  // a client that leaves makes room, though its request is in the queue still
    ASSERT_TRUE(ScriptedServer::becomes([&] {
        RawClient another = server.connect();
        another.send(post_request("/v1/completions", kStreamedText));
        return another.read_until("\r\n").find("200") != std::string::npos;
    }));
    for (int i = 0; i < 5; ++i) server.engine.go_on();
    for (RawClient& client : clients) EXPECT_THAT(client.read_until("[DONE]"), HasSubstr("done"));
}

TEST(Api, ConnectionsPastTheLimitAreToldToComeLater) {
    const ScriptedServer server;
    std::vector<RawClient> clients;
    for (int i = 0; i < 64; ++i) clients.push_back(server.connect());
    RawClient refused = server.connect();
    const RawAnswer answer = read_answer(refused);
    EXPECT_EQ(answer.status, 503);
    EXPECT_THAT(answer.head, HasSubstr("Retry-After: "));
    EXPECT_THAT(answer.head, Not(HasSubstr("x-should-retry")));
}

TEST(Api, RequestsThatWereLeftTakeNoPlace) {
    ScriptedServer server;
    server.engine.set_script({"|", "done"});
    RawClient first = server.connect();
    first.send(post_request("/v1/completions", kStreamedText));
    ASSERT_TRUE(ScriptedServer::becomes([&] { return server.status().running.has_value(); }));
    for (int i = 0; i < 20; ++i) {
        RawClient leaves = server.connect();
        leaves.send(post_request("/v1/completions", kStreamedText));
        EXPECT_THAT(leaves.read_until("\r\n"), HasSubstr("200"));
        leaves.leave();
        ASSERT_TRUE(ScriptedServer::becomes(
            [&] { return server.get("/metrics").body.find("slipstream:requests_deferred 0\n") != std::string::npos; }));
    }
    // All but the last were removed when another request came, though the first one runs still.
    EXPECT_GE(server.status().totals.cancelled, 18);
    server.engine.go_on();
    EXPECT_THAT(first.read_until("[DONE]"), HasSubstr("done"));
    EXPECT_TRUE(ScriptedServer::becomes([&] { return server.status().totals.cancelled == 20; }));
    EXPECT_EQ(server.engine.tasks().size(), 1U);
}

TEST(Api, AContextThatBecameSmallerRefusesWhatWaited) {
    ScriptedServer server;
    server.engine.set_script({"|", "done"});
    RawClient first = server.connect();
    first.send(post_request("/v1/completions", kStreamedText));
    ASSERT_TRUE(ScriptedServer::becomes([&] { return server.status().running.has_value(); }));
    RawClient second = server.connect();
    second.send(post_request("/v1/completions", kStreamedText));
    second.read_until("\r\n\r\n");
    server.engine.set_context(1);
    server.engine.go_on();
    EXPECT_THAT(second.read_until("}}"), HasSubstr("context_length_exceeded"));
}

TEST(Worker, RefusesTasksPastItsLimitAndAfterItsEnd) {
    Worker worker(2);
    std::promise<void> may_end;
    std::promise<void> began;
    int n_run = 0;
    ASSERT_EQ(worker.add([&] {
        began.set_value();
        may_end.get_future().wait();
    }),
              Worker::Added::Yes);
    began.get_future().wait();
    EXPECT_EQ(worker.add([&] { ++n_run; }), Worker::Added::Yes);
    EXPECT_EQ(worker.add([&] { ++n_run; }), Worker::Added::Yes);
    EXPECT_EQ(worker.add([&] { ++n_run; }), Worker::Added::Full);
    may_end.set_value();
    worker.stop();
    EXPECT_EQ(n_run, 2);
    EXPECT_EQ(worker.add([&] { ++n_run; }), Worker::Added::Ended);
}

TEST(Api, AClientThatLeavesFreesTheEngine) {
    ScriptedServer server;
    server.engine.set_script({"Hello", "|", "never"});
    {
        RawClient client = server.connect();
        client.send(post_request("/v1/completions", kStreamedText));
        client.read_until("Hello");
    }
    EXPECT_TRUE(ScriptedServer::becomes([&] { return server.status().totals.cancelled == 1; }));
    server.engine.set_script({"next"});
    EXPECT_THAT(server.post("/v1/completions", kStreamedText).body, HasSubstr("next"));
}

TEST(Api, AnErrorInAStreamDoesNotLookFinished) {
    ScriptedServer server;
    server.engine.set_script({"Hello", "!"});
    const std::vector<std::string> events = events_of(server.post("/v1/chat/completions", kStreamedChat).body);
    EXPECT_EQ(json::parse(events.back()).at("error").at("message"), "the script fails");
    for (const std::string& event : events) EXPECT_THAT(event, Not(HasSubstr("DONE")));
    const RawAnswer whole = server.post("/v1/chat/completions", kChat);
    EXPECT_EQ(whole.status, 500);
    EXPECT_THAT(whole.head, HasSubstr("x-should-retry: false\r\n"));
    EXPECT_EQ(server.status().totals.failed, 2);
}

TEST(Api, RefusesAPromptThatDoesNotFit) {
    const ScriptedServer server;
    const RawAnswer answer = server.post("/v1/completions", R"({"prompt": ")" + std::string(300, 'x') + R"("})");
    EXPECT_EQ(answer.status, 400);
    EXPECT_EQ(error_of(answer).at("code"), "context_length_exceeded");
    EXPECT_EQ(error_of(answer).at("n_prompt_tokens"), 300);
    EXPECT_EQ(error_of(answer).at("n_ctx"), 300);
    EXPECT_THAT(server.lines(),
                HasSubstr("request 1 /v1/completions refused: 300 prompt tokens do not fit into --ctx 300"));
    EXPECT_EQ(server.post("/v1/completions", R"({"prompt": ")" + std::string(299, 'x') + R"("})").status, 200);
}

TEST(Api, ReadsConversations) {
    const ScriptedServer server;
    const auto rendered = [&](const std::string& messages) {
        return json::parse(server.post("/apply-template", R"({"messages": )" + messages + "}").body);
    };
    EXPECT_EQ(rendered(R"([{"role": "developer", "content": "S"}, {"role": "user", "content": "U"}])").at("prompt"),
              "S\n\nU");
    EXPECT_EQ(
        rendered(R"([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}])")
            .at("prompt"),
        "a\nb");
    EXPECT_EQ(
        rendered(R"([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}])").at("error").at("param"),
        "messages[0].content[0].type");
    EXPECT_EQ(rendered(R"([{"role": "wizard", "content": "a"}])").at("error").at("param"), "messages[0].role");
    EXPECT_EQ(rendered(R"(["a"])").at("error").at("param"), "messages[0]");
}

// Marks of Hermes; what the template itself writes does not matter to the scripted engine.
constexpr const char* kToolTemplate =
    R"({% if tools %}{{ tools|tojson }}{% endif %}{% for m in messages %}{{ m.role }}: {{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>
{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments|tojson }}}
</tool_call>{% endfor %}{% endfor %}{% if false %}<think></think>{% endif %})";
constexpr std::string_view kCall = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n</tool_call>";

std::string tool_request(const std::string& more) {
    return R"({"messages": [{"role": "user", "content": "Hi"}],)"
           R"("tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}])" +
           more + "}";
}

TEST(ApiTools, StreamsThoughtsAndCalls) {
    ScriptedServer server({}, kToolTemplate);
    server.engine.set_script({"<think>", "hm", "</think>", "I call.", std::string(kCall.substr(0, 30)),
                              std::string(kCall.substr(30)), std::string(kCall)});
    const std::vector<std::string> events =
        events_of(server.post("/v1/chat/completions", tool_request(R"(, "stream": true)")).body);
    std::string thought;
    std::string content;
    std::vector<json> calls;
    for (const std::string& event : events) {
        if (event == "[DONE]") continue;
        const json delta = json::parse(event).at("choices").at(0).at("delta");
        thought += delta.value("reasoning_content", "");
        content += delta.value("content", "");
        if (delta.contains("tool_calls")) calls.push_back(delta.at("tool_calls").at(0));
    }
    EXPECT_EQ(thought, "hm");
    EXPECT_EQ(content, "I call.");
    ASSERT_EQ(calls.size(), 2U);
    for (int i = 0; i < 2; ++i) {
        EXPECT_EQ(calls[i].at("index"), i);
        EXPECT_EQ(calls[i].at("type"), "function");
        EXPECT_EQ(calls[i].at("function").at("name"), "f");
        EXPECT_EQ(json::parse(calls[i].at("function").at("arguments").get<std::string>()), json({{"x", 1}}));
        EXPECT_TRUE(std::regex_match(calls[i].at("id").get<std::string>(), std::regex("[a-z0-9]{9}")));
    }
    EXPECT_NE(calls[0].at("id"), calls[1].at("id"));
    EXPECT_EQ(json::parse(events[events.size() - 2]).at("choices").at(0).at("finish_reason"), "tool_calls");
}

TEST(ApiTools, AnswersWhole) {
    ScriptedServer server({}, kToolTemplate);
    server.engine.set_script({std::string(kCall)});
    const json choice = json::parse(server.post("/v1/chat/completions", tool_request("")).body).at("choices").at(0);
    EXPECT_EQ(choice.at("finish_reason"), "tool_calls");
    EXPECT_TRUE(choice.at("message").at("content").is_null());
    EXPECT_EQ(choice.at("message").at("tool_calls").at(0).at("function").at("name"), "f");
    EXPECT_FALSE(choice.at("message").at("tool_calls").at(0).contains("index"));
}

TEST(ApiTools, WhatIsNoCallStaysText) {
    ScriptedServer server({}, kToolTemplate);
    server.engine.set_script({"<tool_call>\n{\"name\": "});
    const json choice = json::parse(server.post("/v1/chat/completions", tool_request("")).body).at("choices").at(0);
    EXPECT_EQ(choice.at("finish_reason"), "stop");
    EXPECT_EQ(choice.at("message").at("content"), "<tool_call>\n{\"name\": ");
}

TEST(ApiTools, EndAfterOneCallWhereAsked) {
    ScriptedServer server({}, kToolTemplate);
    // The test never calls go_on(), so the second call could come only if the answer did not end after the first.
    server.engine.set_script({std::string(kCall), "|", std::string(kCall)});
    const json answer =
        json::parse(server.post("/v1/chat/completions", tool_request(R"(, "parallel_tool_calls": false)")).body);
    EXPECT_EQ(answer.at("slipstream").at("stop_reason"), "eos");
    const json& choice = answer.at("choices").at(0);
    EXPECT_EQ(choice.at("finish_reason"), "tool_calls");
    EXPECT_EQ(choice.at("message").at("tool_calls").size(), 1U);
}

TEST(ApiTools, AForcedCallIsReadFromThePrompt) {
    ScriptedServer server({}, kToolTemplate);
    server.engine.set_script({"{\"x\": 1}}\n</tool_call>"});
    const RawAnswer answer = server.post(
        "/v1/chat/completions", tool_request(R"(, "tool_choice": {"type": "function", "function": {"name": "f"}})"));
    ASSERT_EQ(answer.status, 200) << answer.body;
    const json choice = json::parse(answer.body).at("choices").at(0);
    EXPECT_EQ(choice.at("message").at("tool_calls").at(0).at("function").at("name"), "f");
    EXPECT_EQ(choice.at("finish_reason"), "tool_calls");
}

TEST(ApiTools, AreRefusedWithoutATemplate) {
    const ScriptedServer server;
    EXPECT_EQ(error_of(server.post("/v1/chat/completions", tool_request(""))).at("param"), "tools");
}

TEST(Api, HasTheSmallEndpoints) {
    ScriptedServer server;
    EXPECT_EQ(server.get("/health").body, R"({"status":"ok"})");
    const json model = json::parse(server.get("/v1/models").body).at("data").at(0);
    EXPECT_EQ(model.at("id"), "org/scripted");
    EXPECT_EQ(model.at("max_model_len"), 300);
    EXPECT_EQ(model.at("meta").at("n_ctx"), 300);
    EXPECT_EQ(json::parse(server.get("/v1/models/org/scripted").body).at("id"), "org/scripted");
    EXPECT_EQ(json::parse(server.get("/v1/models/org%2Fscripted").body).at("id"), "org/scripted");
    EXPECT_EQ(server.get("/v1/models/other").status, 404);
    EXPECT_EQ(json::parse(server.get("/props").body).at("total_slots"), 1);
    EXPECT_FALSE(json::parse(server.get("/slots").body).at(0).at("is_processing").get<bool>());
    EXPECT_EQ(server.post("/tokenize", R"({"content": "AB"})").body, R"({"tokens":[65,66]})");
    EXPECT_EQ(server.post("/tokenize", R"({"content": "A", "with_pieces": true})").body,
              R"({"tokens":[{"id":65,"piece":"A"}]})");
    EXPECT_EQ(server.post("/detokenize", R"({"tokens": [65, 66]})").body, R"({"content":"AB"})");
    EXPECT_EQ(server.post("/detokenize", R"({"tokens": [256]})").status, 400);
    EXPECT_EQ(json::parse(server.post("/v1/chat/completions/input_tokens", kChat).body).at("input_tokens"), 2);
    server.set_loading();
    const RawAnswer loading = server.get("/health");
    EXPECT_EQ(loading.status, 503);
    EXPECT_EQ(error_of(loading).at("progress"), 0.25);
    EXPECT_EQ(server.get("/v1/models").status, 200);
}

TEST(Api, NamesTheBaseUrlWhereThereIsNothing) {
    const ScriptedServer server;
    for (const char* path : {"/page.html", "/api/chat", "/v1/embeddings", "/v1", "/v1/chat/completions/", "/infill"}) {
        const RawAnswer answer = server.get(path);
        EXPECT_EQ(answer.status, 404) << path;
        EXPECT_THAT(answer.body, HasSubstr("/v1")) << path;
    }
    const RawAnswer wrong_method = server.get("/v1/chat/completions");
    EXPECT_EQ(wrong_method.status, 405);
    EXPECT_THAT(wrong_method.head, HasSubstr("Allow: POST\r\n"));
}

TEST(Api, LogsNoText) {
    ScriptedServer server;
    static_cast<void>(server.post("/v1/completions", R"({"prompt": "SECRET"})"));
    static_cast<void>(server.post("/v1/completions", R"({"prompt": "SECRET", "n": 7})"));
    static_cast<void>(server.post("/v1/completions", R"({"prompt": "SECRET")"));
    ASSERT_TRUE(ScriptedServer::becomes([&] { return server.lines().find("request 3") != std::string::npos; }));
    EXPECT_THAT(server.lines(), Not(HasSubstr("SECRET")));
    EXPECT_THAT(server.lines(), HasSubstr("request 1 /v1/completions: 6 prompt tokens (1 kept)"));
    EXPECT_THAT(server.lines(), HasSubstr("request 2 /v1/completions refused: 400 n"));
}

// Access.

RawAnswer ask(const ScriptedServer& server, const std::string& request) {
    RawClient client = server.connect();
    client.send(request);
    return read_answer(client);
}

TEST(Access, TakesNamesOfThisMachineAlone) {
    const ScriptedServer server({.hosts = {"box.lan"}});
    const auto status = [&](const std::string& host) {
        return ask(server, "GET /v1/models HTTP/1.1\r\nHost: " + host + "\r\n\r\n").status;
    };
    for (const char* host : {"localhost", "LOCALHOST:8080", "127.0.0.1:1", "192.168.0.7", "[::1]:8080", "box.lan:80"})
        EXPECT_EQ(status(host), 200) << host;
    for (const char* host :
         {"evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "", "[::1", "[::1]evil", "1.2.3"})
        EXPECT_EQ(status(host), 403) << host;
}

// An <img> of a foreign page has no Origin; a link to the page of the server is followed.
TEST(Access, PagesOfOtherSitesLoadNothingWithoutAnOrigin) {
    ScriptedServer server;
    const auto answer = [&](const std::string& path, const std::string& fields) {
        return ask(server, fmt::format("GET {} HTTP/1.1\r\nHost: localhost:8080\r\n{}\r\n", path, fields)).status;
    };
    EXPECT_EQ(answer("/slipstream/live", "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\n"), 403);
    EXPECT_EQ(answer("/", "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\n"), 200);
    EXPECT_EQ(answer("/v1/models", "Sec-Fetch-Site: same-origin\r\nSec-Fetch-Mode: cors\r\n"), 200);
}

TEST(Access, TakesKnownOriginsAlone) {
    const ScriptedServer server({.origins = {"app://obsidian.md"}});
    const auto answer = [&](const std::string& origin) {
        return ask(server, "GET /v1/models HTTP/1.1\r\nHost: localhost:8080\r\nOrigin: " + origin + "\r\n\r\n");
    };
    EXPECT_THAT(answer("http://localhost:8080").head,
                HasSubstr("Access-Control-Allow-Origin: http://localhost:8080\r\n"));
    EXPECT_THAT(answer("app://obsidian.md").head, HasSubstr("Access-Control-Allow-Origin: app://obsidian.md\r\n"));
    for (const char* origin : {"http://evil.example", "http://localhost:3000", "null", "http://localhost:8080.evil"}) {
        const RawAnswer refused = answer(origin);
        EXPECT_EQ(refused.status, 403) << origin;
        EXPECT_THAT(refused.body, HasSubstr(std::string("--allow-origin ") + origin)) << origin;
        EXPECT_THAT(refused.head, Not(HasSubstr("Access-Control"))) << origin;
    }
}

TEST(Access, KnownPagesCanReadRefusals) {
    const ScriptedServer server({.key = "k", .origins = {"app://a"}});
    const RawAnswer refused = ask(server, "GET /v1/models HTTP/1.1\r\nHost: localhost\r\nOrigin: app://a\r\n\r\n");
    EXPECT_EQ(refused.status, 401);
    EXPECT_THAT(refused.head, HasSubstr("Access-Control-Allow-Origin: app://a\r\n"));
}

TEST(Access, AnswersPreflights) {
    const ScriptedServer server({.key = "k", .origins = {"app://a"}});
    const RawAnswer answer = ask(server,
                                 "OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nOrigin: app://a\r\n"
                                 "Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: a, b\r\n\r\n");
    EXPECT_EQ(answer.status, 204);
    EXPECT_THAT(answer.head, HasSubstr("Access-Control-Allow-Origin: app://a\r\n"));
    EXPECT_THAT(answer.head, HasSubstr("Access-Control-Allow-Headers: a, b\r\n"));
    EXPECT_THAT(answer.head, HasSubstr("Access-Control-Allow-Methods: GET, POST\r\n"));
}

TEST(Access, DemandsTheKey) {
    const ScriptedServer server({.key = "secret"});
    const auto status = [&](const std::string& field) {
        return ask(server, "GET /v1/models HTTP/1.1\r\nHost: localhost\r\n" + field + "\r\n").status;
    };
    EXPECT_EQ(status("Authorization: Bearer secret\r\n"), 200);
    EXPECT_EQ(status("authorization: bearer secret\r\n"), 200);
    EXPECT_EQ(status("x-api-key: secret\r\n"), 200);
    for (const char* wrong :
         {"", "Authorization: Bearer \r\n", "Authorization: Bearer secre\r\n", "Authorization: Bearer secretsecret\r\n",
          "Authorization: secret\r\n", "x-api-key: Secret\r\n"})
        EXPECT_EQ(status(wrong), 401) << wrong;
    EXPECT_EQ(ask(server, get_request("/health")).status, 200);
    EXPECT_EQ(ask(server, get_request("/metrics")).status, 401);
}

TEST(Access, TakesJsonAlone) {
    const ScriptedServer server;
    const auto status = [&](const std::string& type) {
        return ask(server, "POST /tokenize HTTP/1.1\r\nHost: localhost\r\n" + type +
                               "Content-Length: 16\r\n\r\n{\"content\": \"a\"}")
            .status;
    };
    EXPECT_EQ(status("Content-Type: application/json\r\n"), 200);
    EXPECT_EQ(status("Content-Type: Application/JSON; charset=utf-8\r\n"), 200);
    for (const char* type : {"", "Content-Type: text/plain\r\n", "Content-Type: application/jsonx\r\n",
                             "Content-Type: application/x-www-form-urlencoded\r\n"})
        EXPECT_EQ(status(type), 415) << type;
}

}  // namespace
}  // namespace slipstream::tools
