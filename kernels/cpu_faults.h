// Faults of a CPU device, for tests: an allocation or an asynchronous copy that fails, as memory and links can.
#pragma once

#include <atomic>
#include <cstdint>

namespace slipstream {

/// Counts down to the call that fails: 1 is the next one, 0 none. May be set while the device is in use.
struct CpuFaults {
    std::atomic<std::int64_t> allocations_until_failure{0};  // of device memory, scratch of kernels included
    std::atomic<std::int64_t> copies_until_failure{0};       // on streams of kind CopyIn and CopyOut, of any bytes
};

/// Counts a call; whether it is the one to fail.
[[nodiscard]] inline bool fault_is_due(std::atomic<std::int64_t>& until_failure) {
    std::int64_t left = until_failure.load(std::memory_order_relaxed);
    while (left > 0)
        if (until_failure.compare_exchange_weak(left, left - 1, std::memory_order_relaxed)) return left == 1;
    return false;
}

}  // namespace slipstream
