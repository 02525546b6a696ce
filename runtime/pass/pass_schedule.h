// The schedule of a pass: the items that it reads from the host, in order. Items of weights that are not resident, and
// before the second half of each layer the chunks of its KV that are not. Experts are not in it, since a schedule is
// made before the tokens of its pass are known: their items are copied on demand (WeightStream::need_items()).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "offload/ring_parts.h"
#include "offload/transfer_ring.h"
#include "runtime/cache/kv_ring.h"
#include "runtime/experts/miss_rules.h"
#include "runtime/pass/pass_reads.h"

namespace slipstream {

/// An item of a schedule: an item of weights, or KV chunks of a layer.
struct ScheduleItem {
    std::int32_t weight_item = -1;  // index of an item of weights; -1: KV chunks of a layer
    std::int64_t layer = 0;
    ChunkRange chunks{};
    std::size_t bytes = 0;
};

/// Returns how many KV chunks of a layer one copy carries at most, with a ring of `ring_bytes`: at least four copies
/// fit into the ring, so that the link stays busy while one is read, and beside experts on demand a copy has at most
/// kMostBytesBesideDemand; but at least one chunk, and never more than an extent.
[[nodiscard]] std::int64_t chunks_per_copy(const Model& model, std::size_t ring_bytes, std::size_t chunk_bytes);

/// Returns the slots of the largest items that passes over `reads` copy; of KV, that of a chunk. `misses`: Cpu copies
/// no items on demand.
[[nodiscard]] RingSlots ring_slots(const PassReads& reads, ExpertMisses misses = ExpertMisses::Copy);
/// Returns the items of the longest schedule over `reads`: with every KV chunk on the host that can be there.
[[nodiscard]] std::int64_t most_scheduled_items(const PassReads& reads, std::size_t ring_bytes);

/// Makes the schedule of a pass over `reads` that begins after the positions committed now; KV chunks below
/// `host_chunks` are read from the host. Sets `items` to its items, and `copies` to one copy for each of them.
void make_schedule(const PassReads& reads, std::int64_t host_chunks, std::size_t ring_bytes,
                   std::vector<ScheduleItem>& items, std::vector<TransferItem>& copies);

}  // namespace slipstream
