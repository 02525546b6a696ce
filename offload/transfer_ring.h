// A region of device memory that items of host memory pass through, first in, first out, each copied ahead of its use.
//
// Slots are of variable size and lie one behind the other; an item that does not fit behind the last one begins at the
// front again, so items are never cut here. A copy into a slot waits (on the copy stream, never on the host) for the
// release of whatever lay there; that release must have been recorded, which is why room is only counted once release()
// was called. So the order of enqueueing is: compute, release, copy ahead (README.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kernels/device.h"

namespace slipstream {

/// An item on its way to the device.
struct TransferItem {
    const std::byte* source = nullptr;  // host memory that stays as it is until the copy is done
    std::size_t bytes = 0;              // > 0
    const Event* after = nullptr;       // where set: the copy waits for use `after_use` of it (a flush of these bytes)
    std::uint64_t after_use = 0;
};

class TransferRing {
public:
    /// `region` is memory of `device`, 64-byte aligned; at most `max_items` (> 0) lie in it at once. Copies go over
    /// `copies` (CopyIn). All must outlive the ring.
    TransferRing(Device& device, std::span<std::byte> region, Stream& copies, std::int64_t max_items);
    /// Waits for copies under way; what failed in them is lost.
    ~TransferRing();
    TransferRing(const TransferRing&) = delete;
    TransferRing& operator=(const TransferRing&) = delete;

    [[nodiscard]] std::size_t region_bytes() const { return region_.size(); }
    /// Bytes that an item takes in the ring: its own, rounded up to the alignment of slots.
    [[nodiscard]] static std::size_t slot_bytes(std::size_t bytes);
    /// Bytes of a ring in which any run of items that takes `run_bytes` together, none more than `largest_bytes` (both
    /// as slot_bytes() counts), can be live at once: wherever it begins, an item may be moved from the end to the
    /// front.
    [[nodiscard]] static std::size_t region_bytes_for_run(std::size_t run_bytes, std::size_t largest_bytes);
    /// Whether push() of an item of `bytes` has room now. Always so for an item no larger than the ring when none that
    /// was pushed is unreleased.
    [[nodiscard]] bool has_room(std::size_t bytes) const { return place_for(bytes).has_value(); }
    /// Enqueues the copy of an item; its number, one more than the last one's. CHECKs has_room().
    std::int64_t push(const TransferItem& item);
    /// The item on the device, 64-byte aligned, for work enqueued on `compute` from now on. Valid until its release.
    /// May be called again. CHECKs that the item was pushed and not released. Throws what failed in its copy or
    /// before, as `compute` tells it; then drop_all() makes the ring usable again.
    [[nodiscard]] const std::byte* acquire(std::int64_t number, Stream& compute);
    /// `compute` is done with the oldest item not released, which must be this one.
    void release(std::int64_t number, Stream& compute);
    /// Blocks the host until all copies are done and drops every item that is not released; numbers go on. What
    /// `compute` was given to do with them is waited for like a release. Rethrows what failed in a copy; the ring is
    /// empty and usable then, too.
    void drop_all(Stream& compute);

    /// Items pushed so far: the next one's number.
    [[nodiscard]] std::int64_t next_number() const { return next_; }
    /// Bytes of the items pushed so far.
    [[nodiscard]] std::uint64_t bytes_pushed() const { return bytes_pushed_; }

private:
    struct Slot;
    [[nodiscard]] std::size_t index_of(std::int64_t number) const;
    // Where the next item would lie; nothing where it has no room.
    [[nodiscard]] std::optional<std::size_t> place_for(std::size_t bytes) const;
    // Lets the copy stream wait until the place is free for a copy, and an entry of slots_ for its events.
    void clear_place(std::size_t offset, std::size_t bytes);
    void release_oldest_live(Stream& compute);

    std::span<std::byte> region_;
    Stream* copies_;
    std::vector<Slot> slots_;  // of item k: k % size
    // Items [oldest_, first_live_) are released, but nothing was copied over them yet; [first_live_, next_) are live.
    std::int64_t oldest_ = 0;
    std::int64_t first_live_ = 0;
    std::int64_t next_ = 0;
    std::size_t head_ = 0;  // offset behind the last slot, aligned: may lie behind the region
    std::uint64_t bytes_pushed_ = 0;
};

}  // namespace slipstream
