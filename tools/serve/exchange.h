// One request's way back to its client. The threads that parse and generate hold it; the sockets' thread sends.
//
// An answer is either whole, answer(), or a stream: begin_stream(), send() any number of times, end(). Clients give up
// after minutes without a byte (Node's fetch: 300 s), so an exchange fills silence by itself: a stream sends its
// `silence` text, and a whole answer that was announced by expect_whole() sends its head and then blanks, which JSON
// allows in front of a value. What is called after the answer has ended, or after the client has left, has no effect.
#pragma once

#include <atomic>
#include <string>

#include "tools/serve/http_message.h"

namespace slipstream::tools {

class Exchange {
public:
    Exchange() = default;
    Exchange(const Exchange&) = delete;
    Exchange& operator=(const Exchange&) = delete;
    virtual ~Exchange() = default;

    // Any thread may call these. They do not wait for the client.

    /// Announces that answer() will be called with JSON, perhaps much later.
    virtual void expect_whole() = 0;
    /// Sends the whole answer. If silence was filled before, the client has got status 200 already, and only the body
    /// is sent.
    virtual void answer(HttpAnswer answer) = 0;
    /// Begins an event stream with status 200. `silence` is a whole event, which is sent whenever nothing was sent for
    /// HttpLimits::silence_time.
    virtual void begin_stream(std::string silence) = 0;
    virtual void send(std::string text) = 0;
    /// Sends a part of a stream that may be left out: it is dropped if the client has not read what was sent before.
    virtual void send_if_read(std::string text) = 0;
    /// Ends the stream.
    virtual void end() = 0;
    /// Ends the stream and closes the connection: the answer is not complete, and some clients wait for the end of the
    /// connection after an error.
    virtual void end_and_close() = 0;

    /// Turns true when the work for this request should be given up: its client has left, or the server stops.
    /// Generation polls it between layers.
    [[nodiscard]] const std::atomic<bool>& cancelled() const { return cancelled_; }
    void cancel() { cancelled_.store(true); }

private:
    std::atomic<bool> cancelled_{false};
};

}  // namespace slipstream::tools
