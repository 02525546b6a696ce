// KV of a prompt that passes through the model layer by layer, if the ring has no room for all KV of a layer. Each
// prefill chunk reads the earlier chunks of the layer from the host again, through a small ring of their own. The
// chunks that it fills are in slots, which are flushed after it. So weights still cross the link once per prompt, but a
// KV chunk crosses it once for each later prefill chunk.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "offload/transfer_ring.h"
#include "runtime/cache/kv_cache.h"
#include "runtime/pass/pass_stream.h"
#include "runtime/pass/prompt_kv.h"

namespace slipstream {

class PromptKvByChunk final : public PromptKv {
public:
    /// Returns the least device memory, in bytes, for prefill chunks of `chunk_tokens` (a multiple of 256).
    /// `chunk_bytes` is the size of the largest KV chunk of a layer that streams.
    [[nodiscard]] static std::size_t least_bytes(std::size_t chunk_bytes, std::int64_t chunk_tokens);

    /// `area` is device memory of at least least_bytes() (CHECKed), 64-byte aligned. Copies to the device use
    /// pass.copy_in() and are counted in the figures of `pass`. `pass`, `store`, the memory, and the model and KV of
    /// `reads` must outlive this object.
    PromptKvByChunk(PassStream& pass, const PassReads& reads, const DeviceKv& store, ExecRef exec,
                    std::span<std::byte> area, const PromptRange& range);

    void begin_layer(std::int64_t layer, std::int64_t from) override;
    void begin_prefill_chunk(std::int64_t first, std::int64_t end) override;
    void end_prefill_chunk() override;
    void end_layer() override {}
    [[nodiscard]] const std::byte* filled_chunk(std::int64_t /*layer*/, std::int64_t /*chunk*/) const override {
        return nullptr;
    }
    [[nodiscard]] std::uint64_t last_flush() const override { return last_flush_; }
    void drop() override;

    [[nodiscard]] ChunkRange streamed(std::int64_t layer) const override;
    [[nodiscard]] std::byte* const* chunks(std::int64_t /*layer*/) const override { return table_.data(); }
    [[nodiscard]] std::optional<KvSegment> acquire_kv(std::int64_t layer, Stream& compute) override;
    void release_kv(Stream& compute) override;

private:
    [[nodiscard]] std::byte* slot(std::int64_t chunk) const;
    [[nodiscard]] std::size_t chunk_bytes() const { return store_->layout(layer_).chunk_bytes(); }  // of layer_
    void copy_ahead();

    PassStream* pass_;
    PassReads reads_;
    const DeviceKv* store_;
    ExecRef exec_;
    std::int64_t kv_chunks_per_prefill_chunk_;
    std::int64_t first_new_chunk_;
    std::int64_t last_layer_;  // see PromptRange
    std::size_t slot_bytes_;   // bytes of the largest KV chunk of a layer that streams
    std::byte* slots_;         // [2][kv_chunks_per_prefill_chunk]: one half fills while the other one is flushed
    std::unique_ptr<TransferRing> ring_;
    std::array<std::uint64_t, 2> slots_use_{};  // use of flushed() after which each half of slots_ is on the host
    // [KV chunks from first_new_chunk_ on]: use of flushed() after which each is on the host, in layer_.
    std::vector<std::uint64_t> new_use_;
    // [end_chunk]: addresses of layer_'s resident KV chunks, and of those being filled.
    std::vector<std::byte*> table_;
    std::vector<const std::byte*> segment_;  // [end_chunk]: addresses of the KV chunks of the acquired segment
    std::uint64_t last_flush_ = 0;

    // State of the running prefill chunk; layer_ is the layer through which it goes.
    std::int64_t layer_ = 0;
    std::size_t parity_ = 0;
    ChunkRange own_{};         // KV chunks that stream and that the prefill chunk fills
    std::int64_t n_host_ = 0;  // KV chunks below it are read from the host, unless they are resident
    std::int64_t next_ = 0;    // next KV chunk to copy to the device
    // Segments whose copies are enqueued, in order.
    std::vector<ChunkRange> copied_;
    std::size_t at_ = 0;             // index in copied_ of the segment that is acquired next, or is in use
    std::int64_t first_number_ = 0;  // number of copied_[0] in ring_
};

}  // namespace slipstream
