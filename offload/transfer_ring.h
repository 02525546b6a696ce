// A region of device memory through which items of host memory pass, first in, first out. Each item is copied ahead of
// its use.
//
// Slots have variable sizes and follow one another. An item that does not fit between the last slot and the end of the
// region starts at the front, so items are never cut here. A copy into a slot waits (on the copy stream, never on the
// host) for the release of what the slot held before. That release must have been recorded, so room is only counted
// once release() was called. Hence the order of enqueueing: compute, release, copy ahead (README.md).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kernels/device.h"

namespace slipstream {

/// Bytes of host memory that are copied to the device as one.
struct TransferItem {
    const std::byte* source = nullptr;  // host memory, which must stay unchanged until the copy is done
    std::size_t bytes = 0;              // > 0
    const Event* after = nullptr;  // if set: the copy waits for use `after_use` of it (a flush that writes `source`)
    std::uint64_t after_use = 0;   // 0: the copy waits for none
};

/// Begin and end of a copy, by the host's clock.
struct CopyTimes {
    std::chrono::steady_clock::time_point begin{};
    std::chrono::steady_clock::time_point end{};
    bool is_measured = false;  // false: `begin` is the time of enqueueing and `end` the time of asking; a GPU may have
                               // copied at any time between them, or not yet
};

class TransferRing {
public:
    /// `region` is memory of `device`, 64-byte aligned (CHECKed). At most `max_items` (> 0) items are in it at once.
    /// Copies are enqueued on `copies` (StreamKind CopyIn). Device, region and stream must outlive the ring.
    TransferRing(Device& device, std::span<std::byte> region, Stream& copies, std::int64_t max_items);
    /// Waits for copies in progress. Their errors are lost.
    ~TransferRing();
    TransferRing(const TransferRing&) = delete;
    TransferRing& operator=(const TransferRing&) = delete;

    [[nodiscard]] std::size_t region_bytes() const { return region_.size(); }
    /// Returns the bytes that an item of `bytes` takes in the ring: `bytes`, rounded up to the alignment of slots.
    [[nodiscard]] static std::size_t slot_bytes(std::size_t bytes);
    /// Returns the size of a ring in which any run of consecutive items can be live at once, if the run takes
    /// `run_bytes` in total and no item more than `largest_bytes` (both counted by slot_bytes()). Unless the
    /// run is a single item, the ring is larger than the run: wherever the run begins, one item may have to move from
    /// the end of the region to the front.
    [[nodiscard]] static std::size_t region_bytes_for_run(std::size_t run_bytes, std::size_t largest_bytes);
    /// Whether push() has room for an item of `bytes` now. If all pushed items are released, there is room for any item
    /// that is no larger than the ring.
    [[nodiscard]] bool has_room(std::size_t bytes) const { return place_for(bytes).has_value(); }
    /// Enqueues the copy of an item. Returns its number: 0 for the first item, then one more each time. has_room() must
    /// be true (CHECKed).
    std::int64_t push(const TransferItem& item);
    /// Returns the device address of item `number`, 64-byte aligned, for work enqueued on `compute` from now on; valid
    /// until its release, and until then it may be acquired again. The item must be pushed and not released (CHECKed).
    /// Throws the error of its copy, or of an earlier copy, if `compute` reports it; then drop_all() makes the ring
    /// usable again.
    [[nodiscard]] const std::byte* acquire(std::int64_t number, Stream& compute);
    /// Ends the use of item `number` after all work enqueued on `compute` so far. It must be the oldest item that is
    /// not released (CHECKed).
    void release(std::int64_t number, Stream& compute);
    /// Drops every item that is not released and blocks the host until all copies are done; numbers continue. Later
    /// copies into their slots wait for the work enqueued on `compute` so far, as after release(). Rethrows the error
    /// of a failed copy; the ring is empty and usable after that, too.
    void drop_all(Stream& compute);

    /// Keeps the times of copies from now on, for copy_times().
    void time_copies() {
        is_timed_ = true;
        last_copy_end_ = std::chrono::steady_clock::now();
    }
    /// Returns the times of item `number`, which is pushed and not released (CHECKed). Requires time_copies() before
    /// its push. The beginning is that of a copy that waited for nothing but earlier copies.
    [[nodiscard]] CopyTimes copy_times(std::int64_t number);

    /// Returns the number of items pushed so far, which is the number of the next one.
    [[nodiscard]] std::int64_t next_number() const { return next_; }
    /// Returns the bytes of all items pushed so far, without alignment.
    [[nodiscard]] std::uint64_t bytes_pushed() const { return bytes_pushed_; }

private:
    struct Slot;
    [[nodiscard]] std::size_t index_of(std::int64_t number) const;
    // Returns the offset in the region of an item that is pushed next; nullopt if there is no room for it.
    [[nodiscard]] std::optional<std::size_t> place_for(std::size_t bytes) const;
    // Makes room for an item at [offset, offset + bytes): forgets the released items that overlap it or that the
    // placement skips, and the oldest one if all entries of slots_ are in use. Makes the copy stream wait for their
    // releases.
    void clear_place(std::size_t offset, std::size_t bytes);
    void release_oldest_live(Stream& compute);
    // Notes the times of the copies that are done by now.
    void note_completed();

    std::span<std::byte> region_;
    Stream* copies_;
    std::vector<Slot> slots_;  // [max_items]; item k uses entry k % max_items
    // Items [oldest_, first_live_) are released, but no copy has overwritten them yet; items [first_live_, next_) are
    // live.
    std::int64_t oldest_ = 0;
    std::int64_t first_live_ = 0;
    std::int64_t next_ = 0;
    std::size_t head_ = 0;  // offset of the end of the last slot, aligned, so it can be past the end of the region
    std::uint64_t bytes_pushed_ = 0;
    bool is_timed_ = false;
    std::int64_t first_untimed_ = 0;  // items before it have their times
    std::chrono::steady_clock::time_point last_copy_end_{};
};

}  // namespace slipstream
