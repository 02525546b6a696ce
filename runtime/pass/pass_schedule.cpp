#include "runtime/pass/pass_schedule.h"

#include "kernels/base/check.h"
#include "kernels/base/checked_math.h"

namespace slipstream {

namespace {

void add_kv(const PassReads& reads, std::int64_t layer, ChunkRange range, std::size_t ring_bytes,
            std::vector<ScheduleItem>& items, std::vector<TransferItem>& copies) {
    PassKv& kv = *reads.kv;
    HostKv& host = *kv.host();
    const std::size_t chunk_bytes = kv.layout(layer).chunk_bytes();
    const std::int64_t per_copy = chunks_per_copy(*reads.model, ring_bytes, chunk_bytes);
    while (range.first < range.end) {
        const std::int64_t end =
            std::min({range.end, range.first + per_copy, host.extents().end_of_extent(layer, range.first)});
        const std::size_t bytes = (end - range.first) * chunk_bytes;
        items.push_back({.layer = layer, .chunks = {range.first, end}, .bytes = bytes});
        copies.push_back({.source = host.chunk(layer, range.first),
                          .bytes = bytes,
                          .after = &host.flushed(),
                          .after_use = host.flush_use(end - 1)});
        range.first = end;
    }
}

// Returns the number of copies for a layer with `n_chunks` KV chunks on the host: no copy crosses the end of an extent.
std::int64_t copies_of(std::int64_t n_chunks, std::int64_t per_copy) {
    return n_chunks / kChunksPerExtent * ceil_div(kChunksPerExtent, per_copy) +
           ceil_div(n_chunks % kChunksPerExtent, per_copy);
}

// Returns the most KV chunks of a layer that can be on the host; not more than 0 if all are resident.
std::int64_t n_host_chunks(const PassReads& reads, std::int64_t layer) {
    return ceil_div(reads.kv->nodes().context_tokens(), kChunkTokens) - reads.kv->resident_chunks(layer);
}

}  // namespace

std::int64_t chunks_per_copy(const Model& model, std::size_t ring_bytes, std::size_t chunk_bytes) {
    CHECK(chunk_bytes > 0, "copies of KV chunks without bytes");
    const std::size_t most = model.experts_stream() ? std::min(ring_bytes / 4, kMostBytesBesideDemand) : ring_bytes / 4;
    return std::clamp<std::int64_t>(static_cast<std::int64_t>(most / chunk_bytes), 1, kChunksPerExtent);
}

RingSlots ring_slots(const PassReads& reads, ExpertMisses misses) {
    RingSlots slots;
    for (std::int32_t i = 0; i < std::ssize(reads.model->items()); ++i) {
        if (!reads.model->streams(i) || (misses == ExpertMisses::Cpu && reads.model->is_on_demand(i))) continue;
        std::size_t& slot = reads.model->is_on_demand(i) ? slots.on_demand : slots.scheduled;
        slot = std::max(slot, TransferRing::slot_bytes(reads.model->items()[i].bytes));
    }
    if (reads.kv->host() == nullptr) return slots;
    for (std::int64_t layer = 0; layer < reads.model->config().n_layers(); ++layer)
        if (n_host_chunks(reads, layer) > 0)
            slots.scheduled =
                std::max(slots.scheduled, TransferRing::slot_bytes(reads.kv->layout(layer).chunk_bytes()));
    return slots;
}

std::int64_t most_scheduled_items(const PassReads& reads, std::size_t ring_bytes) {
    std::int64_t n = 0;
    for (std::int32_t i = 0; i < std::ssize(reads.model->items()); ++i)
        if (reads.model->streams(i) && !reads.model->is_on_demand(i)) ++n;
    if (reads.kv->host() == nullptr) return n;
    for (std::int64_t layer = 0; layer < reads.model->config().n_layers(); ++layer) {
        const std::int64_t n_host = n_host_chunks(reads, layer);
        if (n_host <= 0) continue;
        n += copies_of(n_host, chunks_per_copy(*reads.model, ring_bytes, reads.kv->layout(layer).chunk_bytes()));
        if (reads.model->config().window(layer) > 0) ++n;  // no copy goes on from a ring's end to its begin
    }
    return n;
}

void make_schedule(const PassReads& reads, std::int64_t host_chunks, std::size_t ring_bytes,
                   std::vector<ScheduleItem>& items, std::vector<TransferItem>& copies) {
    const Model& model = *reads.model;
    PassKv& kv = *reads.kv;
    const ModelConfig& config = model.config();
    items.clear();
    copies.clear();
    const auto add_weights = [&](std::size_t index) {
        const auto i = static_cast<std::int32_t>(index);
        if (!model.streams(i) || model.is_on_demand(i)) return;
        items.push_back({.weight_item = i, .bytes = model.items()[index].bytes});
        copies.push_back({.source = model.item_data(i), .bytes = model.items()[index].bytes});
    };
    for_each_read(model.items(), config.n_layers(), add_weights, [&](std::int64_t layer) {
        if (kv.host() == nullptr || !config.layers[layer].has_attention()) return;
        const std::int64_t seen = first_chunk_in_window(config.window(layer), kv.nodes().n_committed());
        add_kv(reads, layer, {std::max(kv.resident_chunks(layer), seen), host_chunks}, ring_bytes, items, copies);
    });
}

}  // namespace slipstream
