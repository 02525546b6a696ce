#include "offload/small_blocks.h"

#include <functional>
#include <iterator>

#include "kernels/base/check.h"
#include "kernels/base/checked_math.h"

namespace slipstream {

SmallBlocks::~SmallBlocks() {
    for (const Range& range : ranges_) HostPages::unmap(range.begin, kRangeBytes);
}

// nullptr where no gap is large enough.
std::byte* SmallBlocks::place(Range& range, std::size_t bytes) {
    for (auto gap = range.gaps.begin(); gap != range.gaps.end(); ++gap) {
        const auto [offset, free_bytes] = *gap;
        if (free_bytes < bytes) continue;
        auto node = range.gaps.extract(gap);
        if (free_bytes > bytes) {
            node.key() = offset + bytes;
            node.mapped() = free_bytes - bytes;
            range.gaps.insert(std::move(node));
        }
        return range.begin + offset;
    }
    return nullptr;
}

SmallBlocks::Block SmallBlocks::allocate(std::size_t bytes) {
    const std::size_t rounded = round_up(bytes, kAlignment);
    CHECK(bytes > 0 && rounded <= kRangeBytes, "a small block of {} bytes", bytes);
    const std::scoped_lock lock(mutex_);
    for (Range& range : ranges_)
        if (std::byte* data = place(range, rounded)) return {data, prepare(range, data, bytes)};
    std::byte* begin = HostPages::reserve(kRangeBytes, HostPages::kPageBytes);
    if (begin == nullptr) return {};
    Range& range = ranges_.emplace_back(
        Range{begin, {{0, kRangeBytes}}, std::vector<PageState>(kRangeBytes / HostPages::kPageBytes)});
    std::byte* data = place(range, rounded);
    return {data, prepare(range, data, bytes)};
}

// Prepares the pages under a block that no block before it had, run by run.
PageLock SmallBlocks::prepare(Range& range, std::byte* data, std::size_t bytes) {
    const auto offset = static_cast<std::size_t>(data - range.begin);
    const std::size_t end = (offset + bytes - 1) / HostPages::kPageBytes + 1;
    PageLock page_lock = PageLock::Locked;
    for (std::size_t page = offset / HostPages::kPageBytes; page < end;) {
        std::size_t run_end = page;
        while (run_end < end && range.pages[run_end] == PageState::Untouched) ++run_end;
        if (run_end > page) {
            const PageLock made =
                pages_->prepare(range.begin + page * HostPages::kPageBytes, (run_end - page) * HostPages::kPageBytes);
            const PageState state = made == PageLock::Locked ? PageState::Locked : PageState::Pageable;
            for (std::size_t i = page; i < run_end; ++i) range.pages[i] = state;
        } else {
            run_end = page + 1;
        }
        if (range.pages[page] != PageState::Locked) page_lock = PageLock::Pageable;
        page = run_end;
    }
    return page_lock;
}

const SmallBlocks::Range* SmallBlocks::range_of(const std::byte* block) const {
    for (const Range& range : ranges_)
        if (std::less_equal<>()(range.begin, block) && std::less<>()(block, range.begin + kRangeBytes)) return &range;
    return nullptr;
}

void SmallBlocks::free(std::byte* block, std::size_t bytes) noexcept {
    const std::scoped_lock lock(mutex_);
    const Range* found = range_of(block);
    CHECK(found != nullptr, "a block of {} bytes from elsewhere", bytes);
    Range& range = ranges_[static_cast<std::size_t>(found - ranges_.data())];
    auto offset = static_cast<std::size_t>(block - range.begin);
    std::size_t free_bytes = round_up(bytes, kAlignment);
    auto behind = range.gaps.lower_bound(offset);
    CHECK(behind == range.gaps.end() || offset + free_bytes <= behind->first, "a block given back twice");
    if (behind != range.gaps.end() && behind->first == offset + free_bytes) {
        free_bytes += behind->second;
        behind = range.gaps.erase(behind);
    }
    if (behind != range.gaps.begin()) {
        const auto before = std::prev(behind);
        CHECK(before->first + before->second <= offset, "a block given back twice");
        if (before->first + before->second == offset) {
            before->second += free_bytes;
            return;
        }
    }
    range.gaps.emplace_hint(behind, offset, free_bytes);
}

bool SmallBlocks::holds(const std::byte* block) const {
    const std::scoped_lock lock(mutex_);
    return range_of(block) != nullptr;
}

}  // namespace slipstream
