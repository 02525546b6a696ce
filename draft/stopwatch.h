// Measures elapsed time, and adds it to a sum.
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

/// Adds the time from its construction to its destruction to `sum`, which must outlive it.
class Stopwatch {
public:
    explicit Stopwatch(double& sum) : sum_(sum), began_(Clock::now()) {}
    ~Stopwatch() { sum_ += seconds_since(began_); }
    Stopwatch(const Stopwatch&) = delete;
    Stopwatch& operator=(const Stopwatch&) = delete;

private:
    double& sum_;
    Clock::time_point began_;
};

}  // namespace slipstream::draft
