// HTTP/1.1 over TCP: all sockets on one thread, with a limit on everything that a client can make the server hold or
// wait for. Only http_server.cpp includes Boost.Asio, which is slow to compile.
//
// A connection carries one request at a time; a pipelined one waits until the answer before it has ended. While an
// answer is made, a read is pending, so that a client that leaves, or closes its side, is noticed at once: its exchange
// is cancelled. Time comes from a clock that tests replace; deadlines are looked at in ticks.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/serve/exchange.h"
#include "tools/serve/http_message.h"
#include "tools/serve/http_reader.h"

namespace slipstream::tools {

struct HttpLimits {
    HttpSizes sizes{};                   // limits for the sizes of a request
    std::chrono::seconds head_time{10};  // longest time from the first byte of a request to the end of its head
    std::chrono::seconds body_time{60};  // longest time from the end of the head to the end of the body
    std::size_t n_connections = 64;
    std::chrono::seconds idle_time{75};  // longest wait for the first byte of a request; sent in the field Keep-Alive
    // Most bytes of a stream that a client may leave unread; with more it is disconnected.
    std::size_t unread_bytes = 1 << 20;
    std::size_t live_bytes = 64 << 10;  // unread bytes from which on send_if_read() drops its text
    // A client that reads nothing for so long, while bytes wait to be sent, is disconnected.
    std::chrono::seconds unread_time{30};
    std::chrono::seconds silence_time{15};  // after so long without a byte, a waiting client gets a blank or an event
    std::chrono::seconds linger_time{2};    // time for the client to read the last answer before the socket is closed
};

using ServerTime = std::chrono::steady_clock::time_point;

struct HttpServerOptions {
    std::string host;           // name or address; empty: 127.0.0.1 and ::1
    std::uint16_t port = 8080;  // 0: any free one
    HttpLimits limits{};
    std::function<ServerTime()> clock = [] { return std::chrono::steady_clock::now(); };
    std::chrono::milliseconds tick{100};        // time between two checks of the deadlines
    const std::atomic<bool>* cancel = nullptr;  // if it turns true, cancel_all() is called at the next tick
};

/// Answers the requests of an HttpServer. All functions are called on the thread of the sockets and must not wait.
class HttpHandler {
public:
    HttpHandler() = default;
    HttpHandler(const HttpHandler&) = delete;
    HttpHandler& operator=(const HttpHandler&) = delete;
    virtual ~HttpHandler() = default;

    struct Verdict {
        std::optional<HttpAnswer> refusal{};  // sent as the answer; a body is then not read: the connection is closed
        std::vector<HttpField> fields{};      // header fields for any answer to this request, errors included
    };
    /// Called when the head of a request is complete, before its body is read. Returns whether it is refused.
    [[nodiscard]] virtual Verdict check_head(const HttpRequest& request) = 0;
    /// Called when the request is complete. The handler must answer it by `exchange`, now or later.
    virtual void handle(HttpRequest request, const std::shared_ptr<Exchange>& exchange) = 0;
    /// Returns the answer to a request for `path` (empty: not known) that is broken or breaks a limit, with this status
    /// and reason.
    [[nodiscard]] virtual HttpAnswer error_answer(int status, const std::string& reason, std::string_view path) = 0;
};

class HttpServer {
public:
    /// Listens; connections are accepted by run(). `handler` must outlive this object. Throws IoError if it cannot
    /// listen on the host and port of `options`.
    HttpServer(HttpServerOptions options, HttpHandler& handler);
    ~HttpServer();
    HttpServer(const HttpServer&) = delete;
    HttpServer& operator=(const HttpServer&) = delete;

    [[nodiscard]] std::uint16_t port() const;
    /// Serves on the calling thread until stop() has been called and complete answers have been sent (within a second).
    void run();

    // Any thread may call these.

    /// Accepts no more connections, and cancels exchanges without a complete answer and requests that still arrive.
    void cancel_all();
    /// Ends run(), after at most a second for what is still to be sent.
    void stop();

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace slipstream::tools
