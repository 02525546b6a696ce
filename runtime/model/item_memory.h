// Where the items of a model lie: in memory of the device, in a pinned arena of the host from where they stream, or
// where those of another model lie, which then has them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "kernels/device.h"
#include "offload/pinned_arena.h"
#include "runtime/model/weight_items.h"

namespace slipstream {

inline constexpr std::size_t kUncutItems = std::numeric_limits<std::size_t>::max();

/// Where the items of a model are to lie.
struct WeightPlacement {
    std::size_t max_item_bytes = kUncutItems;  // as cut_weight_items takes it; shared items are cut already
    std::vector<bool> streams{};               // of the items; empty: none does. Shared ones lie as they do
    PinnedArena* arena = nullptr;              // of those that stream; outlives the model
};

class ItemMemory {
public:
    /// Memory for `items`, but for those whose `own` is false (empty: all are own): they lie where `base`, which
    /// outlives this, has the item of the same number. Throws OutOfBudget.
    ItemMemory(Device& device, std::span<const WeightItem> items, const WeightPlacement& placement, MemoryTag tag,
               const ItemMemory* base = nullptr, const std::vector<bool>& own = {});

    [[nodiscard]] bool is_own(std::int32_t item) const { return own_[item]; }
    [[nodiscard]] bool streams(std::int32_t item) const { return streams_[item]; }
    [[nodiscard]] std::byte* data(std::int32_t item) const { return data_[item]; }
    /// Bytes of items that stream, shared ones too.
    [[nodiscard]] std::size_t streamed_bytes() const { return streamed_bytes_; }

private:
    std::vector<bool> own_;               // [items]
    std::vector<bool> streams_;           // [items]
    std::vector<std::byte*> data_;        // [items]
    std::vector<Buffer> resident_;        // one a run of own resident items of a layer
    std::vector<PinnedBuffer> streamed_;  // one an own item
    std::size_t streamed_bytes_ = 0;
};

}  // namespace slipstream
