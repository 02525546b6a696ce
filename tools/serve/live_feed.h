// The live view of the engine: GET /slipstream/live, a stream of events about every client's texts (prompt progress,
// draft trees, link use) for the page and any other client that has the key.
//
// The engine's thread reports; listeners get at most ten events a second. Reports between two events are summed up, and
// an event has only one draft tree, so its size is bounded. A listener that does not read loses events: nothing waits
// for it, and at most HttpLimits::live_bytes are kept for it. Without listeners, reports return after one comparison.
// Token texts are sent to listeners alone.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/serve/exchange.h"
#include "tools/serve/text_engine.h"

namespace slipstream {
class Tokenizer;
}

namespace slipstream::tools {

/// Contents of the first event to each listener.
struct LiveHello {
    std::string model;
    std::string fingerprint;
    std::vector<std::string> options{};  // options with which `generate` produces the server's texts
    std::int64_t context_tokens = 0;
    std::string plan{};  // memory plan, a JSON object; empty: the model is not loaded yet
};

class LiveFeed {
public:
    using Clock = std::chrono::steady_clock;
    static constexpr std::size_t kMostListeners = 8;
    static constexpr std::chrono::milliseconds kInterval{100};  // least time between two events
    static constexpr std::int32_t kMostNodes = 256;    // nodes of a tree in an event; further ones are left out
    static constexpr std::size_t kMostTextBytes = 48;  // most bytes of a token's text in an event

    /// `tokenizer` spells tokens and must outlive this object. `n_waiting` returns how many requests wait; it is called
    /// on the engine's thread.
    LiveFeed(LiveHello hello, const Tokenizer& tokenizer, std::function<std::size_t()> n_waiting,
             std::function<Clock::time_point()> clock = Clock::now);

    // Any thread may call these.

    enum class Added : std::uint8_t { Yes, Full, Closed };
    /// Begins the event stream of a listener and keeps `exchange` until its client has left. Unless Added::Yes is
    /// returned, nothing was sent, and the caller must answer.
    [[nodiscard]] Added add(const std::shared_ptr<Exchange>& exchange);
    /// Ends all streams, and takes no more listeners.
    void close();

    // The engine's thread alone calls these. They throw nothing: what cannot be reported is left out.

    /// Announces that the model is loaded. `plan` is its memory plan, a JSON object.
    void set_plan(std::int64_t context_tokens, std::string plan) noexcept;
    void begin_text(std::int64_t id, std::int64_t prompt_tokens) noexcept;
    void start_prompt(std::int64_t reused_tokens) noexcept;
    /// Reports how many tokens of the prompt are done, the reused ones included. `link_busy` is called only if an event
    /// is due, and returns what PassReport::link_busy does.
    void prompt(std::int64_t done, const std::function<std::vector<double>()>& link_busy) noexcept;
    void pass(const PassReport& report) noexcept;
    /// Reports the end of the text. `reason` is the stop reason as in --stats, or "cancelled" or "failed". `generated`:
    /// tokens of the text; the last pass may have committed more.
    void end_text(std::string_view reason, std::int64_t generated) noexcept;
    /// Sends the event that was not due at the last report. Call it often while no text runs.
    void flush() noexcept;

private:
    // The text that runs, or the last one that ran.
    struct Text {
        std::int64_t id = 0;
        std::int64_t prompt_tokens = 0;
        std::int64_t prompt_done = 0;
        std::int64_t reused = 0;
        std::int64_t generated = 0;
        std::int64_t passes = 0;
        std::optional<double> seconds_left{};  // of the prompt
        Clock::time_point prompt_began{};
        Clock::time_point first_token{};
        std::string reason{};  // why the text ended; empty: it runs
    };
    // Sums over the passes since the last event.
    struct Passes {
        std::int64_t n = 0;
        std::int64_t tokens = 0;
        std::int64_t draft_tokens = 0;
        std::int64_t accepted = 0;
        double seconds = 0.0;
        std::optional<PassTree> tree{};  // tree of the last pass at which an event was due, else of the first pass
    };

    [[nodiscard]] bool is_due() const { return clock_() - last_ >= kInterval; }
    template <typename Report>
    void report(Report change) noexcept;
    void send_due();
    [[nodiscard]] std::string event(Clock::time_point now) const;
    [[nodiscard]] std::string hello_event() const;
    void remove_left();

    const Tokenizer& tokenizer_;
    std::function<std::size_t()> n_waiting_;
    std::function<Clock::time_point()> clock_;

    std::atomic<bool> has_listeners_{false};  // whether there is a listener
    std::atomic<bool> is_asked_{false};       // a new listener has not got the state yet
    std::mutex mutex_;                        // protects hello_, listeners_ and closed_
    LiveHello hello_;
    std::vector<std::shared_ptr<Exchange>> listeners_;
    bool closed_ = false;

    // The engine's thread alone uses these.

    Clock::time_point last_{};  // when the last event was sent
    bool changed_ = false;      // whether there are reports since the last event
    std::optional<Text> text_{};
    Passes passes_{};
    std::vector<double> link_busy_{};
};

}  // namespace slipstream::tools
