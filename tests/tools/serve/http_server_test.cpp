// HttpServer over real sockets, with a clock that the tests move and a handler in place of the API: requests in any
// pieces, limits of size and time, malformed and ambiguous requests, clients that leave.
#include "tools/serve/http_server.h"

#include <array>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <semaphore>
#include <thread>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tools/serve/manual_clock.h"
#include "tests/tools/serve/raw_client.h"

namespace slipstream::tools {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

/// Answers /echo with the body, /refused at the head, /pause when the test says so, before which the thread of the
/// sockets does nothing else, and hands all others to the test.
class Handler final : public HttpHandler {
public:
    Verdict check_head(const HttpRequest& request) override {
        if (request.path == "/refused") return {.refusal = HttpAnswer{.status = 403, .body = "no"}};
        return {.fields = {{"X-Always", "yes"}}};
    }
    void handle(HttpRequest request, const std::shared_ptr<Exchange>& exchange) override {
        if (request.path == "/echo") return exchange->answer({.body = request.body});
        if (request.path == "/pause") {
            paused_.release();
            goes_on_.acquire();
            return exchange->answer({.body = "paused"});
        }
        const std::lock_guard lock(mutex_);
        waiting_.push_back(exchange);
        changed_.notify_all();
    }
    HttpAnswer error_answer(int status, const std::string& reason, std::string_view /*path*/) override {
        return {.status = status, .body = reason};
    }

    /// Waits until the thread of the sockets pauses.
    void await_pause() {
        if (!paused_.try_acquire_for(seconds(20))) throw std::runtime_error("no pause");
    }
    void go_on() { goes_on_.release(); }
    std::shared_ptr<Exchange> next() {
        std::unique_lock lock(mutex_);
        if (!changed_.wait_for(lock, seconds(20), [&] { return !waiting_.empty(); }))
            throw std::runtime_error("no request");
        std::shared_ptr<Exchange> exchange = std::move(waiting_.front());
        waiting_.pop_front();
        return exchange;
    }

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::shared_ptr<Exchange>> waiting_;
    std::counting_semaphore<8> paused_{0};
    std::counting_semaphore<8> goes_on_{0};
};

class HttpServerSockets : public testing::Test {
protected:
    HttpServerSockets() {
        thread_ = std::thread([this] { server_.run(); });
    }
    ~HttpServerSockets() override {
        server_.cancel_all();
        server_.stop();
        thread_.join();
    }
    [[nodiscard]] RawClient connect() const { return RawClient(server_.port()); }
    std::string answer_to(std::string_view request) {
        RawClient client = connect();
        client.send(request);
        return client.read_all();
    }
    /// Waits for the server to look at its deadlines.
    static void let_tick() { std::this_thread::sleep_for(milliseconds(60)); }
    static bool becomes_cancelled(const Exchange& exchange) {
        for (int i = 0; i < 2000 && !exchange.cancelled().load(); ++i) std::this_thread::sleep_for(milliseconds(10));
        return exchange.cancelled().load();
    }

