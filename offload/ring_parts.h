// How a transfer ring is divided between items that are copied ahead, by a schedule, and items that are copied on
// demand, when it is known that a pass reads them.
#pragma once

#include <algorithm>
#include <cstddef>

#include "kernels/base/check.h"

namespace slipstream {

/// Most bytes of a scheduled copy where there are items on demand: such an item is waited for, and its copy takes turns
/// with those that are ahead of their use.
inline constexpr std::size_t kMostBytesBesideDemand = std::size_t{4} << 20;

/// Slots of the largest item of each kind that a ring must hold, in bytes of the ring; 0: there are no such items.
struct RingSlots {
    std::size_t scheduled = 0;
    std::size_t on_demand = 0;
    /// Returns the bytes of the smallest ring: with room for one item only, the link and the device would work by
    /// turns.
    [[nodiscard]] std::size_t least_ring_bytes() const { return 2 * scheduled + 2 * on_demand; }
};

/// Bytes of a ring for each kind of items. The part for items on demand is at the end.
struct RingParts {
    std::size_t scheduled = 0;
    std::size_t on_demand = 0;
};

/// Divides a ring. Items of one kind alone get all of it. Where there are both kinds, the ring must have at least
/// slots.least_ring_bytes() (CHECKed), and those on demand get a quarter: they wait for the device's choice in any
/// case, while the scheduled ones fill their part.
[[nodiscard]] inline RingParts divide_ring(std::size_t ring_bytes, const RingSlots& slots) {
    if (slots.on_demand == 0) return {.scheduled = ring_bytes};
    if (slots.scheduled == 0) return {.on_demand = ring_bytes};
    CHECK(ring_bytes >= slots.least_ring_bytes(), "a ring of {} bytes for slots of {} and {}", ring_bytes,
          slots.scheduled, slots.on_demand);
    constexpr std::size_t kAlignBytes = 64;  // of slots, so of the beginning of the second part
    const std::size_t on_demand = std::clamp(ring_bytes / 4, 2 * slots.on_demand, ring_bytes - 2 * slots.scheduled);
    const std::size_t scheduled = (ring_bytes - on_demand) / kAlignBytes * kAlignBytes;
    return {scheduled, ring_bytes - scheduled};
}

}  // namespace slipstream
