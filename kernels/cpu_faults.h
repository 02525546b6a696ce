// Faults of memory, links and kernels that tests inject into a CPU device, and a stop flag.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace slipstream {

/// Time after which a copy fails if it is not done, counted from the moment at which its link allows it to be done.
inline constexpr std::chrono::nanoseconds kStallAfter = std::chrono::seconds(5);

/// Each counter counts down to the call that fails: 1 is the next call, 0 none. Counters may be set while the device is
/// in use.
struct CpuFaults {
    std::atomic<std::int64_t> allocations_until_failure{0};  // calls that allocate device memory or kernels' scratch
    std::atomic<std::int64_t> copies_until_failure{0};       // copies on CopyIn and CopyOut streams, of any size
    /// Copies on CopyIn and CopyOut streams until one stalls; it never moves its bytes.
    std::atomic<std::int64_t> copies_until_stall{0};
    std::atomic<std::int64_t> ops_until_failure{0};   // calls of kernels; the one that fails throws
    std::atomic<std::int64_t> rows_until_failure{0};  // copies on compute streams
    /// Time after which a stalled copy fails. Set it before the device is used.
    std::chrono::nanoseconds stall_after = kStallAfter;
    /// Stop flag; while it is true, copies take no time on their link. Null: never. Must outlive the device.
    const std::atomic<bool>* stop = nullptr;

    [[nodiscard]] bool stopped() const { return stop != nullptr && stop->load(std::memory_order_relaxed); }
};

/// Counts a call. Returns whether this call must fail.
[[nodiscard]] inline bool fault_is_due(std::atomic<std::int64_t>& until_failure) {
    std::int64_t left = until_failure.load(std::memory_order_relaxed);
    while (left > 0)
        if (until_failure.compare_exchange_weak(left, left - 1, std::memory_order_relaxed)) return left == 1;
    return false;
}

}  // namespace slipstream
