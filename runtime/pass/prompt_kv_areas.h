// KV of a prompt that passes through the model layer by layer, if the transfer ring has room for all KV that a layer
// keeps. While a layer is computed, its KV is in an area of the ring. The KV that the host already has is copied to the
// device once; the chunks that the prompt fills are flushed after the layer, as many as the layer keeps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "runtime/cache/kv_cache.h"
#include "runtime/pass/pass_stream.h"
#include "runtime/pass/prompt_kv.h"

namespace slipstream {

class PromptKvAreas final : public PromptKv {
public:
    /// Returns the bytes of device memory of one area: enough for the KV chunks below `end_chunk` that stream and that
    /// the layer keeps, in any layer.
    [[nodiscard]] static std::size_t area_bytes(const KvCache& cache, std::int64_t end_chunk);

    /// `areas` is device memory for one area or two, 64-byte aligned. With two, a layer begins while the previous one
    /// is flushed. Copies to the device use pass.copy_in() and are counted in the figures of `pass`. `pass`, `cache`
    /// and the memory must outlive this object.
    PromptKvAreas(PassStream& pass, KvCache& cache, ExecRef exec, std::span<std::byte> areas, const PromptRange& range);

    void begin_layer(std::int64_t layer, std::int64_t from) override;
    void begin_prefill_chunk(std::int64_t /*first*/, std::int64_t /*end*/) override {}
    void end_prefill_chunk() override {}
    void end_layer() override;
    [[nodiscard]] const std::byte* filled_chunk(std::int64_t layer, std::int64_t chunk) const override {
        return in_layer_ && layer == layer_ && chunk >= n_host_ ? table_[chunk] : nullptr;
    }
    [[nodiscard]] std::uint64_t last_flush() const override { return last_flush_; }
    void drop() override {}

    [[nodiscard]] ChunkRange streamed(std::int64_t /*layer*/) const override { return {}; }
    [[nodiscard]] std::byte* const* chunks(std::int64_t layer) const override;
    [[nodiscard]] std::optional<KvSegment> acquire_kv(std::int64_t /*layer*/, Stream& /*compute*/) override {
        return std::nullopt;
    }
    void release_kv(Stream& /*compute*/) override {}

private:
    [[nodiscard]] bool streams(std::int64_t layer) const { return cache_->resident_chunks(layer) < range_.end_chunk(); }
    void load(std::int64_t from);

    PassStream* pass_;
    KvCache* cache_;
    ExecRef exec_;
    PromptRange range_;
    std::span<std::byte> areas_;
    std::size_t area_bytes_;
    std::vector<std::uint64_t> area_use_;  // [areas]: use of flushed() after which the area's contents are on the host
    std::vector<std::byte*> table_;        // [end_chunk]: addresses of the KV chunks of layer_
    std::int64_t layer_ = 0;
    std::int64_t n_host_ = 0;  // KV chunks below it that stream are on the host when the layer begins
    bool in_layer_ = false;    // between begin_layer() and end_layer()
    std::unique_ptr<Event> computed_, loaded_;
    std::uint64_t last_flush_ = 0;
};

}  // namespace slipstream
