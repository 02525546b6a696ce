#include "kernels/cpu/event.h"

#include "kernels/event_time.h"

namespace slipstream::cpu {

void CpuEvent::complete(std::uint64_t use, const std::string& failure) {
    const std::scoped_lock lock(mutex_);
    if (!failure.empty()) {
        if (!failures_.empty() && failures_.back().last + 1 == use && failures_.back().failure == failure) {
            failures_.back().last = use;
        } else {
            failures_.push_back({use, use, failure});
        }
        has_failures_.store(true, std::memory_order_relaxed);
    }
    completed_at_.store(Clock::now().time_since_epoch().count(), std::memory_order_relaxed);
    completed_.store(use, std::memory_order_release);  // publishes has_failures_ and completed_at_
    done_.notify_all();  // under the lock, since a waiting thread may then destroy the event
}

void CpuEvent::block_until(std::uint64_t use) const {
    std::unique_lock lock(mutex_);  // locked in any case, so that complete() no longer uses the event afterwards
    done_.wait(lock, [&] { return completed() >= use; });
}

CpuEvent::Clock::time_point CpuEvent::completed_at() const {
    return Clock::time_point(Clock::duration(completed_at_.load(std::memory_order_relaxed)));
}

std::string CpuEvent::failure_of(std::uint64_t use) const {
    if (!has_failures_.load(std::memory_order_relaxed)) return {};
    const std::scoped_lock lock(mutex_);
    for (const FailedUses& failed : failures_)
        if (failed.first <= use && use <= failed.last) return failed.failure;
    return {};
}

}  // namespace slipstream::cpu

namespace slipstream {

std::optional<std::chrono::steady_clock::time_point> completion_time(const Event& event) {
    const auto* cpu_event = dynamic_cast<const cpu::CpuEvent*>(&event);
    if (cpu_event == nullptr || cpu_event->completed() == 0) return std::nullopt;
    return cpu_event->completed_at();
}

}  // namespace slipstream
