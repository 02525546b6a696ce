// Small blocks of host memory: ranges of address space, each with the gaps that are free in it, their pages touched and
// locked as they are handed out; pages stay so until all blocks go, whoever uses them next. A block goes into the first
// gap that holds it, in the first range that has one; gaps that touch are one. Allocation is for loading and growing,
// never for a pass, so a walk over gaps is quick enough.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "offload/host_pages.h"

namespace slipstream {

class SmallBlocks {
public:
    static constexpr std::size_t kRangeBytes = std::size_t{32} << 20;
    static constexpr std::size_t kAlignment = 64;

    /// Takes nothing yet: a range comes with the first block that no other one holds. `pages` must outlive this.
    explicit SmallBlocks(HostPages& pages) : pages_(&pages) {}
    /// Every block is given up with it, and the memory of the ranges with them.
    ~SmallBlocks();
    SmallBlocks(const SmallBlocks&) = delete;
    SmallBlocks& operator=(const SmallBlocks&) = delete;

    struct Block {
        std::byte* data = nullptr;                // aligned, present; nullptr where the system has no address space
        PageLock page_lock = PageLock::Pageable;  // Locked: all its pages are
    };
    /// `bytes` in [1, kRangeBytes]. Callable from any thread, as is free().
    [[nodiscard]] Block allocate(std::size_t bytes);
    /// A block that allocate() gave for as many bytes.
    void free(std::byte* block, std::size_t bytes) noexcept;
    /// Whether a block is of these.
    [[nodiscard]] bool holds(const std::byte* block) const;

private:
    enum class PageState : std::uint8_t { Untouched, Pageable, Locked };
    struct Range {
        std::byte* begin;
        std::map<std::size_t, std::size_t> gaps;  // offset -> bytes; no two touch
        std::vector<PageState> pages;
    };
    [[nodiscard]] std::byte* place(Range& range, std::size_t bytes);
    PageLock prepare(Range& range, std::byte* data, std::size_t bytes);
    // Null where no range holds the block.
    [[nodiscard]] const Range* range_of(const std::byte* block) const;

    HostPages* pages_;
    mutable std::mutex mutex_;  // of the ranges
    std::vector<Range> ranges_;
};

}  // namespace slipstream
