#include "tools/serve/http_server.h"

#include <poll.h>

#include <array>
#include <memory>
#include <new>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "tools/serve/http_framing.h"
#include "tools/serve/http_reader.h"

namespace slipstream::tools {

namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using Tcp = asio::ip::tcp;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kReadBytes = 16 << 10;
// Bytes of pipelined requests that are buffered while an answer is made; past them nothing is read until it has ended.
constexpr std::size_t kMostWaitingBytes = 64 << 10;
// Connections past HttpLimits::n_connections that get an answer (503) before they are closed; further ones are closed
// at once.
constexpr std::size_t kMostRefused = 16;
constexpr std::chrono::seconds kStopTime{1};

std::string chunk(std::string_view text) {
    return fmt::format("{:x}\r\n{}\r\n", text.size(), text);
}

}  // namespace

struct HttpServer::Impl {
    class Connection;
    class ConnectionExchange;

    Impl(HttpServerOptions with, HttpHandler& by) : options(std::move(with)), handler(by), timer(io) {}
    void listen();
    void listen_on(const Tcp::endpoint& endpoint);
    void accept(Tcp::acceptor& acceptor);
    void on_accept(Tcp::socket socket);
    void drop_closed();
    void tick();
    void close();

    HttpServerOptions options;
    HttpHandler& handler;
    asio::io_context io;
    std::vector<std::unique_ptr<Tcp::acceptor>> acceptors;
    std::set<std::shared_ptr<Connection>> connections;
    asio::steady_timer timer;
    bool closing = false;                      // after close(): no new connections and requests
    std::optional<Clock::time_point> stop_at;  // set by stop(): run() ends then at the latest
};

// Passes each call to the thread of the sockets. There it has no effect if the connection is closed or has completed
// this answer.
class HttpServer::Impl::ConnectionExchange final : public Exchange,
                                                   public std::enable_shared_from_this<ConnectionExchange> {
public:
    ConnectionExchange(asio::io_context& io, std::weak_ptr<Connection> connection)
        : io_(io), connection_(std::move(connection)) {}

    void expect_whole() override;
    void answer(HttpAnswer answer) override;
    void begin_stream(std::string silence) override;
    void send(std::string text) override;
    void send_if_read(std::string text) override;
    void end() override;
    void end_and_close() override;

private:
    template <typename Act>
    void act(Act act_on_connection);

    asio::io_context& io_;
    std::weak_ptr<Connection> connection_;
};

class HttpServer::Impl::Connection final : public std::enable_shared_from_this<Connection> {
public:
    Connection(Impl& server, Tcp::socket socket)
        : server_(server), socket_(std::move(socket)), reader_(server.options.limits.sizes) {}

    void begin() {
        await_request();
        read();
    }
    /// Answers a connection past the limit with status 503, and closes it.
    void refuse() {
        keep_alive_ = false;
        send_answer(server_.handler.error_answer(503, "the server has all connections that it can hold", {}));
    }
    void tick(ServerTime now);
    void cancel() {
        if (exchange_) exchange_->cancel();
        if (state_ == State::Head && !is_busy()) leave();
    }
    [[nodiscard]] bool is_busy() const { return exchange_ != nullptr || !sending_.empty() || !out_.empty(); }
    [[nodiscard]] bool is_for(const Exchange& exchange) const { return exchange_.get() == &exchange; }
    [[nodiscard]] int descriptor() { return socket_.native_handle(); }

    [[nodiscard]] ServerTime now() const { return server_.options.clock(); }

    // Steps of the running answer, for ConnectionExchange:

    void expect_whole(ServerTime now) {
        fills_ = Fill::Blanks;
        last_sent_ = now;
    }
    void begin_stream(std::string silence);
    void send_part(std::string_view text);
    void send_part_if_read(std::string_view text) {
        if (out_.size() + sending_.size() < limits().live_bytes) send_part(text);
    }
    void send_answer(const HttpAnswer& answer);
    void end_stream();
    void close_after_answer() { keep_alive_ = false; }
    /// Closes the socket, cancels the exchange, and takes the connection out of the server's set.
    void leave();

private:
    enum class State : std::uint8_t {
        Head,       // reading the head of a request, or waiting for its first byte
        Body,       // reading the body of the request
        Answering,  // the request is complete, its answer is not
        Lingering,  // the answer is complete, the connection will be closed; what the client still sends is discarded
    };
    enum class Fill : std::uint8_t { Nothing, Blanks, Event };

