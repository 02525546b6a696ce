// Reads HTTP requests from bytes as they arrive, one after the other, with limits on their size. Only http_reader.cpp
// includes Boost.Beast, whose parser checks the grammar; http_framing.h has what is checked beyond it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "tools/serve/http_framing.h"
#include "tools/serve/http_message.h"

namespace slipstream::tools {

struct HttpSizes {
    std::size_t head_bytes = 32 << 10;
    std::size_t n_fields = 100;
    std::size_t body_bytes = 16 << 20;
};

class HttpReader {
public:
    explicit HttpReader(const HttpSizes& sizes);
    ~HttpReader();
    HttpReader(const HttpReader&) = delete;
    HttpReader& operator=(const HttpReader&) = delete;

    enum class Step : std::uint8_t {
        NeedsMore,  // all received bytes are parsed, and the request is not complete
        Head,       // the head is complete: request() has all but the body
        Request,    // the request is complete; begin() the next one
        Fault,      // the request cannot be read, fault() says why; do not call read() again. request().path is empty
                    // if the path is not known
    };

    /// Adds received bytes.
    void receive(std::string_view bytes) { received_ += bytes; }
    /// Parses received bytes up to the next event, and returns that event.
    [[nodiscard]] Step read();
    /// Prepares for the next request, and clears request(). Call after Step::Request, or after Step::Head if
    /// is_complete().
    void begin();

    [[nodiscard]] HttpRequest& request() { return request_; }
    [[nodiscard]] const HttpFault& fault() const { return fault_; }
    /// After Step::Head: whether the request has no body.
    [[nodiscard]] bool is_complete() const;
    [[nodiscard]] bool keep_alive() const { return keep_alive_; }
    [[nodiscard]] bool is_http_1_0() const { return is_http_1_0_; }
    /// Whether a byte of the request has been received.
    [[nodiscard]] bool has_begun() const { return n_head_ > 0 || !received_.empty(); }
    /// Returns how many received bytes are not parsed yet: later requests that the client has sent without waiting for
    /// the answer to this one (pipelining).
    [[nodiscard]] std::size_t n_unread() const { return received_.size(); }

private:
    struct Parser;
    [[nodiscard]] Step fail(int status, std::string reason);
    [[nodiscard]] Step read_head();

    HttpSizes sizes_;
    std::unique_ptr<Parser> parser_;
    std::string received_;
    bool in_head_ = true;
    std::size_t n_head_ = 0;  // bytes of the head that were read
    HttpRequest request_;
    HttpFault fault_;
    bool keep_alive_ = true;
    bool is_http_1_0_ = false;
};

}  // namespace slipstream::tools
