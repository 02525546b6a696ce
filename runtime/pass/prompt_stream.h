// PromptStream: copies what a prompt reads that goes through the model layer by layer. All its prefill chunks go
// through a layer while that layer's streamed weights are in the ring, so each weight is copied once per prompt. If KV
// streams, the rest of the ring holds the KV of a layer (prompt_kv.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "offload/pass_prefetcher.h"
#include "runtime/cache/kv_cache.h"
#include "runtime/pass/pass_stream.h"
#include "runtime/pass/prompt_kv.h"

namespace slipstream {

class PromptStream final : public WeightStream, public ScheduleSource {
public:
    /// Returns whether the ring of `pass` can hold all that one layer of a prompt needs at once. `end` is the position
    /// after the prompt's last prefill chunk, a multiple of 512.
    [[nodiscard]] static bool fits(const PassStream& pass, const Model& model, KvCache& cache, std::int64_t end,
                                   std::int64_t chunk_tokens);

    /// Uses the ring of `pass` until it is destroyed. The cache must have range.begin positions committed and memory
    /// reserved for range.end. All arguments must outlive this object.
    PromptStream(PassStream& pass, const Model& model, KvCache& cache, ExecRef exec, const PromptRange& range);
    /// Unless complete() was called, waits for the work in progress, so that no copy writes into the ring later.
    ~PromptStream() override;
    PromptStream(const PromptStream&) = delete;
    PromptStream& operator=(const PromptStream&) = delete;

    /// Call for each layer in order, from range.first_layer on. The cache must hold the layer's rows at positions
    /// before `from` (PromptKv::begin_layer()).
    void begin_layer(std::int64_t layer, std::int64_t from);
    /// Call before the positions [first, end) go through the layer; with first == end before the tokens after the last
    /// prefill chunk. These are the last that use the layer's weights: release_item() frees them only then.
    void begin_prefill_chunk(std::int64_t first, std::int64_t end);
    /// Call when the work is enqueued that writes the prefill chunk's rows into their KV chunks.
    void end_prefill_chunk();
    /// Returns where attention finds the layer's KV; null if all KV is resident.
    [[nodiscard]] KvStream* kv() { return kv_.get(); }
    /// Returns where in device memory a streamed KV chunk is that the layer has filled (PromptKv::filled_chunk()); null
    /// if it is being copied to the host, or no KV streams.
    [[nodiscard]] const std::byte* filled_chunk(std::int64_t layer, std::int64_t chunk) const {
        return kv_ ? kv_->filled_chunk(layer, chunk) : nullptr;
    }
    /// Experts in slots are read there; none gets a slot or loses it during a prompt.
    [[nodiscard]] bool holds_item(std::int32_t item) const override { return pass_->holds_item(item); }
    /// All are copied, or none (PassStream::copies_on_demand()): the schedule has all other experts that stream, since
    /// the prefill chunks of a prompt choose nearly all.
    std::int64_t need_items(std::span<ItemNeed> items, const PassChoices& /*choices*/, Stream& /*compute*/) override {
        for (ItemNeed& need : items) need.is_copied = pass_->copies_on_demand();
        return 0;
    }
    [[nodiscard]] const std::byte* acquire_item(std::int32_t item, Stream& compute) override;
    void release_item(std::int32_t item, Stream& compute) override;
    void end_layer();
    /// Call after the last layer and the LM head. Makes the compute stream wait for the last flush of KV. Throws if a
    /// copy has failed.
    void end();
    /// Makes the positions up to range.end committed positions of the cache.
    void complete();

    void next_schedule(std::vector<TransferItem>& schedule) override;

private:
    [[nodiscard]] bool reads(std::size_t item) const;
    void release_until(std::size_t end, Stream& compute);

    PassStream* pass_;
    const Model* model_;
    KvCache* cache_;
    ExecRef exec_;
    std::int64_t first_layer_;
    std::unique_ptr<TransferRing> ring_;
    std::unique_ptr<PassPrefetcher> prefetcher_;  // null if no weights stream
    std::vector<std::int64_t> index_;             // [items]: index of each item in the schedule; -1: not in it
    std::size_t n_released_ = 0;                  // items before it are released, or not in the schedule
    std::int64_t layer_ = 0;
    bool schedule_made_ = false;
    std::unique_ptr<PromptKv> kv_;  // null if no KV streams
    // Whether what is computed uses the layer's weights for the last time: the last prefill chunk, or the LM head of a
    // device that has no layer left to compute.
    bool is_last_use_;
    bool complete_ = false;
};

}  // namespace slipstream