    void await_request();
    void read();
    void on_read(error_code error, std::size_t n);
    void parse();
    void on_head();
    void on_request();
    void fail(int status, const std::string& reason);
    void send_head(const HttpAnswer& answer, std::optional<std::size_t> length, std::string_view body = {});
    void send(std::string_view bytes);
    void write();
    void on_write(error_code error, std::size_t n);
    void end_answer();
    [[nodiscard]] const HttpLimits& limits() const { return server_.options.limits; }

    Impl& server_;
    Tcp::socket socket_;
    State state_ = State::Head;
    bool left_ = false;
    ServerTime deadline_{};  // end of the time for state_; not used in State::Answering

    std::array<char, kReadBytes> buffer_{};
    bool reading_ = false;
    bool parsing_ = false;
    HttpReader reader_;
    bool has_begun_ = false;  // whether a byte of the current request was received

    std::shared_ptr<ConnectionExchange> exchange_;
    std::vector<HttpField> fields_;  // header fields that check_head() adds to the answer
    bool keep_alive_ = true;
    bool without_body_ = false;  // HEAD
    bool head_sent_ = false;
    bool chunked_ = false;
    Fill fills_ = Fill::Nothing;
    std::string silence_;
    ServerTime last_sent_{};

    std::string out_;      // bytes to be sent after sending_
    std::string sending_;  // bytes of the running write; empty: none runs
    std::size_t n_sent_ = 0;
    ServerTime progress_{};  // when the client took bytes last
};

// Connections: reading.

void HttpServer::Impl::Connection::await_request() {
    state_ = State::Head;
    deadline_ = now() + limits().idle_time;
    has_begun_ = false;
    reader_.begin();
    fields_.clear();
    keep_alive_ = true;
    without_body_ = head_sent_ = chunked_ = false;
    fills_ = Fill::Nothing;
}

void HttpServer::Impl::Connection::read() {
    if (reading_ || left_ || (state_ == State::Answering && reader_.n_unread() >= kMostWaitingBytes)) return;
    reading_ = true;
    socket_.async_read_some(asio::buffer(buffer_),
                            [self = shared_from_this()](error_code error, std::size_t n) { self->on_read(error, n); });
}

void HttpServer::Impl::Connection::on_read(error_code error, std::size_t n) {
    reading_ = false;
    if (left_) return;
    if (error) return leave();  // the client closed its side, or is gone
    if (state_ != State::Lingering) reader_.receive({buffer_.data(), n});
    parse();
    read();
}

// Parses the received bytes, request by request. Stops at a request whose answer is not complete: the bytes after it
// are parsed when that answer ends.
void HttpServer::Impl::Connection::parse() {
    if (std::exchange(parsing_, true)) return;  // called inside on_request() below: the outer call's loop goes on
    while ((state_ == State::Head || state_ == State::Body) && !left_) {
        const HttpReader::Step step = reader_.read();
        if (step == HttpReader::Step::NeedsMore) break;
        if (step == HttpReader::Step::Fault) fail(reader_.fault().status, reader_.fault().reason);
        if (step == HttpReader::Step::Head) on_head();
        if (step == HttpReader::Step::Request) on_request();
    }
    parsing_ = false;
    if (state_ == State::Head && reader_.has_begun() && !std::exchange(has_begun_, true))
        deadline_ = now() + limits().head_time;
}

void HttpServer::Impl::Connection::on_head() {
    const HttpRequest& request = reader_.request();
    keep_alive_ = reader_.keep_alive() && !server_.closing;
    without_body_ = request.method == "HEAD";
    HttpHandler::Verdict verdict = server_.handler.check_head(request);
    fields_ = std::move(verdict.fields);
    if (verdict.refusal) {
        if (!reader_.is_complete()) keep_alive_ = false;  // the body will not be read
        return send_answer(*verdict.refusal);
    }
    state_ = State::Body;
    deadline_ = now() + limits().body_time;
    if (!reader_.is_complete() && !reader_.is_http_1_0() && request.field("Expect"))
        send("HTTP/1.1 100 Continue\r\n\r\n");
}

void HttpServer::Impl::Connection::on_request() {
    state_ = State::Answering;
    exchange_ = std::make_shared<ConnectionExchange>(server_.io, weak_from_this());
    if (server_.closing) exchange_->cancel();
    server_.handler.handle(std::move(reader_.request()), exchange_);
}

