// Small buffers of host memory, which mimalloc allocates from one reserved range of addresses. Pages are touched and
// locked when a buffer first uses them, and stay so until the heap is destroyed, whichever buffer uses them next.
//
// mimalloc 2 ties a heap to the thread that created it and frees it when that thread ends. So each SmallHeap has its
// own thread, which serves the calls of all other threads one by one; buffers are allocated while loading and growing,
// never in a pass. The range is an exclusive arena of mimalloc, so no other allocation uses it. mimalloc cannot release
// an arena and has at most 64 of them per process, so ranges are kept and reused by later heaps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "offload/host_pages.h"

namespace slipstream {

class SmallHeap {
public:
    static constexpr std::size_t kRangeBytes = std::size_t{256} << 20;

    /// Allocates nothing yet: the range and the thread are created for the first buffer. `pages` must outlive the heap.
    explicit SmallHeap(HostPages& pages);
    /// Frees all buffers, which must not be used any more, and returns the memory of the range to the system.
    ~SmallHeap();
    SmallHeap(const SmallHeap&) = delete;
    SmallHeap& operator=(const SmallHeap&) = delete;

    struct Block {
        std::byte* data = nullptr;  // 64-byte aligned, pages present; nullptr if the range is full, or if there is none
                                    // (no address space, thread or mimalloc arena left)
        PageLock page_lock = PageLock::Pageable;  // Locked if all pages of the block are locked
    };
    /// Returns a buffer of `bytes`, which the caller must pass to free() or leave to the destructor. Thread-safe, as is
    /// free().
    [[nodiscard]] Block allocate(std::size_t bytes);
    void free(std::byte* block) noexcept;
    /// Whether the address `block` is in the range of this heap.
    [[nodiscard]] bool holds(const std::byte* block) const;

private:
    class Worker;
    enum class PageState : std::uint8_t { Untouched, Pageable, Locked };
    void start();
    PageLock prepare(std::byte* data, std::size_t bytes);

    HostPages* pages_;
    mutable std::mutex mutex_;            // protects all members below
    std::unique_ptr<Worker> worker_;      // null until the first buffer
    bool unavailable_ = false;            // no range or no thread could be had
    std::vector<PageState> page_states_;  // [pages of the range]
};

}  // namespace slipstream
