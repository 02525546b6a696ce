#include "offload/item_cache.h"

#include <algorithm>
#include <exception>

#include "kernels/base/check.h"
#include "kernels/event_time.h"

namespace slipstream {

namespace {

// Calls on_slot(group, slot, offset) for all slots, in the order of their addresses. Returns the end of the last one.
template <typename OnSlot>
std::size_t place_slots(std::span<const ItemCache::Group> groups, const OnSlot& on_slot) {
    std::int32_t most = 0;
    for (const ItemCache::Group& group : groups) most = std::max(most, group.n_slots);
    std::size_t offset = 0;
    for (std::int32_t slot = 0; slot < most; ++slot) {
        for (std::size_t i = 0; i < groups.size(); ++i) {
            if (slot >= groups[i].n_slots) continue;
            on_slot(i, slot, offset);
            offset += TransferRing::slot_bytes(groups[i].item_bytes);
        }
    }
    return offset;
}

}  // namespace

std::size_t ItemCache::region_bytes(std::span<const Group> groups) {
    return place_slots(groups, [](std::size_t, std::int32_t, std::size_t) {});
}

ItemCache::ItemCache(Device& device, std::span<std::byte> region, std::span<const Group> groups, Stream& copies)
    : region_(region), copies_(&copies), unread_(device.make_event()) {
    CHECK(region.size() == region_bytes(groups) && reinterpret_cast<std::uintptr_t>(region.data()) % 64 == 0,
          "slots of {} bytes in a region of {}", region_bytes(groups), region.size());
    std::size_t n_slots = 0;
    for (const Group& group : groups) {
        CHECK(group.n_slots >= 0 && group.n_slots <= group.n_items, "{} slots for {} items", group.n_slots,
              group.n_items);
        Slots& slots = groups_.emplace_back();
        slots.item_bytes = group.item_bytes;
        slots.slots.resize(static_cast<std::size_t>(group.n_slots));
        slots.slot_of.assign(static_cast<std::size_t>(group.n_items), -1);
        for (Slot& slot : slots.slots) slot.copied = device.make_event();
        n_slots += slots.slots.size();
    }
    place_slots(groups, [&](std::size_t group, std::int32_t slot, std::size_t offset) {
        groups_[group].slots[slot].offset = offset;
    });
    loaded_.reserve(n_slots);
}

ItemCache::~ItemCache() {
    try {
        copies_->synchronize();
    } catch (...) {  // no code is left that could use an item whose copy failed
    }
}

std::int32_t ItemCache::slot_number(std::int64_t group, std::int32_t item) const {
    return groups_.at(static_cast<std::size_t>(group)).slot_of.at(static_cast<std::size_t>(item));
}

std::int32_t ItemCache::n_free(std::int64_t group) const {
    const Slots& slots = groups_.at(static_cast<std::size_t>(group));
    return static_cast<std::int32_t>(slots.slots.size()) - slots.n_held;
}

bool ItemCache::is_full() const {
    return std::ranges::all_of(
        groups_, [](const Slots& slots) { return slots.n_held == static_cast<std::int32_t>(slots.slots.size()); });
}

void ItemCache::free_slot(std::int64_t group, std::int32_t item) {
    Slots& slots = groups_[group];
    std::int32_t& number = slots.slot_of[item];
    slots.slots[number].item = -1;
    number = -1;
    --slots.n_held;
}

void ItemCache::evict(std::int64_t group, std::int32_t item, Stream& compute) {
    const auto is_it = [&](const Loaded& loaded) { return loaded.group == group && loaded.item == item; };
    CHECK(holds(group, item) && std::ranges::none_of(loaded_, is_it), "item {} of group {} has no slot to lose", item,
          group);
    copies_->wait(*unread_, compute.record(*unread_));
    free_slot(group, item);
}

void ItemCache::load(std::int64_t group, std::int32_t item, const TransferItem& copy) {
    CHECK(!holds(group, item) && has_free_slot(group), "item {} of group {} has a slot, or there is none", item, group);
    Slots& slots = groups_[group];
    CHECK(copy.source != nullptr && copy.bytes > 0 && copy.bytes <= slots.item_bytes && copy.after == nullptr,
          "{} bytes into a slot of {}", copy.bytes, slots.item_bytes);
    const auto free = std::ranges::find(slots.slots, -1, &Slot::item);
    if (is_timed_) free->enqueued = std::chrono::steady_clock::now();
    copies_->copy(region_.data() + free->offset, copy.source, copy.bytes);
    free->copied_use = copies_->record(*free->copied);
    free->has_arrived = false;
    free->item = item;  // from here on it has the slot: if an earlier call throws, it has not
    slots.slot_of[item] = static_cast<std::int32_t>(free - slots.slots.begin());
    ++slots.n_held;
    loaded_.push_back({group, item});
}

const std::byte* ItemCache::acquire(std::int64_t group, std::int32_t item, Stream& compute) {
    const std::int32_t number = slot_number(group, item);
    CHECK(number >= 0, "item {} of group {} has no slot", item, group);
    Slot& slot = groups_[group].slots[number];
    if (!slot.has_arrived) {
        compute.wait(*slot.copied, slot.copied_use);
        slot.has_arrived = slot.copied->completed() >= slot.copied_use;
    }
    return region_.data() + slot.offset;
}

void ItemCache::drop_loaded(Stream& compute) {
    if (loaded_.empty()) return;
    std::exception_ptr failure;
    // A slot that is freed here is written again without a wait, so nothing may use it any more.
    for (Stream* stream : {&compute, copies_}) {
        try {
            stream->synchronize();
        } catch (...) {
            if (!failure) failure = std::current_exception();
        }
    }
    for (const Loaded& loaded : loaded_) free_slot(loaded.group, loaded.item);
    loaded_.clear();
    if (failure) std::rethrow_exception(failure);
}

CopyTimes ItemCache::copy_times(std::int64_t group, std::int32_t item) const {
    const std::int32_t number = slot_number(group, item);
    CHECK(is_timed_ && number >= 0, "times of item {} of group {}", item, group);
    const Slot& slot = groups_[group].slots[number];
    const auto end = slot.copied->completed() >= slot.copied_use ? completion_time(*slot.copied) : std::nullopt;
    return {slot.enqueued, end.value_or(std::chrono::steady_clock::now()), end.has_value()};
}

}  // namespace slipstream
