// The queue of texts: first in, first out, with a limit on how many wait. A request takes its place when it arrives,
// and is run when those before it have ended and its prompt is ready.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tools/serve/answer_writer.h"
#include "tools/serve/exchange.h"
#include "tools/serve/text_engine.h"

namespace slipstream::tools {

/// A request for a text. The thread of the sockets makes it, the one that parses fills `task` and `writer`, and the
/// engine's runs it; each hands it on to the next by the queue.
struct TextJob {
    std::int64_t id = 0;
    std::string path{};  // path of the request, for the log
    std::shared_ptr<Exchange> exchange{};
    std::chrono::steady_clock::time_point arrived{};
    TextTask task{};
    std::unique_ptr<AnswerWriter> writer{};
};

class TextQueue {
public:
    /// At most `most_waiting` requests wait, those whose clients have left not counted.
    explicit TextQueue(std::size_t most_waiting) : most_waiting_(most_waiting) {}

    /// Appends the job, whose prompt need not be ready. Returns false if the queue is full or closed.
    [[nodiscard]] bool add(std::shared_ptr<TextJob> job);
    /// Marks the job as ready to run. Its task and writer must be complete.
    void make_ready(const TextJob& job);
    /// Removes the job; no effect if it is not in the queue.
    void remove(const TextJob& job);
    /// Removes the first job and returns it, as soon as it is ready; returns null if it is not within `patience`. Later
    /// jobs that are ready wait for it.
    [[nodiscard]] std::shared_ptr<TextJob> take(std::chrono::milliseconds patience);
    /// Removes the ready jobs whose clients have left, and returns them: a long text before them would keep their
    /// prompts in memory.
    [[nodiscard]] std::vector<std::shared_ptr<TextJob>> take_left();
    /// Closes the queue: add() refuses all later jobs. Removes the ready jobs and returns them; the caller must answer
    /// them.
    [[nodiscard]] std::vector<std::shared_ptr<TextJob>> close();

    /// Returns how many requests wait, those whose clients have left not counted.
    [[nodiscard]] std::size_t n_waiting() const;
    [[nodiscard]] std::size_t most_waiting() const { return most_waiting_; }

private:
    struct Place {
        std::shared_ptr<TextJob> job;
        bool is_ready = false;
        [[nodiscard]] bool is_left() const { return job->exchange->cancelled().load(); }
    };
    // n_alive() and take_ready_if() require that mutex_ is held.

    [[nodiscard]] std::size_t n_alive() const;
    template <typename Condition>
    [[nodiscard]] std::vector<std::shared_ptr<TextJob>> take_ready_if(Condition is_taken);

    std::size_t most_waiting_;
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Place> places_;
    bool closed_ = false;
};

}  // namespace slipstream::tools
