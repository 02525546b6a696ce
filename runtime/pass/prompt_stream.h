// A prompt through a streamed model layer by layer: all its prefill chunks go through a layer while that layer's
// weights lie in the ring, so each weight crosses the link once a prompt. Where KV streams, the rest of the ring takes
// it layer by layer (prompt_kv.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "offload/pass_prefetcher.h"
#include "runtime/cache/kv_cache.h"
#include "runtime/pass/pass_stream.h"
#include "runtime/pass/prompt_kv.h"

namespace slipstream {

class PromptStream final : public WeightStream, public ScheduleSource {
public:
    /// Whether the ring of `pass` holds what a prompt up to position `end` (a multiple of 512) needs at once.
    [[nodiscard]] static bool fits(const PassStream& pass, const Model& model, KvCache& cache, std::int64_t end,
                                   std::int64_t chunk_tokens);

    /// Borrows the ring of `pass`. The cache has range.begin positions committed and reserved range.end.
    PromptStream(PassStream& pass, const Model& model, KvCache& cache, ExecRef exec, const PromptRange& range);
    /// Gives the ring back.
    ~PromptStream() override;
    PromptStream(const PromptStream&) = delete;
    PromptStream& operator=(const PromptStream&) = delete;

    /// Layers in order, from range.first_layer on. `from`: see PromptKv::begin_layer().
    void begin_layer(std::int64_t layer, std::int64_t from);
    /// Positions [first, end) of this layer come next; first == end for the pass behind the prompt: then releases are
    /// the last ones of the layer.
    void begin_prefill_chunk(std::int64_t first, std::int64_t end);
    /// Their rows are in their chunks.
    void end_prefill_chunk();
    /// Where the layer's KV is; null where all of it rests on the device.
    [[nodiscard]] KvStream* kv() { return kv_.get(); }
    /// See PromptKv::filled_chunk(); null where no KV streams.
    [[nodiscard]] const std::byte* filled_chunk(std::int64_t layer, std::int64_t chunk) const {
        return kv_ ? kv_->filled_chunk(layer, chunk) : nullptr;
    }
    [[nodiscard]] const std::byte* acquire_item(std::int32_t item, Stream& compute) override;
    void release_item(std::int32_t item, Stream& compute) override;
    void end_layer();
    /// All layers are through, and the LM head: waits for what may still fail.
    void end();
    /// The cache publishes what was reserved.
    void complete();

    void next_schedule(std::vector<TransferItem>& schedule) override;

private:
    [[nodiscard]] bool reads(std::size_t item) const;

    PassStream* pass_;
    const Model* model_;
    KvCache* cache_;
    ExecRef exec_;
    std::int64_t first_layer_;
    std::unique_ptr<TransferRing> ring_;
    std::unique_ptr<PassPrefetcher> prefetcher_;  // null where no weights stream
    std::vector<std::int64_t> index_;             // [items]: in the schedule; -1: not in it
    bool schedule_made_ = false;
    std::unique_ptr<PromptKv> kv_;  // null where none streams
    bool last_prefill_chunk_ = false;
    bool complete_ = false;
};

}  // namespace slipstream
