// The schedule of a pass: the items that it reads from the host, in order. Items of weights that are not resident, and
// before the second half of each layer the chunks of its KV that are not.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "offload/transfer_ring.h"
#include "runtime/cache/kv_ring.h"
#include "runtime/pass/pass_reads.h"

namespace slipstream {

/// An item of a schedule: an item of weights, or chunks of a layer.
struct ScheduleItem {
    std::int32_t weight_item = -1;  // of weights; else
    std::int64_t layer = 0;
    ChunkRange chunks{};
    std::size_t bytes = 0;
};

/// Chunks of a layer that one copy of KV carries at most with a ring of that size: four copies in the ring at least, so
/// that the link goes on while one is read; never more than an extent.
[[nodiscard]] std::int64_t chunks_per_copy(std::size_t ring_bytes, std::size_t chunk_bytes);

/// What schedules over `reads` take at most: with every chunk on the host.
struct ScheduleBounds {
    std::int64_t n_items = 0;
    std::size_t item_bytes = 0;  // of the largest
};
[[nodiscard]] ScheduleBounds schedule_bounds(const PassReads& reads, std::size_t ring_bytes);

/// The schedule of a pass over `reads` that begins behind what is committed now, chunks below `host_chunks` being read
/// from the host: its items, and one for one what is copied.
void make_schedule(const PassReads& reads, std::int64_t host_chunks, std::size_t ring_bytes,
                   std::vector<ScheduleItem>& items, std::vector<TransferItem>& copies);

}  // namespace slipstream
