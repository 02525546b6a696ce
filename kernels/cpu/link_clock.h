// The time that one direction of a CPU device's link takes, shared by all streams of that direction.
//
// A throttled link serves copies one after the other: a copy of n bytes holds it for n / rate seconds, from the later
// of two moments: the link is free, the copy is ready. Moments are worked out, not read off a clock when a thread gets
// to run: a thread that wakes late finds its copy's time partly over, and the rate is kept over any sequence of copies.
// A link that is not throttled takes no time of its own; it is busy while somebody copies.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "kernels/device.h"

namespace slipstream::cpu {

class LinkClock {
public:
    using Clock = std::chrono::steady_clock;
    struct Turn {
        Clock::time_point begin;  // the copy may start
        Clock::time_point end;    // the copy may be done
    };

    /// Rate 0: not throttled.
    explicit LinkClock(double bytes_per_second);

    [[nodiscard]] bool throttled() const { return bytes_per_second_ > 0.0; }
    /// The turn of a copy that is ready since `ready` (not in the future); turns are given in the order of calls.
    [[nodiscard]] Turn take(std::size_t bytes, Clock::time_point ready);
    /// Of turns nothing is waited for any more: the link is free from now on.
    void give_up_turns();
    /// Behind the copy of each turn.
    void finish(std::size_t bytes);
    [[nodiscard]] LinkFigures figures() const;

private:
    [[nodiscard]] double seconds_since_start(Clock::time_point time) const;
    [[nodiscard]] Clock::time_point time_at(double seconds) const;

    const double bytes_per_second_;
    const Clock::time_point start_ = Clock::now();
    mutable std::mutex mutex_;
    std::uint64_t bytes_ = 0;    // finished
    double busy_seconds_ = 0.0;  // throttled: of all turns; else: of times with a copy that are over
    double free_from_ = 0.0;     // throttled: end of the last turn, in seconds since the start
    double busy_since_ = 0.0;    // not throttled: while n_copying_ > 0
    int n_copying_ = 0;
};

}  // namespace slipstream::cpu
