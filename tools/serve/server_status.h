// How the server is: loading or ready, what runs, and counts since the start. Written by the engine's thread, read by
// the sockets' for /health, /slots and /metrics; so those never wait for the engine.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "tools/serve/text_engine.h"

namespace slipstream::tools {

/// The text that is being generated: the id of its request, and counts of tokens.
struct RunningText {
    std::int64_t job = 0;
    std::int64_t prompt_tokens = 0;
    std::int64_t prompt_done = 0;
    std::int64_t generated = 0;
};

/// Sums over all texts.
struct ServerTotals {
    std::int64_t finished = 0;
    std::int64_t failed = 0;     // with an error
    std::int64_t cancelled = 0;  // their clients left
    std::int64_t refused = 0;    // requests that were refused because the queue was full
    std::int64_t prompt_tokens = 0;
    std::int64_t reused_tokens = 0;  // number of prompt_tokens whose KV was kept from earlier texts
    std::int64_t generated_tokens = 0;
    std::int64_t passes = 0;
    std::int64_t draft_tokens = 0;
    std::int64_t draft_accepted = 0;
    double prefill_seconds = 0.0;
    double decode_seconds = 0.0;
};

struct StatusSnapshot {
    bool is_ready = false;
    std::string work;        // while loading: the step that runs; empty: loading has not begun
    double work_done = 0.0;  // fraction of the step, 0 to 1
    std::int64_t context_tokens = 0;
    std::optional<RunningText> running{};
    ServerTotals totals{};
    KeptFigures kept{};  // state of the prompt cache when the last text ended
};

class ServerStatus {
public:
    explicit ServerStatus(std::int64_t context_tokens) { state_.context_tokens = context_tokens; }

    [[nodiscard]] StatusSnapshot snapshot() const {
        const std::lock_guard lock(mutex_);
        return state_;
    }
    /// Calls `change` with the state under its lock; `change` must not call this object.
    template <typename Change>
    void update(Change change) {
        const std::lock_guard lock(mutex_);
        change(state_);
    }

private:
    mutable std::mutex mutex_;
    StatusSnapshot state_;
};

}  // namespace slipstream::tools
