// A client of a server under test that sends and reads bytes as they are.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace slipstream::tools {

class RawClient {
public:
    explicit RawClient(std::uint16_t port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_port = htons(port);
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        if (::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
            throw std::runtime_error("no connection");
    }
    RawClient(RawClient&& other) noexcept : socket_(std::exchange(other.socket_, -1)), text_(std::move(other.text_)) {}
    RawClient(const RawClient&) = delete;
    RawClient& operator=(const RawClient&) = delete;
    ~RawClient() { leave(); }

    void leave() {
        if (socket_ >= 0) ::close(std::exchange(socket_, -1));
    }
    void close_own_side() const { ::shutdown(socket_, SHUT_WR); }

    /// Returns false if the server has closed the connection.
    bool send(std::string_view bytes) const {
        while (!bytes.empty()) {
            const ssize_t n = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
            if (n <= 0) return false;
            bytes.remove_prefix(static_cast<std::size_t>(n));
        }
        return true;
    }
    /// Reads until what was received and not taken contains `end`, and takes it up to there. Throws after `patience`,
    /// or if the connection ends before.
    std::string read_until(std::string_view end, std::chrono::milliseconds patience = std::chrono::seconds(20)) {
        const auto give_up = std::chrono::steady_clock::now() + patience;
        std::size_t at = 0;
        while ((at = text_.find(end)) == std::string::npos)
            if (!read_some(give_up)) throw std::runtime_error("the connection ended after: " + text_);
        std::string taken = text_.substr(0, at + end.size());
        text_.erase(0, at + end.size());
        return taken;
    }
    std::string read_bytes(std::size_t n, std::chrono::milliseconds patience = std::chrono::seconds(20)) {
        const auto give_up = std::chrono::steady_clock::now() + patience;
        while (text_.size() < n)
            if (!read_some(give_up)) throw std::runtime_error("the connection ended after: " + text_);
        std::string taken = text_.substr(0, n);
        text_.erase(0, n);
        return taken;
    }
    /// Reads until the server closes the connection. Throws after `patience`.
    std::string read_all(std::chrono::milliseconds patience = std::chrono::seconds(20)) {
        const auto give_up = std::chrono::steady_clock::now() + patience;
        while (read_some(give_up)) {
        }
        return std::exchange(text_, {});
    }
    /// Returns whether nothing comes within `patience`.
    bool hears_nothing(std::chrono::milliseconds patience) {
        pollfd ready{socket_, POLLIN, 0};
        return text_.empty() && ::poll(&ready, 1, static_cast<int>(patience.count())) == 0;
    }

private:
    bool read_some(std::chrono::steady_clock::time_point give_up) {
        const auto left =
            std::chrono::duration_cast<std::chrono::milliseconds>(give_up - std::chrono::steady_clock::now());
        pollfd ready{socket_, POLLIN, 0};
        if (left.count() <= 0 || ::poll(&ready, 1, static_cast<int>(left.count())) == 0)
            throw std::runtime_error("nothing more came after: " + text_);
        const ssize_t n = ::recv(socket_, part_.data(), part_.size(), 0);
        if (n <= 0) return false;
        text_.append(part_.data(), static_cast<std::size_t>(n));
        return true;
    }

    int socket_;
    std::string text_;
    std::vector<char> part_ = std::vector<char>(std::size_t{64} << 10);
};

struct RawAnswer {
    int status = 0;
    std::string head;
    std::string body;
};

/// Reads an answer with a Content-Length, or a chunked one, whose chunks are joined.
inline RawAnswer read_answer(RawClient& client) {
    RawAnswer answer{.head = client.read_until("\r\n\r\n")};
    answer.status = std::stoi(answer.head.substr(answer.head.find(' ') + 1));
    constexpr std::string_view kLength = "Content-Length: ";
    if (const std::size_t at = answer.head.find(kLength); at != std::string::npos) {
        const std::size_t length = std::stoul(answer.head.substr(at + kLength.size()));
        answer.body = client.read_bytes(length);
        return answer;
    }
    if (answer.head.find("Transfer-Encoding: chunked") == std::string::npos) return answer;
    while (true) {
        const std::size_t n = std::stoul(client.read_until("\r\n"), nullptr, 16);
        answer.body += client.read_bytes(n + 2).substr(0, n);
        if (n == 0) return answer;
    }
}

inline std::string get_request(std::string_view path) {
    return "GET " + std::string(path) + " HTTP/1.1\r\nHost: localhost\r\n\r\n";
}

inline std::string post_request(std::string_view path, std::string_view body) {
    return "POST " + std::string(path) +
           " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: " +
           std::to_string(body.size()) + "\r\n\r\n" + std::string(body);
}

}  // namespace slipstream::tools