    Handler handler_;
    ManualClock clock_;
    HttpServer server_{{.port = 0, .limits = {.n_connections = 8}, .clock = clock_.reader(), .tick = milliseconds(5)},
                       handler_};
    std::thread thread_;
};

TEST_F(HttpServerSockets, AnswersAndKeepsTheConnection) {
    RawClient client = connect();
    for (const std::string body : {"one", "", "three"}) {
        client.send(post_request("/echo", body));
        const RawAnswer answer = read_answer(client);
        EXPECT_EQ(answer.status, 200);
        EXPECT_EQ(answer.body, body);
        EXPECT_THAT(answer.head, HasSubstr("Connection: keep-alive\r\nKeep-Alive: timeout=75\r\n"));
        EXPECT_THAT(answer.head, HasSubstr("X-Always: yes\r\n"));
    }
}

TEST_F(HttpServerSockets, TakesARequestByteByByte) {
    RawClient client = connect();
    for (const char byte : post_request("/echo", "slow")) {
        client.send({&byte, 1});
        std::this_thread::sleep_for(milliseconds(1));
    }
    EXPECT_EQ(read_answer(client).body, "slow");
}

TEST_F(HttpServerSockets, TakesAChunkedBodyByteByByte) {
    RawClient client = connect();
    for (const std::string chunks : {"0\r\n\r\n", "3\r\nabc\r\n0\r\n\r\n"}) {
        for (const char byte : "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks) {
            client.send({&byte, 1});
            std::this_thread::sleep_for(milliseconds(1));
        }
        EXPECT_EQ(read_answer(client).body, chunks.size() > 5 ? "abc" : "");
    }
}

TEST_F(HttpServerSockets, AnswersPipelinedRequestsInOrder) {
    RawClient client = connect();
    client.send(post_request("/echo", "first") + post_request("/refused", "") + post_request("/echo", "third"));
    EXPECT_EQ(read_answer(client).body, "first");
    EXPECT_EQ(read_answer(client).status, 403);
    EXPECT_EQ(read_answer(client).body, "third");
}

TEST_F(HttpServerSockets, APipelinedRequestWaitsForTheAnswerBeforeIt) {
    RawClient client = connect();
    client.send(get_request("/wait") + post_request("/echo", "second"));
    const auto exchange = handler_.next();
    EXPECT_TRUE(client.hears_nothing(milliseconds(100)));
    exchange->answer({.body = "first"});
    EXPECT_EQ(read_answer(client).body, "first");
    EXPECT_EQ(read_answer(client).body, "second");
}

TEST_F(HttpServerSockets, TakesChunkedBodies) {
    RawClient client = connect();
    client.send(
        "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nwiki\r\n5;x=y\r\npedia\r\n0\r\nX: "
        "y\r\n\r\n");
    EXPECT_EQ(read_answer(client).body, "wikipedia");
}

TEST_F(HttpServerSockets, AsksForTheBodyIfTheClientWaits) {
    RawClient client = connect();
    client.send("POST /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
    EXPECT_EQ(client.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
    client.send("ok");
    EXPECT_EQ(read_answer(client).body, "ok");
    client.send("POST /refused HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
    EXPECT_EQ(read_answer(client).status, 403);  // without having asked
}

TEST_F(HttpServerSockets, Http10ClosesUnlessAskedNotTo) {
    EXPECT_THAT(answer_to("GET /echo HTTP/1.0\r\n\r\n"), HasSubstr("Connection: close\r\n"));
    RawClient client = connect();
    client.send("GET /echo HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    EXPECT_THAT(read_answer(client).head, HasSubstr("Connection: keep-alive\r\n"));
    client.send("GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    const auto exchange = handler_.next();
    exchange->begin_stream("silence");
    exchange->send("text");
    exchange->end();
    const std::string answer = client.read_all();
    EXPECT_THAT(answer, Not(HasSubstr("chunked")));
    EXPECT_THAT(answer, EndsWith("\r\n\r\ntext"));
}

TEST_F(HttpServerSockets, HeadHasNoBody) {
    RawClient client = connect();
    client.send("HEAD /echo HTTP/1.1\r\nHost: a\r\n\r\n" + post_request("/echo", "next"));
    EXPECT_THAT(client.read_until("\r\n\r\n"), HasSubstr("Content-Length: 0"));
    EXPECT_EQ(read_answer(client).body, "next");
}

// Forms about whose end two programs on one way could disagree, and others that are no HTTP.
TEST_F(HttpServerSockets, RefusesAmbiguousRequests) {
    constexpr std::array<std::string_view, 23> kBad{
        "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
        "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3, 3\r\n\r\nabc",
        "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: +3\r\n\r\nabc",
        "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\n\r\nabc",
        "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\nabc",
        "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, gzip\r\n\r\nabc",
        "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST /echo HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n0\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc",
        "GET /echo HTTP/1.1\nHost: a\n\n",
        "GET /echo HTTP/1.1\r\nHost: a\nX: b\r\n\r\n",
        "GET /echo HTTP/1.1\r\n\r\n",
        "GET /echo HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "GET http://b/echo HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET https://a/echo HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET http://a@b/echo HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /echo HTTP/2.0\r\nHost: a\r\n\r\n",
        "\x16\x03\x01\x02"};
    for (const std::string_view request : kBad) EXPECT_THAT(answer_to(request), StartsWith("HTTP/1.1 400 ")) << request;
    EXPECT_THAT(answer_to("BREW /echo HTTP/1.1\r\nHost: a\r\n\r\n"), StartsWith("HTTP/1.1 405 "));
    EXPECT_THAT(answer_to("GET /echo HTTP/1.1\r\nHost: a\r\nExpect: tea\r\n\r\n"), StartsWith("HTTP/1.1 417 "));
}

TEST_F(HttpServerSockets, TakesTheAbsoluteFormOfItsOwnHost) {
    const std::string plain = answer_to("GET /echo?x HTTP/1.1\r\nHost: a:80\r\nConnection: close\r\n\r\n");
    EXPECT_THAT(plain, StartsWith("HTTP/1.1 200 "));
    for (const char* target : {"http://a:80/echo?x", "HTTP://A:80/echo?x"})
        EXPECT_EQ(answer_to(fmt::format("GET {} HTTP/1.1\r\nHost: a:80\r\nConnection: close\r\n\r\n", target)), plain);
    RawClient client = connect();  // a path is not needed
    client.send("GET http://a:80?x HTTP/1.1\r\nHost: a:80\r\nConnection: close\r\n\r\n");
    handler_.next()->answer({.body = "root"});
    EXPECT_THAT(client.read_all(), EndsWith("root"));
}

TEST_F(HttpServerSockets, BoundsHeadFieldsAndBody) {
    const std::string long_field = "GET /echo HTTP/1.1\r\nHost: a\r\nX: " + std::string(40 << 10, 'x') + "\r\n\r\n";
    EXPECT_THAT(answer_to(long_field), StartsWith("HTTP/1.1 431 "));
    std::string many = "GET /echo HTTP/1.1\r\nHost: a\r\n";
    for (int i = 0; i < 100; ++i) many += "X: y\r\n";
    EXPECT_THAT(answer_to(many + "\r\n"), StartsWith("HTTP/1.1 431 "));
    EXPECT_THAT(answer_to("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 16777217\r\n\r\n"),
                StartsWith("HTTP/1.1 413 "));
    EXPECT_THAT(answer_to("POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1000001\r\n"),
                StartsWith("HTTP/1.1 413 "));
    const std::string endless =
        "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1;" + std::string(90 << 10, 'x');
    EXPECT_THAT(answer_to(endless), StartsWith("HTTP/1.1 400 "));
}

// The head is counted in all, also if it comes in parts of which each is small.
TEST_F(HttpServerSockets, BoundsAHeadThatComesInParts) {
    RawClient client = connect();
    client.send("GET /echo HTTP/1.1\r\nHost: a\r\n");
    const std::string field = "X: " + std::string(1000, 'x') + "\r\n";
    for (int i = 0; i < 40 && client.hears_nothing(milliseconds(2)); ++i) client.send(field);
    EXPECT_THAT(client.read_all(), StartsWith("HTTP/1.1 431 "));
}

TEST_F(HttpServerSockets, EveryPrefixOfARequestThenSilenceEnds) {
    const std::string request = post_request("/echo", "12345");
    for (std::size_t n = 1; n < request.size(); n += 7) {
        RawClient client = connect();
        client.send(request.substr(0, n));
        let_tick();
        clock_.advance(seconds(61));
        EXPECT_THAT(client.read_all(), StartsWith("HTTP/1.1 408 ")) << n;
    }
}

TEST_F(HttpServerSockets, ASlowHeadHasTenSecondsFromItsFirstByte) {
    RawClient client = connect();
    let_tick();
    clock_.advance(seconds(70));  // not a byte yet: idle
    client.send("GET /echo");
    let_tick();
    clock_.advance(seconds(9));
    client.send(" HTTP/1.1\r\n");
    let_tick();
    EXPECT_TRUE(client.hears_nothing(milliseconds(20)));
    clock_.advance(seconds(2));
    EXPECT_THAT(client.read_all(), StartsWith("HTTP/1.1 408 "));
}

TEST_F(HttpServerSockets, ClosesAnIdleConnectionWithoutAWord) {
    RawClient client = connect();
    client.send(post_request("/echo", "a"));
    EXPECT_EQ(read_answer(client).status, 200);
    let_tick();
    clock_.advance(seconds(76));
    EXPECT_EQ(client.read_all(), "");
}

TEST_F(HttpServerSockets, FillsTheSilenceOfAStream) {
    RawClient client = connect();
    client.send(get_request("/stream"));
    const auto exchange = handler_.next();
    exchange->begin_stream("data: silence\n\n");
    EXPECT_THAT(client.read_until("\r\n\r\n"), HasSubstr("Content-Type: text/event-stream\r\n"));
    for (int i = 0; i < 3; ++i) {
        clock_.advance(seconds(15));
        EXPECT_EQ(client.read_until("silence\n\n\r\n"), "f\r\ndata: silence\n\n\r\n");
    }
    exchange->send("text");
    EXPECT_EQ(client.read_until("text\r\n"), "4\r\ntext\r\n");
    clock_.advance(seconds(14));
    EXPECT_TRUE(client.hears_nothing(milliseconds(60)));
    exchange->end();
    EXPECT_EQ(client.read_until("0\r\n\r\n"), "0\r\n\r\n");
    client.send(post_request("/echo", "next"));
    EXPECT_EQ(read_answer(client).body, "next");
}

TEST_F(HttpServerSockets, FillsTheSilenceBeforeAWholeAnswer) {
    RawClient client = connect();
    client.send(get_request("/whole"));
    const auto exchange = handler_.next();
    exchange->expect_whole();
    let_tick();
    clock_.advance(seconds(14));
    EXPECT_TRUE(client.hears_nothing(milliseconds(60)));
    clock_.advance(seconds(1));
    EXPECT_THAT(client.read_until("\r\n\r\n"), HasSubstr("Transfer-Encoding: chunked\r\n"));
    EXPECT_EQ(client.read_until(" \r\n"), "1\r\n \r\n");
    clock_.advance(seconds(15));
    EXPECT_EQ(client.read_until(" \r\n"), "1\r\n \r\n");
    exchange->answer({.status = 503, .body = "{}"});  // too late for the status
    EXPECT_EQ(client.read_until("0\r\n\r\n"), "2\r\n{}\r\n0\r\n\r\n");
}

TEST_F(HttpServerSockets, AnAnswerInTimeHasItsOwnStatusAndLength) {
    RawClient client = connect();
    client.send(get_request("/whole"));
    const auto exchange = handler_.next();
    exchange->expect_whole();
    exchange->answer({.status = 503, .fields = {{"Retry-After", "10"}}, .body = "full"});
    const RawAnswer answer = read_answer(client);
    EXPECT_EQ(answer.status, 503);
    EXPECT_EQ(answer.body, "full");
    EXPECT_THAT(answer.head, HasSubstr("Retry-After: 10\r\n"));
}

TEST_F(HttpServerSockets, AClientThatLeavesCancelsItsRequestAlone) {
    RawClient stays = connect();
    stays.send(get_request("/a"));
    const auto first = handler_.next();
    RawClient leaves = connect();
    leaves.send(get_request("/b"));
    const auto second = handler_.next();
    leaves.leave();
    EXPECT_TRUE(becomes_cancelled(*second));
    EXPECT_FALSE(first->cancelled().load());
    second->answer({.body = "nobody reads this"});
    first->answer({.body = "first"});
    EXPECT_EQ(read_answer(stays).body, "first");
}

TEST_F(HttpServerSockets, AHalfClosedClientHasLeft) {
    RawClient client = connect();
    client.send(get_request("/a"));
    const auto exchange = handler_.next();
    client.close_own_side();
    EXPECT_TRUE(becomes_cancelled(*exchange));
}

TEST_F(HttpServerSockets, AClientThatDoesNotReadIsGone) {
    RawClient client = connect();
    client.send(get_request("/stream"));
    const auto exchange = handler_.next();
    exchange->begin_stream("s");
    const std::string part(64 << 10, 'x');
    for (int i = 0; i < 2000 && !exchange->cancelled().load(); ++i) {
        exchange->send(part);
        std::this_thread::sleep_for(milliseconds(1));
    }
    EXPECT_TRUE(exchange->cancelled().load());
}

TEST_F(HttpServerSockets, AListenerThatDoesNotReadLosesWholeEventsAndStays) {
    RawClient client = connect();
    client.send(get_request("/stream"));
    const auto exchange = handler_.next();
    exchange->begin_stream("s");
    constexpr int kEvents = 20'000;  // of 1 KiB: more than the buffers of both sides
    for (int i = 0; i < kEvents; ++i) exchange->send_if_read("<" + std::string(1022, 'x') + ">");
    let_tick();
    EXPECT_FALSE(exchange->cancelled().load());
    exchange->send("last");
    exchange->end();
    const RawAnswer answer = read_answer(client);
    EXPECT_THAT(answer.body, EndsWith("last"));
    EXPECT_EQ(answer.body.size() % 1024, 4U);
    EXPECT_LT(answer.body.size(), std::size_t{kEvents} * 1024);
    for (std::size_t at = 0; at + 4 < answer.body.size(); at += 1024) {
        ASSERT_EQ(answer.body[at], '<');
        ASSERT_EQ(answer.body[at + 1023], '>');
    }
}

TEST_F(HttpServerSockets, AClientThatReadsNothingForHalfAMinuteIsGone) {
    RawClient client = connect();
    client.send(get_request("/whole"));
    const auto exchange = handler_.next();
    exchange->answer({.body = std::string(64 << 20, 'x')});  // more than the buffers of both sides
    client.read_until("\r\n\r\n");  // the server has begun to send, however slow the machine is
    // Each step is long enough for a write that the system could still take.
    for (int i = 0; i < 20; ++i) {
        std::this_thread::sleep_for(milliseconds(50));
        clock_.advance(seconds(31));
    }
    std::this_thread::sleep_for(milliseconds(50));
    const std::size_t n_read = client.read_all().size();
    EXPECT_LT(n_read, std::size_t{64} << 20);
}

TEST_F(HttpServerSockets, RefusesConnectionsPastTheLimit) {
    std::vector<RawClient> clients;
    for (int i = 0; i < 8; ++i) {
        clients.push_back(connect());
        clients.back().send(post_request("/echo", "in"));
        EXPECT_EQ(read_answer(clients.back()).status, 200);
    }
    EXPECT_THAT(connect().read_all(), StartsWith("HTTP/1.1 503 "));
    clients.clear();
    RawClient client = connect();
    client.send(post_request("/echo", "again"));
    EXPECT_EQ(read_answer(client).body, "again");
}

// The new connection is accepted before the server's read of the old one has ended.
TEST_F(HttpServerSockets, AClientThatComesBackFindsItsOldPlaceFree) {
    std::vector<RawClient> clients;
    for (int i = 0; i < 8; ++i) {
        clients.push_back(connect());
        clients.back().send(post_request("/echo", "in"));
        EXPECT_EQ(read_answer(clients.back()).status, 200);
    }
    clients[0].send(get_request("/pause"));
    handler_.await_pause();
    clients[1].send(get_request("/pause"));
    clients[2].leave();
    RawClient first = connect();
    handler_.go_on();
    handler_.await_pause();  // of clients[1], after which the server accepts as long as there are connections
    clients[3].leave();
    RawClient second = connect();
    handler_.go_on();
    for (RawClient* client : {&first, &second}) {
        client->send(post_request("/echo", "again"));
        EXPECT_EQ(read_answer(*client).body, "again");
    }
}

TEST_F(HttpServerSockets, StopsWithItsAnswersSent) {
    RawClient waits = connect();
    waits.send(get_request("/a"));
    const auto exchange = handler_.next();
    RawClient idle = connect();
    let_tick();
    server_.cancel_all();
    EXPECT_TRUE(becomes_cancelled(*exchange));
    EXPECT_EQ(idle.read_all(), "");
    exchange->answer({.status = 503, .body = "stopping"});
    server_.stop();
    EXPECT_EQ(read_answer(waits).body, "stopping");
}

TEST_F(HttpServerSockets, AnAnswerThatIsBeingSentOutlivesTheEnd) {
    RawClient client = connect();
    client.send(get_request("/a"));
    const std::string body(8 << 20, 'x');  // more than the buffers of both sides, which grow only as the client reads
    handler_.next()->answer({.body = body});
    let_tick();
    server_.cancel_all();
    let_tick();
    server_.stop();
    EXPECT_EQ(read_answer(client).body.size(), body.size());
}

TEST_F(HttpServerSockets, ABusyPortIsNamed) {
    try {
        const HttpServer second({.port = server_.port()}, handler_);
        ADD_FAILURE();
    } catch (const std::exception& error) {
        EXPECT_THAT(error.what(), HasSubstr("--port"));
    }
}

}  // namespace
}  // namespace slipstream::tools
