#include "runtime/pass/pass_stream.h"

#include <algorithm>
#include <chrono>

#include <fmt/format.h>

#include "kernels/base/checked_math.h"
#include "kernels/base/error.h"
#include "runtime/pass/error_context.h"

namespace slipstream {

PassStream::PassStream(const std::vector<PassReads>& reads, PinnedArena& arena, std::size_t ring_bytes)
    : arena_(&arena) {
    CHECK(!reads.empty());
    ScheduleBounds most;
    std::int64_t n_chunks = 0;
    for (const PassReads& both : reads) {
        const ScheduleBounds bounds = schedule_bounds(both, ring_bytes);
        most.n_items = std::max(most.n_items, bounds.n_items);
        most.item_bytes = std::max(most.item_bytes, bounds.item_bytes);
        n_chunks = std::max(n_chunks, ceil_div(both.kv->nodes().context_tokens(), kChunkTokens));
    }
    Device& device = reads.front().model->device();
    const std::size_t item = TransferRing::slot_bytes(most.item_bytes);
    if (ring_bytes < 2 * item)
        throw OutOfBudget(
            fmt::format("{}: a ring of {} bytes does not hold two of the largest item that streams, {} bytes; raise "
                        "--ring or --device-memory",
                        device.name(), ring_bytes, item));
    region_ = device.allocate(ring_bytes, MemoryTag::Ring, "the transfer ring");
    copy_in_ = device.make_stream(StreamKind::CopyIn);
    ring_ = std::make_unique<TransferRing>(device, std::span(region_.data(), region_.size_bytes()), *copy_in_,
                                           std::clamp<std::int64_t>(2 * most.n_items, 1, 4096));
    prefetcher_ = std::make_unique<PassPrefetcher>(*ring_, *this, most.n_items);
    for (Schedule& schedule : schedules_) schedule.items.reserve(most.n_items);
    segment_.assign(n_chunks, nullptr);
}

PassStream::~PassStream() {
    if (n_made_ > n_begun_) drop_schedule();
}

void PassStream::next_schedule(std::vector<TransferItem>& copies) {
    CHECK(n_made_ <= n_begun_, "a schedule made further ahead than one pass");
    Schedule& made = schedules_[++n_made_ % 2];
    made.reads = reads_;
    HostKv* host = made.reads.kv->host();
    made.host_chunks = host != nullptr ? host->snapshot(*this) : 0;
    make_schedule(made.reads, made.host_chunks, ring_bytes(), made.items, copies);
}

// Reports to the host KV that no schedule relies on its snapshot any more: the schedule made last runs, or is dropped.
void PassStream::drop_schedule() {
    if (HostKv* host = schedules_[n_made_ % 2].reads.kv->host(); host != nullptr) host->drop_schedule(*this);
}

void PassStream::begin_pass(const PassReads& reads, Stream& compute) {
    CHECK(!in_pass_, "a pass within a pass");
    CHECK(reads.kv->nodes().context_tokens() <= std::ssize(segment_) * kChunkTokens, "a KV of {} tokens, {} chunks",
          reads.kv->nodes().context_tokens(), segment_.size());
    if (n_made_ > n_begun_ && reads_ != reads) invalidate(compute);
    reads_ = reads;
    ++n_begun_;  // before begin_pass(), in which the prefetcher may request the next schedule
    at_ = 0;
    try {
        prefetcher_->begin_pass(compute);
    } catch (...) {
        if (n_made_ >= n_begun_) drop_schedule();
        n_made_ = n_begun_;
        throw;
    }
    in_pass_ = true;
    if (n_made_ == n_begun_) drop_schedule();  // else the next schedule is made, and relies on a newer snapshot
}

const std::byte* PassStream::acquire_next(Stream& compute) {
    const auto began = std::chrono::steady_clock::now();
    const std::byte* data = with_context(running().items[at_].weight_item >= 0 ? "weights" : "KV",
                                         [&] { return prefetcher_->acquire(static_cast<std::int64_t>(at_), compute); });
    figures_.wait_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    return data;
}

void PassStream::release_next(Stream& compute) {
    const ScheduleItem& item = running().items[at_];
    const CopyTimes times = is_traced() ? prefetcher_->copy_times(static_cast<std::int64_t>(at_)) : CopyTimes{};
    if (item.weight_item >= 0) {
        count_weights(*running().reads.model, item.weight_item, times);
    } else {
        count_kv(item.layer, item.bytes, times);
    }
    prefetcher_->release(static_cast<std::int64_t>(at_), compute);
    ++at_;
}

const std::byte* PassStream::acquire_item(std::int32_t item, Stream& compute) {
    CHECK(in_pass_ && at_ < running().items.size() && running().items[at_].weight_item == item, "item {} out of order",
          item);
    return acquire_next(compute);
}

void PassStream::release_item(std::int32_t item, Stream& compute) {
    CHECK(in_pass_ && at_ < running().items.size() && running().items[at_].weight_item == item, "item {} out of order",
          item);
    release_next(compute);
}

ChunkRange PassStream::streamed(std::int64_t layer) const {
    return {running().reads.kv->resident_chunks(layer), running().host_chunks};
}

std::byte* const* PassStream::chunks(std::int64_t layer) const {
    return running().reads.kv->chunks(layer);
}

std::optional<KvSegment> PassStream::acquire_kv(std::int64_t layer, Stream& compute) {
    CHECK(in_pass_);
    const std::vector<ScheduleItem>& items = running().items;
    if (at_ == items.size() || items[at_].weight_item >= 0 || items[at_].layer != layer) return std::nullopt;
    const ChunkRange range = items[at_].chunks;
    const std::byte* data = acquire_next(compute);
    const std::size_t chunk_bytes = running().reads.kv->layout(layer).chunk_bytes();
    for (std::int64_t chunk = range.first; chunk < range.end; ++chunk, data += chunk_bytes) segment_[chunk] = data;
    return KvSegment{range, segment_.data()};
}

void PassStream::release_kv(Stream& compute) {
    release_next(compute);
}

void PassStream::end_pass(Stream& compute) {
    CHECK(in_pass_);
    while (at_ < running().items.size()) {
        static_cast<void>(acquire_next(compute));
        release_next(compute);
    }
    prefetcher_->end_pass();
    in_pass_ = false;
}

void PassStream::abandon(Stream& compute) {
    in_pass_ = false;
    invalidate(compute);
}

void PassStream::invalidate(Stream& compute) {
    CHECK(!in_pass_, "a schedule is dropped while its pass runs");
    // The prepared schedule is dropped first, since rewind() throws if one of its copies has failed.
    if (n_made_ > n_begun_) drop_schedule();
    n_made_ = n_begun_;
    prefetcher_->rewind(compute);
}

std::span<std::byte> PassStream::lend_ring(Stream& compute) {
    invalidate(compute);
    return {region_.data(), region_.size_bytes()};
}

void PassStream::profile_with(PassProfile* profile) {
    CHECK(!in_pass_ && (profile == nullptr || profile->has_trace()),
          "copies are traced by a profile with a trace, from the beginning of a pass on");
    profile_ = profile;
    if (profile != nullptr) ring_->time_copies();
}

void PassStream::count_weights(const Model& model, std::int32_t item, const CopyTimes& times) {
    const WeightItem& copied = model.items()[item];
    figures_.weights_bytes += copied.bytes;
    if (profile_ == nullptr) return;
    const bool is_head = copied.layer == model.config().n_layers();
    profile_->add_copy("weights", is_head ? -1 : copied.layer, copied.bytes, times);
}

void PassStream::count_kv(std::int64_t layer, std::size_t bytes, const CopyTimes& times) {
    figures_.kv_bytes += bytes;
    if (profile_ != nullptr) profile_->add_copy("KV", layer, bytes, times);
}

}  // namespace slipstream
