// Emulates the transfer times of one direction of a CPU device's link. All copy streams of that direction share one
// clock.
//
// A throttled link serves copies one after the other. A copy of n bytes occupies the link for n / rate seconds, from
// the time when the copy is ready and the link is free. These times are computed, not read from a clock when a thread
// gets to run: if a thread wakes late, part of its copy's time is already over, so the rate is exact over any sequence
// of copies. A link that is not throttled takes no time of its own; it is busy while at least one stream copies.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "kernels/device.h"

namespace slipstream::cpu {

/// The clock of one direction of a link. Thread-safe.
class LinkClock {
public:
    using Clock = std::chrono::steady_clock;
    struct Turn {                 // the time for which a copy occupies the link
        Clock::time_point begin;  // time from which the copy may start
        Clock::time_point end;    // time from which the copy may be done
    };

    /// `bytes_per_second` is the rate of the link; 0: the link is not throttled.
    explicit LinkClock(double bytes_per_second);

    [[nodiscard]] bool throttled() const { return bytes_per_second_ > 0.0; }
    /// Reserves the link for a copy of `bytes` that has been ready since `ready`, which must not be in the future.
    /// Returns the turn of the copy. Turns follow each other in the order of the calls; if the link is not throttled, a
    /// turn begins and ends now. The caller must call finish() after the copy.
    [[nodiscard]] Turn take(std::size_t bytes, Clock::time_point ready);
    /// Gives up the rest of all turns, since no stream waits for their ends any more: the link is free from now on.
    void give_up_turns();
    /// Counts `bytes` as transferred. Must be called once for each turn, after its copy.
    void finish(std::size_t bytes);
    /// Returns the bytes of finished copies and the seconds for which the link was busy up to now.
    [[nodiscard]] LinkFigures figures() const;

private:
    [[nodiscard]] double seconds_since_start(Clock::time_point time) const;
    [[nodiscard]] Clock::time_point time_at(double seconds) const;

    const double bytes_per_second_;
    const Clock::time_point start_ = Clock::now();
    mutable std::mutex mutex_;
    std::uint64_t bytes_ = 0;    // bytes of finished copies
    double busy_seconds_ = 0.0;  // throttled: length of all turns; else: of the finished periods with a copy
    double free_from_ = 0.0;     // throttled: end of the last turn, in seconds since start_
    double busy_since_ = 0.0;    // not throttled, if n_copying_ > 0: begin of the period, in seconds since start_
    int n_copying_ = 0;          // not throttled: copies that have a turn and are not finished
};

}  // namespace slipstream::cpu
