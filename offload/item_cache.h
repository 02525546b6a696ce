// Keeps items of host memory in slots of device memory, from one pass to the next. Items belong to groups; each group
// has slots of its own, of equal size. A free slot takes an item and keeps it until the item is evicted.
//
// Slot j of all groups lie together, before slot j + 1 of any: the last slots of all groups are the end of the region.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/device.h"
#include "offload/transfer_ring.h"

namespace slipstream {

class ItemCache {
public:
    struct Group {
        std::size_t item_bytes = 0;  // of the largest item
        std::int32_t n_items = 0;
        std::int32_t n_slots = 0;
    };

    /// Returns the size of the region for the slots of `groups`.
    [[nodiscard]] static std::size_t region_bytes(std::span<const Group> groups);

    /// `region` is memory of `device` of region_bytes(groups), 64-byte aligned (CHECKed). Copies are enqueued on
    /// `copies` (StreamKind CopyIn). Device, region and stream must outlive the cache.
    ItemCache(Device& device, std::span<std::byte> region, std::span<const Group> groups, Stream& copies);
    /// Waits for copies in progress. Their errors are lost.
    ~ItemCache();
    ItemCache(const ItemCache&) = delete;
    ItemCache& operator=(const ItemCache&) = delete;

    /// Whether the item has a slot; its copy may still be on the way.
    [[nodiscard]] bool holds(std::int64_t group, std::int32_t item) const { return slot_number(group, item) >= 0; }
    [[nodiscard]] std::int32_t n_free(std::int64_t group) const;
    [[nodiscard]] bool has_free_slot(std::int64_t group) const { return n_free(group) > 0; }
    /// Whether no group has a free slot.
    [[nodiscard]] bool is_full() const;
    /// Frees the slot of an item that was loaded before the last keep_loaded() or drop_loaded() (both CHECKed). Copies
    /// that are enqueued later wait for the work enqueued on `compute` so far, which may read the slot; later work must
    /// not.
    void evict(std::int64_t group, std::int32_t item, Stream& compute);
    /// Enqueues the copy of an item without a slot into a free slot of its group (both CHECKed).
    void load(std::int64_t group, std::int32_t item, const TransferItem& copy);
    /// Returns the device address of an item that has a slot (CHECKed), for work enqueued on `compute` from now on.
    /// Throws the error of its copy, or of an earlier copy, if `compute` reports it; then drop_loaded() makes the cache
    /// usable again.
    [[nodiscard]] const std::byte* acquire(std::int64_t group, std::int32_t item, Stream& compute);
    /// Keeps what was loaded since the last keep_loaded() or drop_loaded(), for a pass that has acquired all of it
    /// without an error.
    void keep_loaded() { loaded_.clear(); }
    /// Frees the slots of what was loaded since then, for a pass that was given up or has failed. If there is any,
    /// blocks the host until `compute` and all copies are done, and rethrows their error; the cache is usable after
    /// that, too.
    void drop_loaded(Stream& compute);

    /// Keeps the times of copies from now on, for copy_times().
    void time_copies() { is_timed_ = true; }
    /// Returns the times of the copy of an item that was acquired. Requires time_copies() before its load().
    [[nodiscard]] CopyTimes copy_times(std::int64_t group, std::int32_t item) const;

private:
    struct Slot {
        std::size_t offset = 0;
        std::int32_t item = -1;  // -1: free
        std::unique_ptr<Event> copied;
        std::uint64_t copied_use = 0;
        bool has_arrived = false;  // the host has seen the end of the copy: no stream needs to wait for it
        std::chrono::steady_clock::time_point enqueued{};
    };
    struct Slots {
        std::size_t item_bytes = 0;
        std::int32_t n_held = 0;
        std::vector<Slot> slots;
        std::vector<std::int32_t> slot_of;  // [items]; -1: none
    };
    struct Loaded {
        std::int64_t group = 0;
        std::int32_t item = 0;
    };
    void free_slot(std::int64_t group, std::int32_t item);
    [[nodiscard]] std::int32_t slot_number(std::int64_t group, std::int32_t item) const;

    std::span<std::byte> region_;
    Stream* copies_;
    std::unique_ptr<Event> unread_;  // recorded on compute streams: slots that were freed before are read no more
    std::vector<Slots> groups_;
    std::vector<Loaded> loaded_;  // since keep_loaded() or drop_loaded()
    bool is_timed_ = false;
};

}  // namespace slipstream
