// Time that has gone by, and time that goes into a sum.
#pragma once

#include <chrono>

namespace slipstream::draft {

using Clock = std::chrono::steady_clock;

[[nodiscard]] inline double seconds_between(Clock::time_point began, Clock::time_point ended) {
    return std::chrono::duration<double>(ended - began).count();
}
[[nodiscard]] inline double seconds_since(Clock::time_point began) {
    return seconds_between(began, Clock::now());
}

/// Adds the time until its end, `weight` times, to a sum; to none where that is null.
class Stopwatch {
public:
    Stopwatch(double* sum, int weight) : sum_(sum), weight_(weight) {
        if (sum_ != nullptr) began_ = Clock::now();
    }
    ~Stopwatch() {
        if (sum_ != nullptr) *sum_ += weight_ * seconds_since(began_);
    }
    Stopwatch(const Stopwatch&) = delete;
    Stopwatch& operator=(const Stopwatch&) = delete;

private:
    double* sum_;
    int weight_;
    Clock::time_point began_;
};

}  // namespace slipstream::draft
