// Small blocks of host memory out of one reserved range of addresses, suballocated by mimalloc, their pages touched and
// locked as they are handed out; pages stay so until the heap goes, whoever uses them next.
//
// mimalloc 2 ties a heap to the thread that made it and frees it when that thread ends, so each heap has a thread of
// its own, which serves the calls of all others one by one: allocation is for loading and growing, never for a pass.
// The range is an exclusive arena of mimalloc's, so nobody else's blocks get in. Arenas cannot be taken back from
// mimalloc and there are at most 64 a process, so ranges are kept and handed to the next heap.
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

    /// Takes nothing yet: range and thread come with the first block. `pages` must outlive the heap.
    explicit SmallHeap(HostPages& pages);
    /// Every block is given up with it, and the memory of the range with them.
    ~SmallHeap();
    SmallHeap(const SmallHeap&) = delete;
    SmallHeap& operator=(const SmallHeap&) = delete;

    struct Block {
        std::byte* data = nullptr;  // 64-byte aligned, present; nullptr where the range is full, or where there is
                                    // none: no address space, no thread, no arena left
        PageLock page_lock = PageLock::Pageable;  // Locked: all its pages are
    };
    /// Callable from any thread, as is free().
    [[nodiscard]] Block allocate(std::size_t bytes);
    void free(std::byte* block) noexcept;
    /// Whether a block lies in this heap's range.
    [[nodiscard]] bool holds(const std::byte* block) const;

private:
    class Worker;
    enum class PageState : std::uint8_t { Untouched, Pageable, Locked };
    void start();
    PageLock prepare(std::byte* data, std::size_t bytes);

    HostPages* pages_;
    mutable std::mutex mutex_;            // of all below
    std::unique_ptr<Worker> worker_;      // made for the first block
    bool unavailable_ = false;            // there was no range, or no thread
    std::vector<PageState> page_states_;  // of the range
};

}  // namespace slipstream
