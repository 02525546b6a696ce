// Events of a CPU device: counters of uses recorded and done, when the last was done, and which of them carry a
// failure.
//
// An event is recorded by streams whose work is ordered among each other (one stream, as a rule), so uses are done in
// the order of their numbers.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "kernels/base/check.h"
#include "kernels/device.h"

namespace slipstream::cpu {

class CpuEvent final : public Event {
public:
    using Clock = std::chrono::steady_clock;

    [[nodiscard]] std::uint64_t recorded() const override { return recorded_.load(std::memory_order_acquire); }
    [[nodiscard]] std::uint64_t completed() const override { return completed_.load(std::memory_order_acquire); }

    std::uint64_t next_use() { return recorded_.fetch_add(1, std::memory_order_acq_rel) + 1; }
    /// `failure`: why work before this use was not done; empty where it was.
    void complete(std::uint64_t use, const std::string& failure);
    /// Returns when the use is done.
    void block_until(std::uint64_t use) const;
    /// Of a use that is done: when, at the latest.
    [[nodiscard]] Clock::time_point completed_at() const;
    /// Of a use that is done: the failure it carries, or an empty text.
    [[nodiscard]] std::string failure_of(std::uint64_t use) const;

private:
    struct FailedUses {
        std::uint64_t first;
        std::uint64_t last;
        std::string failure;
    };
    std::atomic<std::uint64_t> recorded_{0};
    std::atomic<std::uint64_t> completed_{0};
    std::atomic<Clock::rep> completed_at_{0};  // since the clock's epoch
    std::atomic<bool> has_failures_{false};
    mutable std::mutex mutex_;  // of what follows
    mutable std::condition_variable done_;
    std::vector<FailedUses> failures_;
};

[[nodiscard]] inline CpuEvent& as_cpu(Event& event) {
    return static_cast<CpuEvent&>(event);
}
[[nodiscard]] inline const CpuEvent& as_cpu(const Event& event) {
    return static_cast<const CpuEvent&>(event);
}

inline void check_recorded(const Event& event, std::uint64_t use) {
    CHECK(use >= 1 && use <= event.recorded(), "wait for use {} of an event recorded {} times", use, event.recorded());
}

}  // namespace slipstream::cpu
