// Where the items of a model are: in device memory, in a pinned arena of the host from where they stream, or in the
// memory of another model, which shares them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/device.h"
#include "offload/pinned_arena.h"
#include "runtime/model/weight_items.h"

namespace slipstream {

/// Where the items of a model must be placed.
struct WeightPlacement {
    /// Most bytes of an item, see cut_weight_items(); shared items are cut already.
    std::size_t max_item_bytes = kUncutItems;
    /// [items]: whether the item streams; empty: none does. Shared items stay where they are.
    std::vector<bool> streams{};
    PinnedArena* arena = nullptr;  // memory of the items that stream; must outlive the model
};

class ItemMemory {
public:
    /// Allocates memory for `items`, except those whose `own` is false (empty: all are own): these are where `base`,
    /// which must outlive this object, has the item of the same number. Throws OutOfBudget.
    ItemMemory(Device& device, std::span<const WeightItem> items, const WeightPlacement& placement, MemoryTag tag,
               const ItemMemory* base = nullptr, const std::vector<bool>& own = {});

    [[nodiscard]] bool is_own(std::int32_t item) const { return own_[item]; }
    [[nodiscard]] bool streams(std::int32_t item) const { return streams_[item]; }
    [[nodiscard]] std::byte* data(std::int32_t item) const { return data_[item]; }
    /// Returns the bytes of all items that stream, shared ones included.
    [[nodiscard]] std::size_t streamed_bytes() const { return streamed_bytes_; }

private:
    std::vector<bool> own_;               // [items]
    std::vector<bool> streams_;           // [items]
    std::vector<std::byte*> data_;        // [items]
    std::vector<Buffer> resident_;        // one for each run of own resident items of a layer
    std::vector<PinnedBuffer> streamed_;  // one for each own item that streams; of experts one for a layer
    std::size_t streamed_bytes_ = 0;
};

}  // namespace slipstream
