// What happens to a CPU device from outside: faults, for tests, of memory, links and kernels; and the wish to stop.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace slipstream {

/// How long a copy may stand still, beyond the time that its link allows it, before it is given up.
inline constexpr std::chrono::nanoseconds kStallAfter = std::chrono::seconds(5);

/// Counts down to the call that fails: 1 is the next one, 0 none. May be set while the device is in use.
struct CpuFaults {
    std::atomic<std::int64_t> allocations_until_failure{0};  // of device memory, scratch of kernels included
    std::atomic<std::int64_t> copies_until_failure{0};       // on streams of kind CopyIn and CopyOut, of any bytes
    std::atomic<std::int64_t> copies_until_stall{0};         // of those: its bytes never move
    std::atomic<std::int64_t> ops_until_failure{0};          // a kernel throws instead
    std::atomic<std::int64_t> rows_until_failure{0};         // copies on compute streams
    std::chrono::nanoseconds stall_after = kStallAfter;      // before the device is used
    /// Turns true, and may turn back: copies take no time of their link meanwhile. Null: never. Outlives the device.
    const std::atomic<bool>* stop = nullptr;

    [[nodiscard]] bool stopped() const { return stop != nullptr && stop->load(std::memory_order_relaxed); }
};

/// Counts a call; whether it is the one to fail.
[[nodiscard]] inline bool fault_is_due(std::atomic<std::int64_t>& until_failure) {
    std::int64_t left = until_failure.load(std::memory_order_relaxed);
    while (left > 0)
        if (until_failure.compare_exchange_weak(left, left - 1, std::memory_order_relaxed)) return left == 1;
    return false;
}

}  // namespace slipstream
