// Whether the copies of a stream get on, and the patience of those who wait for them.
//
// A copy is a step: all its bytes are there, or none. What it may take follows from its link's rate; from then on it
// stands still, and who has waited for as long as the deadline says gives it up: it fails, as if the system had said
// so, and all that waits behind it hears of it. Time is counted by those who wait, in slices, so that a program that
// was stopped for an hour (Ctrl-Z) has not waited.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>

namespace slipstream::cpu {

/// Of one copy stream; shared with the events that it records, which may outlive it.
class CopyProgress {
public:
    using Clock = std::chrono::steady_clock;

    explicit CopyProgress(std::chrono::nanoseconds stall_after) : stall_after_(stall_after) {}

    [[nodiscard]] std::chrono::nanoseconds stall_after() const { return stall_after_; }

    // The stream's thread.
    /// The next copy is under way, and over at `due` if its link is sound.
    void begin(Clock::time_point due);
    /// Blocks until the copy is given up, or nobody waits any more.
    void stand_still();
    /// The copy is over; whether it was given up.
    [[nodiscard]] bool end();

    /// The stream ends: no copy stands still any more.
    void stop();
    /// Number of the copy that is under way and past its time; 0: none.
    [[nodiscard]] std::uint64_t overdue() const;
    /// That copy, where it is under way yet.
    void give_up(std::uint64_t copy);

private:
    const std::chrono::nanoseconds stall_after_;
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    Clock::time_point due_{};
    std::uint64_t n_begun_ = 0;
    bool under_way_ = false;
    bool given_up_ = false;
    bool stopped_ = false;
};

/// Of one who waits: for `slice()` at a time, and tells of each that brought nothing.
class Patience {
public:
    /// `progress` null: nobody copies, nothing is given up.
    explicit Patience(std::shared_ptr<CopyProgress> progress) : progress_(std::move(progress)) {}

    [[nodiscard]] std::chrono::nanoseconds slice() const;
    void slice_over();

private:
    std::shared_ptr<CopyProgress> progress_;
    std::uint64_t copy_ = 0;  // that stood still at the end of the last slice
    int n_slices_ = 0;        // since then
};

}  // namespace slipstream::cpu