// Answers the request with an error of this status, and closes the connection.
void HttpServer::Impl::Connection::fail(int status, const std::string& reason) {
    keep_alive_ = false;
    send_answer(server_.handler.error_answer(status, reason, reader_.request().path));
}

// Connections: answering.

// Sends the head of an answer together with `body`, so that a small answer is one packet. `length`: bytes of the whole
// body; no value: not known, so the body is sent in chunks, or ends with the connection for HTTP/1.0.
void HttpServer::Impl::Connection::send_head(const HttpAnswer& answer, std::optional<std::size_t> length,
                                             std::string_view body) {
    head_sent_ = true;
    chunked_ = !length && !reader_.is_http_1_0();
    if (!length && reader_.is_http_1_0()) keep_alive_ = false;  // the end of the body is the end of the connection
    std::string head = fmt::format("HTTP/1.1 {} {}\r\n", answer.status, status_words(answer.status));
    const auto add = [&head](std::string_view name, std::string_view value) {
        head += fmt::format("{}: {}\r\n", name, value);
    };
    if (answer.status != 204) add("Content-Type", answer.content_type);
    if (chunked_) add("Transfer-Encoding", "chunked");
    if (length && answer.status != 204) add("Content-Length", fmt::format("{}", *length));
    for (const HttpField& field : fields_) add(field.name, field.value);
    for (const HttpField& field : answer.fields) add(field.name, field.value);
    add("Connection", keep_alive_ ? "keep-alive" : "close");
    if (keep_alive_) add("Keep-Alive", fmt::format("timeout={}", limits().idle_time.count()));
    if (left_) return;
    out_ += head + "\r\n";
    send(body);
}

void HttpServer::Impl::Connection::send_answer(const HttpAnswer& answer) {
    if (!head_sent_) {
        send_head(answer, answer.body.size(), without_body_ ? std::string_view() : answer.body);
    } else {
        send_part(answer.body);
        if (chunked_) send("0\r\n\r\n");
    }
    end_answer();
}

void HttpServer::Impl::Connection::begin_stream(std::string silence) {
    silence_ = std::move(silence);
    send_head({.content_type = "text/event-stream", .fields = {{"Cache-Control", "no-store"}}}, std::nullopt);
    fills_ = Fill::Event;
}

void HttpServer::Impl::Connection::send_part(std::string_view text) {
    if (text.empty() || without_body_) return;
    send(chunked_ ? std::string_view(chunk(text)) : text);
    if (fills_ == Fill::Event && out_.size() > limits().unread_bytes) leave();
}

void HttpServer::Impl::Connection::end_stream() {
    if (chunked_ && !without_body_) send("0\r\n\r\n");
    end_answer();
}

void HttpServer::Impl::Connection::end_answer() {
    exchange_.reset();
    if (left_) return;
    if (keep_alive_) {
        await_request();
        parse();  // a pipelined request
        read();
        return;
    }
    state_ = State::Lingering;
    write();
    read();
}

void HttpServer::Impl::Connection::send(std::string_view bytes) {
    if (left_) return;
    out_ += bytes;
    last_sent_ = now();
    if (sending_.empty()) progress_ = last_sent_;
    write();
}

void HttpServer::Impl::Connection::write() {
    if (left_ || !sending_.empty()) return;
    if (out_.empty()) {
        if (state_ != State::Lingering) return;
        // Closing the whole socket now would discard the answer if unread bytes of the client are left.
        error_code ignored;
        socket_.shutdown(Tcp::socket::shutdown_send, ignored);
        deadline_ = now() + limits().linger_time;
        return;
    }
    sending_.swap(out_);
    n_sent_ = 0;
    socket_.async_write_some(asio::buffer(sending_), [self = shared_from_this()](error_code error, std::size_t n) {
        self->on_write(error, n);
    });
}

void HttpServer::Impl::Connection::on_write(error_code error, std::size_t n) {
    if (left_) return;
    if (error) return leave();
    progress_ = now();
    n_sent_ += n;
    if (n_sent_ == sending_.size()) {
        sending_.clear();
        return write();
    }
    socket_.async_write_some(
        asio::buffer(sending_.data() + n_sent_, sending_.size() - n_sent_),
        [self = shared_from_this()](error_code failed, std::size_t more) { self->on_write(failed, more); });
}

