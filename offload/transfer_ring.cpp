// Going round the ring from head_, one meets free bytes, then the released slots in the order of their numbers, then
// the live ones, whose last ends at head_. A copy takes its place at head_ or, where that is too near the end, at 0,
// and the released slots that it covers or jumps over are always the oldest: those it waits for and forgets. Each slot
// has events of its own, since a card's event can only be waited for in its latest use.
#include "offload/transfer_ring.h"

#include "kernels/base/check.h"
#include "kernels/base/checked_math.h"

namespace slipstream {

namespace {

constexpr std::size_t kAlignBytes = 64;

}  // namespace

struct TransferRing::Slot {
    std::size_t offset = 0;
    std::size_t bytes = 0;  // with alignment
    std::unique_ptr<Event> copied;
    std::unique_ptr<Event> released;
    std::uint64_t copied_use = 0;
    std::uint64_t released_use = 0;
    const Stream* released_on = nullptr;
};

TransferRing::TransferRing(Device& device, std::span<std::byte> region, Stream& copies, std::int64_t max_items)
    : region_(region), copies_(&copies) {
    CHECK(max_items > 0 && reinterpret_cast<std::uintptr_t>(region.data()) % kAlignBytes == 0,
          "a ring for {} blocks at {}", max_items, static_cast<const void*>(region.data()));
    slots_.resize(static_cast<std::size_t>(max_items));
    for (Slot& slot : slots_) {
        slot.copied = device.make_event();
        slot.released = device.make_event();
    }
}

TransferRing::~TransferRing() {
    try {
        copies_->synchronize();
    } catch (...) {  // nobody is left to use what did not arrive
    }
}

std::size_t TransferRing::slot_bytes(std::size_t bytes) {
    return round_up(bytes, kAlignBytes);
}

std::size_t TransferRing::region_bytes_for_run(std::size_t run_bytes, std::size_t largest_bytes) {
    if (run_bytes == largest_bytes) return run_bytes;  // an item alone
    // An item that the end is too small for leaves less than itself unused there: an alignment less, at most.
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
    if (head_ > tail) {  // live items in one piece: free are the end and the front
        if (fits_to_end) return head_;
        if (bytes <= tail) return 0;
    } else if (bytes <= tail - head_) {  // live items wrap round; where head_ is at tail, they fill the ring
        return head_;
    }
    return std::nullopt;
}

void TransferRing::clear_place(std::size_t offset, std::size_t bytes) {
    const bool jumps = offset < head_;  // to the front
    const auto in_the_way = [&](const Slot& slot) {
        return (jumps && slot.offset >= head_) || (slot.offset >= offset && slot.offset < offset + bytes);
    };
    const Slot* newest = nullptr;
    while (oldest_ < first_live_ &&
           (next_ - oldest_ == static_cast<std::int64_t>(slots_.size()) || in_the_way(slots_[index_of(oldest_)]))) {
        const Slot& cleared = slots_[index_of(oldest_)];
        // A stream works in order: its latest release covers those before.
        if (newest != nullptr && newest->released_on != cleared.released_on)
            copies_->wait(*newest->released, newest->released_use);
        newest = &cleared;
        ++oldest_;
    }
    if (newest != nullptr) copies_->wait(*newest->released, newest->released_use);
}

std::int64_t TransferRing::push(const TransferItem& item) {
    CHECK(item.source != nullptr && item.bytes > 0, "a block of {} bytes to copy", item.bytes);
    const std::optional<std::size_t> offset = place_for(item.bytes);
    CHECK(offset, "no room for {} bytes in a ring of {}: {} blocks are not released", item.bytes, region_.size(),
          next_ - first_live_);
    clear_place(*offset, item.bytes);
    Slot& slot = slots_[index_of(next_)];
    slot.offset = *offset;
    slot.bytes = slot_bytes(item.bytes);
    head_ = slot.offset + slot.bytes;
    if (item.after != nullptr) copies_->wait(*item.after, item.after_use);
    copies_->copy(region_.data() + slot.offset, item.source, item.bytes);
    slot.copied_use = copies_->record(*slot.copied);
    bytes_pushed_ += item.bytes;
    return next_++;
}

const std::byte* TransferRing::acquire(std::int64_t number, Stream& compute) {
    CHECK(number >= first_live_ && number < next_, "block {} of the ring, which holds {} to {}", number, first_live_,
          next_ - 1);
    const Slot& slot = slots_[index_of(number)];
    compute.wait(*slot.copied, slot.copied_use);
    return region_.data() + slot.offset;
}

void TransferRing::release_oldest_live(Stream& compute) {
    Slot& slot = slots_[index_of(first_live_)];
    slot.released_use = compute.record(*slot.released);
    slot.released_on = &compute;
    ++first_live_;
}

void TransferRing::release(std::int64_t number, Stream& compute) {
    CHECK(number == first_live_ && number < next_, "release of block {}, where {} to {} are in the ring", number,
          first_live_, next_ - 1);
    release_oldest_live(compute);
}

void TransferRing::drop_all(Stream& compute) {
    while (first_live_ < next_) release_oldest_live(compute);
    copies_->synchronize();
}

}  // namespace slipstream
