// The live view: what listeners get, how often, how much is kept for them, and that nothing is computed without them.
#include "tools/serve/live_feed.h"

#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/tools/serve/scripted_server.h"
#include "tools/serve/page_files.h"

namespace slipstream::tools {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

/// Keeps what is sent.
class KeptExchange final : public Exchange {
public:
    void expect_whole() override {}
    void answer(HttpAnswer) override {}
    void begin_stream(std::string silence) override { EXPECT_THAT(silence, StartsWith("data: {")); }
    void send(std::string text) override { take(text); }
    void send_if_read(std::string text) override { take(text); }
    void end() override { ended = true; }
    void end_and_close() override { ended = true; }

    [[nodiscard]] std::vector<json> of_type(const std::string& type) const {
        std::vector<json> some;
        for (const json& event : events)
            if (event.at("type") == type) some.push_back(event);
        return some;
    }

    std::vector<json> events;
    std::size_t longest = 0;
    bool ended = false;

private:
    void take(const std::string& text) {
        EXPECT_THAT(text, StartsWith("data: "));
        EXPECT_EQ(text.find("\n\n"), text.size() - 2);
        events.push_back(json::parse(text.substr(6)));
        longest = std::max(longest, text.size());
    }
};

class LiveFeedReports : public testing::Test {
protected:
    std::shared_ptr<KeptExchange> listen() {
        auto exchange = std::make_shared<KeptExchange>();
        EXPECT_EQ(feed_.add(exchange), LiveFeed::Added::Yes);
        return exchange;
    }
    /// A pass with `n_draft` draft tokens, of which `n_accepted` are accepted.
    void pass(std::int32_t n_draft = 2, std::int32_t n_accepted = 1) {
        feed_.pass({.n_nodes = n_draft + 1,
                    .n_tokens = n_accepted + 1,
                    .seconds = 0.5,
                    .tree =
                        [&] {
                            ++n_trees_;
                            PassTree tree{.nodes = {{.token = 'a', .accepted = true}},
                                          .sources = {"lookup", "bigram"},
                                          .sampled = 'z'};
                            for (std::int32_t i = 0; i < n_draft; ++i)
                                tree.nodes.push_back({.token = 'b' + i % 20,
                                                      .parent = i,
                                                      .sources = 1U + static_cast<std::uint32_t>(i) % 3,
                                                      .accepted = i < n_accepted});
                            return tree;
                        },
                    .link_busy = [] { return std::vector<double>{0.75}; }});
    }
    void advance(milliseconds by) { now_ += by; }

