// Time that goes into a sum.
#pragma once

#include <chrono>

namespace slipstream::draft {

/// Adds the time until its end, `weight` times, to a sum; to none where that is null.
class Stopwatch {
public:
    Stopwatch(double* sum, int weight) : sum_(sum), weight_(weight) {
        if (sum_ != nullptr) began_ = std::chrono::steady_clock::now();
    }
    ~Stopwatch() {
        if (sum_ != nullptr)
            *sum_ += weight_ * std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
    }
    Stopwatch(const Stopwatch&) = delete;
    Stopwatch& operator=(const Stopwatch&) = delete;

private:
    double* sum_;
    int weight_;
    std::chrono::steady_clock::time_point began_;
};

}  // namespace slipstream::draft
