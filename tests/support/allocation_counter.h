// Counts the calls of operator new in all threads of a program. This header replaces the global operators: include it
// in exactly one source file of an executable that contains only such tests.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace slipstream {

struct AllocationCounts {
    std::int64_t n = 0;
    std::int64_t bytes = 0;

    friend AllocationCounts operator-(const AllocationCounts& a, const AllocationCounts& b) {
        return {a.n - b.n, a.bytes - b.bytes};
    }
};

namespace allocation_counter_detail {

inline std::atomic<std::int64_t> n_allocations{0};
inline std::atomic<std::int64_t> n_bytes{0};

inline void* allocate(std::size_t bytes, std::size_t alignment) {
    n_allocations.fetch_add(1, std::memory_order_relaxed);
    n_bytes.fetch_add(static_cast<std::int64_t>(bytes), std::memory_order_relaxed);
    void* memory = std::aligned_alloc(alignment, (bytes / alignment + 1) * alignment);
    if (memory == nullptr) throw std::bad_alloc();
    return memory;
}

}  // namespace allocation_counter_detail

/// Returns the number and the bytes of all allocations of the program so far.
inline AllocationCounts allocations() {
    using namespace allocation_counter_detail;
    return {n_allocations.load(), n_bytes.load()};
}

}  // namespace slipstream

// The array and nothrow forms of the standard library call these operators. They are not inlined, since with sanitizers
// gcc 12 then warns falsely of free() for what operator new returns.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
    return slipstream::allocation_counter_detail::allocate(bytes, alignof(std::max_align_t));
}
[[gnu::noinline]] void* operator new(std::size_t bytes, std::align_val_t alignment) {
    return slipstream::allocation_counter_detail::allocate(bytes, static_cast<std::size_t>(alignment));
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
    std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
    std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept {
    std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
    std::free(memory);
}