void HttpServer::Impl::Connection::leave() {
    if (std::exchange(left_, true)) return;
    if (exchange_) exchange_->cancel();
    exchange_.reset();
    error_code ignored;
    socket_.close(ignored);
    server_.connections.erase(shared_from_this());
}

void HttpServer::Impl::Connection::tick(ServerTime now) {
    if (!sending_.empty() && now - progress_ >= limits().unread_time) return leave();
    switch (state_) {
        case State::Head:
            if (now < deadline_) return;
            if (!has_begun_) return leave();
            return fail(408, fmt::format("the head was not complete within {} s", limits().head_time.count()));
        case State::Body:
            if (now < deadline_) return;
            return fail(408, fmt::format("the body was not complete within {} s", limits().body_time.count()));
        case State::Answering:
            if (fills_ == Fill::Nothing || now - last_sent_ < limits().silence_time) return;
            if (fills_ == Fill::Blanks && !head_sent_) send_head({}, std::nullopt);
            return send_part(fills_ == Fill::Event ? std::string_view(silence_) : " ");
        case State::Lingering:
            if (now >= deadline_ && sending_.empty() && out_.empty()) leave();
    }
}

// Exchanges.

template <typename Act>
void HttpServer::Impl::ConnectionExchange::act(Act act_on_connection) {
    asio::post(io_, [self = shared_from_this(), act = std::move(act_on_connection)]() mutable {
        const std::shared_ptr<Connection> connection = self->connection_.lock();
        if (connection && connection->is_for(*self)) act(*connection);
    });
}

void HttpServer::Impl::ConnectionExchange::expect_whole() {
    act([](Connection& connection) { connection.expect_whole(connection.now()); });
}

void HttpServer::Impl::ConnectionExchange::answer(HttpAnswer answer) {
    act([answer = std::move(answer)](Connection& connection) { connection.send_answer(answer); });
}

void HttpServer::Impl::ConnectionExchange::begin_stream(std::string silence) {
    act([silence = std::move(silence)](Connection& connection) mutable {
        connection.begin_stream(std::move(silence));
    });
}

void HttpServer::Impl::ConnectionExchange::send(std::string text) {
    act([text = std::move(text)](Connection& connection) { connection.send_part(text); });
}

void HttpServer::Impl::ConnectionExchange::send_if_read(std::string text) {
    act([text = std::move(text)](Connection& connection) { connection.send_part_if_read(text); });
}

void HttpServer::Impl::ConnectionExchange::end() {
    act([](Connection& connection) { connection.end_stream(); });
}

void HttpServer::Impl::ConnectionExchange::end_and_close() {
    act([](Connection& connection) {
        connection.close_after_answer();
        connection.end_stream();
    });
}

// The server.

void HttpServer::Impl::listen() {
    const std::string place = options.host.empty() ? "127.0.0.1" : options.host;
    const auto fail = [&](const error_code& error) {
        const std::string_view advice = error == asio::error::address_in_use
                                            ? "; another program has the port, choose one by --port"
                                            : "; choose another place by --host and --port";
        throw IoError(fmt::format("cannot listen on {} port {}: {}{}", place, options.port, error.message(), advice));
    };
    error_code error;
    const auto found = Tcp::resolver(io).resolve(place, fmt::format("{}", options.port), Tcp::resolver::passive, error);
    if (error) fail(error);
    try {
        for (const auto& each : found) {
            Tcp::endpoint endpoint = each.endpoint();
            if (!acceptors.empty()) endpoint.port(acceptors.front()->local_endpoint().port());
            listen_on(endpoint);
        }
    } catch (const boost::system::system_error& refused) {
        fail(refused.code());
    }
    if (!options.host.empty()) return;
    try {
        listen_on({asio::ip::address_v6::loopback(), acceptors.front()->local_endpoint().port()});
    } catch (const boost::system::system_error& refused) {
        // A machine without IPv6 has no ::1.
        if (refused.code() == asio::error::address_in_use && options.port != 0) fail(refused.code());
    }
}

void HttpServer::Impl::listen_on(const Tcp::endpoint& endpoint) {
    auto acceptor = std::make_unique<Tcp::acceptor>(io);
    acceptor->open(endpoint.protocol());
    acceptor->set_option(Tcp::acceptor::reuse_address(true));
    if (endpoint.address().is_v6()) acceptor->set_option(asio::ip::v6_only(true));
    acceptor->bind(endpoint);
    acceptor->listen();
    acceptors.push_back(std::move(acceptor));
}

