#include "kernels/cpu/link_clock.h"

#include <algorithm>

namespace slipstream::cpu {

LinkClock::LinkClock(double bytes_per_second) : bytes_per_second_(bytes_per_second) {}

double LinkClock::seconds_since_start(Clock::time_point time) const {
    return std::chrono::duration<double>(time - start_).count();
}

LinkClock::Clock::time_point LinkClock::time_at(double seconds) const {
    return start_ + std::chrono::ceil<Clock::duration>(std::chrono::duration<double>(seconds));
}

LinkClock::Turn LinkClock::take(std::size_t bytes, Clock::time_point ready) {
    const std::scoped_lock lock(mutex_);
    if (!throttled()) {
        const Clock::time_point now = Clock::now();
        if (n_copying_++ == 0) busy_since_ = seconds_since_start(now);
        return {now, now};
    }
    // Seconds as a double: rounding each turn to the clock's ticks would add up over many small copies.
    const double begin = std::max(free_from_, seconds_since_start(ready));
    const double seconds = static_cast<double>(bytes) / bytes_per_second_;
    free_from_ = begin + seconds;
    busy_seconds_ += seconds;
    return {time_at(begin), time_at(free_from_)};
}

void LinkClock::give_up_turns() {
    const std::scoped_lock lock(mutex_);
    const double left = free_from_ - seconds_since_start(Clock::now());
    if (left <= 0.0) return;
    free_from_ -= left;
    busy_seconds_ -= left;
}

void LinkClock::finish(std::size_t bytes) {
    const std::scoped_lock lock(mutex_);
    bytes_ += bytes;
    if (!throttled() && --n_copying_ == 0) busy_seconds_ += seconds_since_start(Clock::now()) - busy_since_;
}

LinkFigures LinkClock::figures() const {
    const std::scoped_lock lock(mutex_);
    const double now = seconds_since_start(Clock::now());
    double busy = busy_seconds_;
    if (throttled()) {
        // busy_seconds_ counts each turn whole. Those that are not over follow one another without gaps and end at
        // free_from_, so the time from now to there is not busy time yet.
        busy -= std::max(0.0, free_from_ - now);
    } else if (n_copying_ > 0) {
        busy += now - busy_since_;
    }
    return {.bytes = bytes_, .busy_seconds = busy};
}

}  // namespace slipstream::cpu
