// The order of bytes around the ring, from head_ on: free bytes, then the released slots in the order of their numbers,
// then the live slots, the last of which ends at head_. A copy is placed at head_ or, if the end of the region is too
// near, at 0. The released slots that it covers or skips are always the oldest ones: the copy waits for their releases,
// and they are forgotten. Each slot has its own events, since a GPU can only wait for the latest use of an event.
#include "offload/transfer_ring.h"

#include <algorithm>
#include <exception>

#include "kernels/base/check.h"
#include "kernels/base/checked_math.h"
#include "kernels/event_time.h"

namespace slipstream {

namespace {

constexpr std::size_t kAlignBytes = 64;  // alignment of slots, in bytes

}  // namespace

struct TransferRing::Slot {
    std::size_t offset = 0;
    std::size_t bytes = 0;  // bytes that the item takes, rounded up by slot_bytes()
    std::unique_ptr<Event> copied;
    std::unique_ptr<Event> released;
    std::uint64_t copied_use = 0;
    std::uint64_t released_use = 0;
    const Stream* released_on = nullptr;  // stream of the release; null: the host has waited for it
    CopyTimes times{};                    // times of the copy, only if the ring is timed
};

TransferRing::TransferRing(Device& device, std::span<std::byte> region, Stream& copies, std::int64_t max_items)
    : region_(region), copies_(&copies) {
    CHECK(max_items > 0 && reinterpret_cast<std::uintptr_t>(region.data()) % kAlignBytes == 0,
          "a ring for {} items at {}", max_items, static_cast<const void*>(region.data()));
    slots_.resize(max_items);
    for (Slot& slot : slots_) {
        slot.copied = device.make_event();
        slot.released = device.make_event();
    }
}

TransferRing::~TransferRing() {
    try {
        copies_->synchronize();
    } catch (...) {  // no code is left that could use an item whose copy failed
    }
}

std::size_t TransferRing::slot_bytes(std::size_t bytes) {
    return round_up(bytes, kAlignBytes);
}

std::size_t TransferRing::region_bytes_for_run(std::size_t run_bytes, std::size_t largest_bytes) {
    if (run_bytes == largest_bytes) return run_bytes;  // a single item
    // An item that does not fit at the end of the region leaves fewer bytes than its own size unused there: at most its
    // size minus one alignment.
    return run_bytes + largest_bytes - kAlignBytes;
}

std::size_t TransferRing::index_of(std::int64_t number) const {
    return static_cast<std::size_t>(number) % slots_.size();
}

std::optional<std::size_t> TransferRing::place_for(std::size_t bytes) const {
    const std::size_t n_live = static_cast<std::size_t>(next_ - first_live_);
    if (n_live == slots_.size() || bytes > region_.size()) return std::nullopt;
    const bool fits_to_end = head_ <= region_.size() - bytes;
    if (n_live == 0) return fits_to_end ? head_ : 0;
    const std::size_t tail = slots_[index_of(first_live_)].offset;
    if (head_ > tail) {  // the live slots are contiguous: the end and the front of the region are free
        if (fits_to_end) return head_;
        if (bytes <= tail) return 0;
    } else if (bytes <= tail - head_) {  // the live slots wrap around; if head_ == tail, they fill the ring
        return head_;
    }
    return std::nullopt;
}

void TransferRing::clear_place(std::size_t offset, std::size_t bytes) {
    const bool jumps = offset < head_;  // the new slot is at the front of the region, and the previous one was not
    const auto in_the_way = [&](const Slot& slot) {
        return (jumps && slot.offset >= head_) || (slot.offset >= offset && slot.offset < offset + bytes);
    };
    const Slot* newest = nullptr;
    // Number of the first item whose slot is not forgotten. oldest_ moves there only after all waits are enqueued,
    // since enqueueing a wait may throw.
    std::int64_t end = oldest_;
    for (; end < first_live_ &&
           (next_ - end == static_cast<std::int64_t>(slots_.size()) || in_the_way(slots_[index_of(end)]));
         ++end) {
        const Slot& cleared = slots_[index_of(end)];
        if (cleared.released_on == nullptr) continue;
        // A stream works in order, so waiting for its latest release covers its earlier ones.
        if (newest != nullptr && newest->released_on != cleared.released_on)
            copies_->wait(*newest->released, newest->released_use);
        newest = &cleared;
    }
    if (newest != nullptr) copies_->wait(*newest->released, newest->released_use);
    oldest_ = end;
}

std::int64_t TransferRing::push(const TransferItem& item) {
    CHECK(item.source != nullptr && item.bytes > 0, "an item of {} bytes to copy", item.bytes);
    const std::optional<std::size_t> offset = place_for(item.bytes);
    CHECK(offset, "no room for {} bytes in a ring of {}: {} items are not released", item.bytes, region_.size(),
          next_ - first_live_);
    clear_place(*offset, item.bytes);
    Slot& slot = slots_[index_of(next_)];
    slot.offset = *offset;
    slot.bytes = slot_bytes(item.bytes);
    if (is_timed_) {
        note_completed();
        slot.times = {.begin = std::chrono::steady_clock::now()};
    }
    if (item.after != nullptr && item.after_use > 0) copies_->wait(*item.after, item.after_use);
    copies_->copy(region_.data() + slot.offset, item.source, item.bytes);
    slot.copied_use = copies_->record(*slot.copied);
    head_ = slot.offset + slot.bytes;  // from here on the item is in the ring: if an earlier call throws, it is not
    bytes_pushed_ += item.bytes;
    return next_++;
}

const std::byte* TransferRing::acquire(std::int64_t number, Stream& compute) {
    CHECK(number >= first_live_ && number < next_, "item {} of the ring, which holds items {} to {}", number,
          first_live_, next_ - 1);
    const Slot& slot = slots_[index_of(number)];
    compute.wait(*slot.copied, slot.copied_use);
    return region_.data() + slot.offset;
}

void TransferRing::note_completed() {
    for (first_untimed_ = std::max(first_untimed_, oldest_); first_untimed_ < next_; ++first_untimed_) {
        Slot& slot = slots_[index_of(first_untimed_)];
        if (slot.copied->completed() < slot.copied_use) return;
        const auto time = completion_time(*slot.copied);
        if (!time) continue;  // without a measured end; copy_times() then takes the moment at which it is called
        slot.times = {std::max(slot.times.begin, last_copy_end_), *time, true};
        last_copy_end_ = *time;
    }
}

CopyTimes TransferRing::copy_times(std::int64_t number) {
    CHECK(is_timed_ && number >= first_live_ && number < next_, "times of item {}, but the ring holds items {} to {}",
          number, first_live_, next_ - 1);
    note_completed();
    CopyTimes times = slots_[index_of(number)].times;
    if (!times.is_measured) {
        times.begin = std::max(times.begin, last_copy_end_);
        times.end = std::chrono::steady_clock::now();
    }
    return times;
}

void TransferRing::release_oldest_live(Stream& compute) {
    Slot& slot = slots_[index_of(first_live_)];
    slot.released_use = compute.record(*slot.released);
    slot.released_on = &compute;
    ++first_live_;
}

void TransferRing::release(std::int64_t number, Stream& compute) {
    CHECK(number == first_live_ && number < next_, "release of item {}, but the ring holds items {} to {}", number,
          first_live_, next_ - 1);
    release_oldest_live(compute);
}

void TransferRing::drop_all(Stream& compute) {
    std::exception_ptr failure;
    try {
        while (first_live_ < next_) release_oldest_live(compute);
    } catch (...) {
        // The device refuses an event: the host waits in place of the copy stream.
        for (; first_live_ < next_; ++first_live_) slots_[index_of(first_live_)].released_on = nullptr;
        try {
            compute.synchronize();
        } catch (...) {
            failure = std::current_exception();
        }
    }
    copies_->synchronize();
    if (failure) std::rethrow_exception(failure);
}

}  // namespace slipstream