void HttpServer::Impl::accept(Tcp::acceptor& acceptor) {
    acceptor.async_accept([this, &acceptor](error_code error, Tcp::socket socket) {
        if (closing) return;
        if (error != asio::error::no_descriptors) accept(acceptor);  // first, since on_accept() may throw
        if (!error) return on_accept(std::move(socket));
        if (error != asio::error::no_descriptors) return;
        // Until a connection has been closed, accepting would fail again at once.
        auto wait = std::make_shared<asio::steady_timer>(io, options.tick);
        wait->async_wait([this, &acceptor, wait](error_code) {
            if (!closing) accept(acceptor);
        });
    });
}

void HttpServer::Impl::on_accept(Tcp::socket socket) {
    if (connections.size() >= options.limits.n_connections) drop_closed();
    if (connections.size() >= options.limits.n_connections + kMostRefused) return;
    error_code ignored;
    socket.set_option(Tcp::no_delay(true), ignored);
    const auto connection = std::make_shared<Connection>(*this, std::move(socket));
    connections.insert(connection);
    if (connections.size() > options.limits.n_connections) return connection->refuse();
    connection->begin();
}

// Drops connections that their clients have closed, without waiting until their pending reads report it. Otherwise a
// client that closes a connection and opens another one could be refused, since the closed one still counts.
void HttpServer::Impl::drop_closed() {
    const std::vector<std::shared_ptr<Connection>> all(connections.begin(), connections.end());
    std::vector<pollfd> states;
    states.reserve(all.size());
    for (const auto& connection : all) states.push_back({connection->descriptor(), POLLRDHUP, 0});
    if (::poll(states.data(), states.size(), 0) <= 0) return;
    for (std::size_t i = 0; i < all.size(); ++i)
        if (states[i].revents != 0) all[i]->leave();
}

void HttpServer::Impl::tick() {
    timer.expires_after(options.tick);  // first, so that a failure below does not stop the clock
    timer.async_wait([this](error_code error) {
        if (!error) tick();
    });
    if (options.cancel != nullptr && options.cancel->load()) close();
    const ServerTime now = options.clock();
    // A copy, since a connection that is closed removes itself from `connections`.
    const std::vector<std::shared_ptr<Connection>> all(connections.begin(), connections.end());
    bool is_busy = false;
    for (const auto& connection : all) {
        connection->tick(now);
        is_busy = is_busy || connection->is_busy();
    }
    if (stop_at && (!is_busy || Clock::now() >= *stop_at)) return io.stop();
}

// Accepts no more connections, and cancels exchanges without a complete answer and requests that still arrive.
void HttpServer::Impl::close() {
    if (std::exchange(closing, true)) return;
    for (const auto& acceptor : acceptors) {
        error_code ignored;
        acceptor->close(ignored);
    }
    const std::vector<std::shared_ptr<Connection>> all(connections.begin(), connections.end());
    for (const auto& connection : all) connection->cancel();
}

HttpServer::HttpServer(HttpServerOptions options, HttpHandler& handler)
    : impl_(std::make_unique<Impl>(std::move(options), handler)) {
    impl_->listen();
}

// Cancels the exchanges of all connections. The set is moved out first, since a connection that is closed removes
// itself from impl_->connections.
HttpServer::~HttpServer() {
    const auto connections = std::move(impl_->connections);
    for (const auto& connection : connections) connection->cancel();
}

std::uint16_t HttpServer::port() const {
    return impl_->acceptors.front()->local_endpoint().port();
}

void HttpServer::run() {
    for (const auto& acceptor : impl_->acceptors) impl_->accept(*acceptor);
    impl_->tick();
    while (true) {
        try {
            impl_->io.run();
            return;
        } catch (const std::bad_alloc&) {
            // The handler that found no memory has lost its work, and the connection that it served will be closed by a
            // deadline (tick()). All other handlers go on.
        }
    }
}

void HttpServer::cancel_all() {
    asio::post(impl_->io, [impl = impl_.get()] { impl->close(); });
}

void HttpServer::stop() {
    asio::post(impl_->io, [impl = impl_.get()] { impl->stop_at = Clock::now() + kStopTime; });
}

}  // namespace slipstream::tools
