// KV of a prompt that goes layer by layer where the ring does not hold the whole KV of a layer: each prefill chunk of
// the prompt reads the layer's earlier chunks again, from the host, through a small ring of their own, and leaves the
// chunks that it fills in slots that are flushed behind it. So weights still cross the link once a
// prompt, and KV as often as prefill chunks follow it.
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
    /// Device memory that prefill chunks of `chunk_tokens` (a multiple of 256) need at least. `chunk_bytes`: of the
    /// largest KV chunk of a layer that streams.
    [[nodiscard]] static std::size_t least_bytes(std::size_t chunk_bytes, std::int64_t chunk_tokens);

    /// Works in `area`, memory of the device, 64-byte aligned. Copies go over pass.copy_in(), and are counted in its
    /// figures.
    PromptKvByChunk(PassStream& pass, const PassReads& reads, const DeviceKv& store, ExecRef exec,
                    std::span<std::byte> area, const PromptRange& range);

    void begin_layer(std::int64_t layer) override;
    void begin_prefill_chunk(std::int64_t first, std::int64_t end) override;
    void end_prefill_chunk() override;
    void end_layer() override {}
    [[nodiscard]] std::uint64_t last_flush() const override { return last_flush_; }
    void drop() override;

    [[nodiscard]] ChunkRange streamed(std::int64_t layer) const override;
    [[nodiscard]] std::byte* const* chunks(std::int64_t /*layer*/) const override { return table_.data(); }
    [[nodiscard]] std::optional<KvSegment> acquire_kv(std::int64_t layer, Stream& compute) override;
    void release_kv(Stream& compute) override;

private:
    [[nodiscard]] std::byte* slot(std::int64_t chunk) const;
    [[nodiscard]] std::size_t chunk_bytes() const { return store_->layout(layer_).chunk_bytes(); }  // of the layer
    void copy_ahead();

    PassStream* pass_;
    PassReads reads_;
    const DeviceKv* store_;
    ExecRef exec_;
    std::int64_t kv_chunks_per_prefill_chunk_;
    std::int64_t first_new_chunk_;
    std::int64_t last_layer_;  // as PromptRange
    std::size_t slot_bytes_;   // largest KV chunk of a layer that streams
    std::byte*
        slots_;  // [2][kv_chunks_per_prefill_chunk]: of the running prefill chunk, of the one before, which is flushed
    std::unique_ptr<TransferRing> ring_;
    std::array<std::uint64_t, 2> slots_use_{};  // of flushed(), when the slots are on the host
    std::vector<std::uint64_t> new_use_;        // the same of each chunk of this layer from first_new_chunk_ on
    std::vector<std::byte*> table_;             // [end_chunk]: resident ones of the layer, and those that are filled
    std::vector<const std::byte*> segment_;     // [end_chunk]: where those of the copy at hand lie
    std::uint64_t last_flush_ = 0;

    // The running prefill chunk.
    std::int64_t layer_ = 0;
    std::size_t parity_ = 0;
    ChunkRange own_{};         // chunks that it fills
    std::int64_t n_host_ = 0;  // chunks below come from the host, where they stream
    std::int64_t next_ = 0;    // chunk to copy next
    std::vector<ChunkRange> copied_;
    std::size_t at_ = 0;             // of copied_
    std::int64_t first_number_ = 0;  // in the ring, of copied_[0]
};

}  // namespace slipstream