    ByteTokenizer tokenizer_;
    LiveFeed::Clock::time_point now_ = LiveFeed::Clock::now();
    LiveFeed feed_{{.model = "m", .fingerprint = "f", .options = {"--temperature", "0"}, .context_tokens = 64},
                   tokenizer_,
                   [] { return 3; },
                   [this] { return now_; }};
    int n_trees_ = 0;
};

TEST_F(LiveFeedReports, TellsModelAndPlanFirst) {
    const auto early = listen();
    ASSERT_EQ(early->events.size(), 1U);
    EXPECT_EQ(early->events[0], json({{"type", "hello"},
                                      {"model", "m"},
                                      {"system_fingerprint", "f"},
                                      {"options", {"--temperature", "0"}},
                                      {"n_ctx", 64},
                                      {"plan", nullptr}}));
    feed_.set_plan(32, R"({"kv_bytes": 5})");
    const auto late = listen();
    ASSERT_EQ(early->events.size(), 2U);
    EXPECT_EQ(early->events[1], late->events.at(0));
    EXPECT_EQ(late->events[0].at("plan").at("kv_bytes"), 5);
    EXPECT_EQ(late->events[0].at("n_ctx"), 32);
}

TEST_F(LiveFeedReports, TellsTheTreeAndThePathThatWasAccepted) {
    const auto listener = listen();
    feed_.begin_text(7, 3);
    feed_.start_prompt(0);
    advance(milliseconds(200));
    pass();
    const json event = listener->of_type("state").back();
    EXPECT_EQ(event.at("tree"), json({{"size", 3},
                                      {"sources", {"lookup", "bigram"}},
                                      {"nodes",
                                       {{{"text", "a"}, {"parent", -1}, {"sources", 0}, {"accepted", true}},
                                        {{"text", "b"}, {"parent", 0}, {"sources", 1}, {"accepted", true}},
                                        {{"text", "c"}, {"parent", 1}, {"sources", 2}, {"accepted", false}}}},
                                      {"sampled", "z"}}));
    EXPECT_EQ(event.at("passes"),
              json({{"n", 1}, {"tokens", 2}, {"draft_tokens", 2}, {"accepted", 1}, {"seconds", 0.5}}));
    EXPECT_EQ(event.at("link_busy"), json({0.75}));
    EXPECT_EQ(event.at("text").at("phase"), "answer");
    EXPECT_EQ(event.at("text").at("generated"), 2);
    EXPECT_EQ(event.at("waiting"), 3);
}

TEST_F(LiveFeedReports, TellsHowLongAPromptTakes) {
    const auto listener = listen();
    feed_.begin_text(1, 1000);
    feed_.start_prompt(200);
    advance(milliseconds(2000));
    feed_.prompt(400, [] { return std::vector<double>{0.5}; });
    const json text = listener->of_type("state").back().at("text");
    EXPECT_EQ(text.at("phase"), "prompt");
    EXPECT_EQ(text.at("prompt_done"), 400);
    EXPECT_EQ(text.at("reused_tokens"), 200);
    EXPECT_DOUBLE_EQ(text.at("seconds_left"), 6.0);  // 200 tokens took 2 s, 600 are left
}

TEST_F(LiveFeedReports, TellsAtMostTenEventsASecondAndSumsUpTheRest) {
    const auto listener = listen();
    feed_.begin_text(1, 5);
    for (int i = 0; i < 3000; ++i) {
        advance(milliseconds(1));
        pass();
    }
    feed_.end_text("eos", 5999);
    advance(milliseconds(100));
    feed_.flush();
    const std::vector<json> states = listener->of_type("state");
    EXPECT_LE(states.size(), 32U);  // at both ends and each tenth of 3.1 s
    EXPECT_GE(states.size(), 30U);
    std::int64_t n_passes = 0;
    for (const json& state : states) n_passes += state.contains("passes") ? state.at("passes").at("n").get<int>() : 0;
    EXPECT_EQ(n_passes, 3000);
    EXPECT_EQ(states.back().at("text").at("reason"), "eos");
    EXPECT_EQ(states.back().at("text").at("phase"), "ended");
    EXPECT_EQ(states.back().at("text").at("generated"), 5999);
    EXPECT_LE(n_trees_, 61);  // two trees an event
    const std::size_t n_events = listener->events.size();
    advance(milliseconds(1000));
    feed_.flush();
    EXPECT_EQ(listener->events.size(), n_events);  // nothing has changed
}

TEST_F(LiveFeedReports, ComputesNothingIfNobodyListens) {
    feed_.begin_text(1, 5);
    const auto busy = [&] {
        ADD_FAILURE() << "nobody listens";
        return std::vector<double>{};
    };
    for (int i = 0; i < 10; ++i) {
        advance(milliseconds(200));
        feed_.prompt(i, busy);
        pass();
    }
    EXPECT_EQ(n_trees_, 0);
    const auto listener = listen();
    pass();
    EXPECT_EQ(n_trees_, 1);
    listener->cancel();
    advance(milliseconds(200));
    pass();  // finds out that the listener has left
    advance(milliseconds(200));
    pass();
    EXPECT_LE(n_trees_, 2);
    EXPECT_EQ(listener->of_type("state").size(), 1U);
    EXPECT_TRUE(listener->ended);  // a server that stops cancels its exchanges first
}

TEST_F(LiveFeedReports, AnEventHasABoundedSize) {
    const auto listener = listen();
    feed_.begin_text(1, 5);
    advance(milliseconds(200));
    pass(5000, 4999);
    EXPECT_EQ(listener->of_type("state").back().at("tree").at("nodes").size(),
              static_cast<std::size_t>(LiveFeed::kMostNodes));
    EXPECT_EQ(listener->of_type("state").back().at("tree").at("size"), 5001);
    EXPECT_LT(listener->longest, HttpLimits{}.live_bytes);
}

TEST_F(LiveFeedReports, HasALimitOnListeners) {
    std::vector<std::shared_ptr<KeptExchange>> listeners;
    for (std::size_t i = 0; i < LiveFeed::kMostListeners; ++i) listeners.push_back(listen());
    const auto further = std::make_shared<KeptExchange>();
    EXPECT_EQ(feed_.add(further), LiveFeed::Added::Full);
    EXPECT_TRUE(further->events.empty());
    listeners.front()->cancel();
    EXPECT_EQ(feed_.add(further), LiveFeed::Added::Yes);
    feed_.close();
    EXPECT_TRUE(listeners.back()->ended);
    EXPECT_TRUE(further->ended);
    EXPECT_EQ(feed_.add(std::make_shared<KeptExchange>()), LiveFeed::Added::Closed);
}

// Over sockets.

std::string request_with_key(std::string_view path, std::string_view key) {
    return "GET " + std::string(path) + " HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + std::string(key) +
           "\r\n\r\n";
}

TEST(Live, NeedsTheKeyWhereThePageDoesNot) {
    const ScriptedServer server({.key = "sesame"});
    for (const PageFile& file : page_files()) {
        const RawAnswer answer = server.get(file.path);
        EXPECT_EQ(answer.status, 200);
        EXPECT_EQ(answer.body, file.text);
        EXPECT_THAT(answer.head, HasSubstr("Content-Security-Policy: default-src 'none'; script-src 'self'; "
                                           "style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; "
                                           "form-action 'none'; frame-ancestors 'none'; "
                                           "require-trusted-types-for 'script'; trusted-types 'none'\r\n"));
        EXPECT_THAT(answer.head, HasSubstr("X-Content-Type-Options: nosniff\r\n"));
        EXPECT_THAT(answer.head, HasSubstr("X-Frame-Options: DENY\r\n"));
    }
    EXPECT_EQ(server.get("/slipstream/live").status, 401);
    {
        RawClient head = server.connect();
        head.send("HEAD /slipstream/live HTTP/1.1\r\nHost: localhost\r\nx-api-key: sesame\r\n\r\n");
        EXPECT_THAT(head.read_until("\r\n\r\n"), HasSubstr("Content-Length: 0\r\n"));
    }
    RawClient client = server.connect();
    client.send(request_with_key("/slipstream/live", "sesame"));
    EXPECT_THAT(client.read_until("\n\n"), HasSubstr("Content-Type: text/event-stream\r\n"));
}

TEST(Live, ThePageIsSmallAndLoadsNothingFromElsewhere) {
    std::size_t n_bytes = 0;
    for (const PageFile& file : page_files()) {
        n_bytes += file.text.size();
        // The name of SVG's space of names is no address that is loaded.
        std::string text(file.text);
        for (std::size_t at = 0; (at = text.find("http://www.w3.org/2000/svg")) != std::string::npos;)
            text.erase(at, std::string_view("http://www.w3.org/2000/svg").size());
        EXPECT_THAT(text, Not(HasSubstr("src=\"http")));
        EXPECT_THAT(text, Not(HasSubstr("href=\"http")));
        EXPECT_THAT(text, Not(HasSubstr("url(")));
        EXPECT_THAT(text, Not(HasSubstr("innerHTML")));
        EXPECT_THAT(text, Not(HasSubstr("http://")));
    }
    EXPECT_LT(n_bytes, 100'000U);
}

TEST(Live, TellsEveryClientsTextsAndKeepsThemOutOfTheLog) {
    ScriptedServer server;
    server.engine.set_script({"SECRET", "|", "WORD"});
    RawClient listener = server.connect();
    listener.send(get_request("/slipstream/live"));
    EXPECT_THAT(listener.read_until("\"type\":\"hello\""), HasSubstr("200 OK"));
    RawClient client = server.connect();
    client.send(post_request("/v1/completions", R"({"prompt": "Hi", "stream": true})"));
    client.read_until("SECRET");
    std::this_thread::sleep_for(LiveFeed::kInterval);  // so that the next pass is told at once
    server.engine.go_on();
    client.read_until("[DONE]");
    const std::string told = listener.read_until("\"phase\":\"ended\"");
    EXPECT_THAT(told, HasSubstr("\"tree\":{\"size\":2,\"sources\":[\"scripted\"]"));
    EXPECT_THAT(told, HasSubstr("\"prompt_tokens\":2"));
    EXPECT_THAT(server.lines(), Not(HasSubstr("SECRET")));
    EXPECT_THAT(server.lines(), Not(HasSubstr("tree")));
}

TEST(Live, RefusesListenersPastTheLimit) {
    const ScriptedServer server;
    std::vector<RawClient> clients;
    for (std::size_t i = 0; i < LiveFeed::kMostListeners; ++i) {
        clients.push_back(server.connect());
        clients.back().send(get_request("/slipstream/live"));
        clients.back().read_until("hello");
    }
    const RawAnswer refused = server.get("/slipstream/live");
    EXPECT_EQ(refused.status, 503);
    EXPECT_THAT(refused.body, HasSubstr("all 8 listeners are in use"));
    clients.pop_back();
    EXPECT_TRUE(ScriptedServer::becomes([&] {
        RawClient client = server.connect();
        client.send(get_request("/slipstream/live"));
        return client.read_until("\r\n\r\n").starts_with("HTTP/1.1 200 ");
    }));
}

TEST(Live, EndsWithTheServer) {
    std::optional<RawClient> client;
    {
        const ScriptedServer server;
        client.emplace(server.connect());
        client->send(get_request("/slipstream/live"));
        client->read_until("hello");
    }
    EXPECT_THAT(client->read_all(), HasSubstr("0\r\n\r\n"));  // the last chunk: the stream was not cut off
}

}  // namespace
}  // namespace slipstream::tools
