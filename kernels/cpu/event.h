// Events of a CPU device. An event counts the uses that were recorded and those that are completed, and keeps the time
// of the last completion and which uses carry a failure.
//
// The streams that record an event must be ordered among each other (usually there is only one), so that uses complete
// in the order of their numbers.
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

/// An event of a CPU device. Thread-safe.
class CpuEvent final : public Event {
public:
    using Clock = std::chrono::steady_clock;

    [[nodiscard]] std::uint64_t recorded() const override { return recorded_.load(std::memory_order_acquire); }
    [[nodiscard]] std::uint64_t completed() const override { return completed_.load(std::memory_order_acquire); }

    /// Records the event: returns the number of the new use, from 1 on. The caller must call complete() with that
    /// number after the work before the use is done.
    std::uint64_t next_use() { return recorded_.fetch_add(1, std::memory_order_acq_rel) + 1; }
    /// Marks `use` as completed and wakes the threads that wait for it. `failure` says why the work before the use was
    /// not done; it is empty if the work was done. Uses must be completed in the order of their numbers.
    void complete(std::uint64_t use, const std::string& failure);
    /// Blocks the calling thread until `use` is completed.
    void block_until(std::uint64_t use) const;
    /// Returns the time of the last completion, so no use that is known to be completed was completed later. At least
    /// one use must be completed.
    [[nodiscard]] Clock::time_point completed_at() const;
    /// Returns the failure that `use` carries, or an empty string if the work before it was done. The use must be
    /// completed.
    [[nodiscard]] std::string failure_of(std::uint64_t use) const;

private:
    struct FailedUses {  // consecutive uses that carry the same failure: [first, last]
        std::uint64_t first;
        std::uint64_t last;
        std::string failure;
    };
    std::atomic<std::uint64_t> recorded_{0};
    std::atomic<std::uint64_t> completed_{0};
    std::atomic<Clock::rep> completed_at_{0};  // ticks of Clock since its epoch, at the last completion
    std::atomic<bool> has_failures_{false};
    mutable std::mutex mutex_;  // guards done_ and failures_
    mutable std::condition_variable done_;
    std::vector<FailedUses> failures_;
};

/// Returns an event of a CPU device as its own type; `event` must be a CpuEvent (not checked).
[[nodiscard]] inline CpuEvent& as_cpu(Event& event) {
    return static_cast<CpuEvent&>(event);
}
[[nodiscard]] inline const CpuEvent& as_cpu(const Event& event) {
    return static_cast<const CpuEvent&>(event);
}

/// CHECKs that `use` of `event` has been recorded, as a wait for the use requires.
inline void check_recorded(const Event& event, std::uint64_t use) {
    CHECK(use >= 1 && use <= event.recorded(), "wait for use {} of an event recorded {} times", use, event.recorded());
}

}  // namespace slipstream::cpu
