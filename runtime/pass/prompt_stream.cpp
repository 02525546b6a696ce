#include "runtime/pass/prompt_stream.h"

#include <algorithm>

#include "kernels/base/checked_math.h"
#include "runtime/pass/error_context.h"
#include "runtime/pass/prompt_kv_areas.h"
#include "runtime/pass/prompt_kv_by_chunk.h"

namespace slipstream {

namespace {

constexpr std::size_t kAlign = 64;

// Whether a prompt copies the item unless a slot holds it.
bool is_copied(const PassStream& pass, const Model& model, std::int32_t item) {
    return model.streams(item) && (pass.copies_on_demand() || !model.is_on_demand(item));
}

// Returns the bytes of the ring that weights need at once: the copied items of a layer, with room to wrap around, or
// the largest item of the LM head, whose items are used one at a time. The maximum over all layers.
std::size_t weights_bytes_at_once(const PassStream& pass, const Model& model) {
    std::size_t most = 0;
    std::size_t sum = 0;
    std::size_t largest = 0;  // of layers
    std::size_t largest_of_head = 0;
    std::int64_t layer = -1;
    for (std::size_t i = 0; i < model.items().size(); ++i) {
        if (!is_copied(pass, model, static_cast<std::int32_t>(i))) continue;
        const std::size_t slot = TransferRing::slot_bytes(model.items()[i].bytes);
        if (model.items()[i].layer == model.config().n_layers()) {
            largest_of_head = std::max(largest_of_head, slot);
            continue;
        }
        if (model.items()[i].layer != layer) sum = 0;
        layer = model.items()[i].layer;
        sum += slot;
        most = std::max(most, sum);
        largest = std::max(largest, slot);
    }
    return std::max(TransferRing::region_bytes_for_run(most, largest), largest_of_head);
}

}  // namespace

bool PromptStream::fits(const PassStream& pass, const Model& model, KvCache& cache, std::int64_t end,
                        std::int64_t chunk_tokens) {
    std::size_t kv = 0;
    if (cache.streams()) {
        kv = PromptKvAreas::area_bytes(cache, end / kChunkTokens);
        if (chunk_tokens % kChunkTokens == 0)
            kv = std::min(kv, PromptKvByChunk::least_bytes(cache.store().largest_streamed_chunk(), chunk_tokens));
    }
    return round_up(weights_bytes_at_once(pass, model), kAlign) + kv <= pass.ring_bytes();
}

PromptStream::PromptStream(PassStream& pass, const Model& model, KvCache& cache, ExecRef exec, const PromptRange& range)
    : pass_(&pass),
      model_(&model),
      cache_(&cache),
      exec_(exec),
      first_layer_(range.first_layer),
      is_last_use_(range.first_layer == model.config().n_layers()) {
    CHECK(range.end % kChunkTokens == 0 && range.begin < range.end, "a prompt from {} to {}", range.begin, range.end);
    std::span<std::byte> ring = pass.lend_ring(exec.stream);
    const std::size_t weights = weights_bytes_at_once(pass, model);
    if (cache.streams()) {
        const std::size_t area = PromptKvAreas::area_bytes(cache, range.end_chunk());
        const bool fit = weights + area <= ring.size();
        // With two areas, a layer begins while the previous one is flushed. All other memory of the ring is for
        // weights.
        const std::size_t areas = weights + 2 * area <= ring.size() ? 2 * area : area;
        const std::size_t at = fit ? (ring.size() - areas) / kAlign * kAlign : round_up(weights, kAlign);
        if (fit) {
            kv_ = std::make_unique<PromptKvAreas>(pass, cache, exec, ring.subspan(at, areas), range);
        } else {
            kv_ = std::make_unique<PromptKvByChunk>(pass, PassReads{&model, &cache}, cache.store(), exec,
                                                    ring.subspan(at), range);
        }
        ring = ring.first(at);
    }
    if (!model.streams_weights()) return;
    std::int64_t n_items = 0;
    for (std::size_t i = 0; i < model.items().size(); ++i) index_.push_back(reads(i) ? n_items++ : -1);
    if (n_items == 0) return;
    ring_ = std::make_unique<TransferRing>(exec.device, ring, pass.copy_in(), n_items);
    if (pass.is_traced()) ring_->time_copies();
    prefetcher_ = std::make_unique<PassPrefetcher>(*ring_, *this, n_items);
    prefetcher_->begin_pass(exec.stream);
}

PromptStream::~PromptStream() {
    if (complete_) return;
    const std::uint64_t last_flush = kv_ ? kv_->last_flush() : 0;
    try {
        // Enqueued work may still write into the ring, and the next user of the ring does not wait for it.
        exec_.stream.synchronize();
    } catch (...) {
    }
    try {
        if (prefetcher_) prefetcher_->rewind(exec_.stream);
        if (kv_) kv_->drop();
        if (last_flush > 0) exec_.stream.wait(cache_->host()->flushed(), last_flush);
    } catch (...) {
        // A copy of weights or KV to the device, or a flush of KV to the host, failed. If a pass waited for it, that
        // pass has thrown the error; otherwise nothing of the abandoned prompt needs the copy.
    }
}

void PromptStream::next_schedule(std::vector<TransferItem>& schedule) {
    schedule.clear();
    if (schedule_made_) return;  // a prompt has one schedule, and none follows it
    schedule_made_ = true;
    for (std::size_t i = 0; i < model_->items().size(); ++i)
        if (reads(i))
            schedule.push_back(
                {.source = model_->item_data(static_cast<std::int32_t>(i)), .bytes = model_->items()[i].bytes});
}

// Returns whether the item is copied, and is of a layer that is computed, or of the LM head.
bool PromptStream::reads(std::size_t item) const {
    return is_copied(*pass_, *model_, static_cast<std::int32_t>(item)) && model_->items()[item].layer >= first_layer_ &&
           !holds_item(static_cast<std::int32_t>(item));
}

const std::byte* PromptStream::acquire_item(std::int32_t item, Stream& compute) {
    if (index_[item] < 0) return pass_->held_item(item, compute);
    return with_context("weights", [&] { return prefetcher_->acquire(index_[item], compute); });
}

void PromptStream::release_item(std::int32_t item, Stream& compute) {
    if (is_last_use_) release_until(static_cast<std::size_t>(item) + 1, compute);
}

// Releases all items before item `end`. Experts that the last tokens did not choose are waited for, so that no failed
// copy is overlooked.
void PromptStream::release_until(std::size_t end, Stream& compute) {
    for (; n_released_ < end; ++n_released_) {
        const std::int64_t index = index_[n_released_];
        if (index < 0) continue;
        const auto item = static_cast<std::int32_t>(n_released_);
        static_cast<void>(acquire_item(item, compute));
        pass_->count_weights(*model_, item, pass_->is_traced() ? prefetcher_->copy_times(index) : CopyTimes{});
        prefetcher_->release(index, compute);
    }
}

void PromptStream::begin_layer(std::int64_t layer, std::int64_t from) {
    layer_ = layer;
    if (kv_) with_context("KV", [&] { kv_->begin_layer(layer, from); });
}

void PromptStream::begin_prefill_chunk(std::int64_t first, std::int64_t end) {
    is_last_use_ = first == end;
    if (kv_) with_context("KV", [&] { kv_->begin_prefill_chunk(first, end); });
}

void PromptStream::end_prefill_chunk() {
    if (kv_) with_context("KV", [&] { kv_->end_prefill_chunk(); });
}

void PromptStream::end_layer() {
    std::size_t end = n_released_;
    while (end < index_.size() && model_->items()[end].layer <= layer_) ++end;
    release_until(end, exec_.stream);
    if (kv_) with_context("KV", [&] { kv_->end_layer(); });
}

// Makes the compute stream wait for the last flush, which reads the ring: so later users of the ring may begin at once.
void PromptStream::end() {
    if (prefetcher_) prefetcher_->end_pass();
    const std::uint64_t last_flush = kv_ ? kv_->last_flush() : 0;
    if (last_flush > 0) with_context("KV", [&] { exec_.stream.wait(cache_->host()->flushed(), last_flush); });
}

void PromptStream::complete() {
    cache_->publish(kv_ ? kv_->last_flush() : 0);
    complete_ = true;
}

}  // namespace slipstream
