// KV of a prompt that goes layer by layer where the ring holds the whole KV of a layer: it lies in an area of the ring
// while the layer is computed. What the host held before comes over once, what the prompt fills is flushed behind it.
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
    /// Device memory of one area: for the layer with most bytes of chunks that stream below `end_chunk`.
    [[nodiscard]] static std::size_t area_bytes(const KvCache& cache, std::int64_t end_chunk);

    /// Works in `areas`, memory of the device, 64-byte aligned, of one area or two: with two a layer begins while the
    /// last one is flushed. Copies go over pass.copy_in(), and are counted in its figures.
    PromptKvAreas(PassStream& pass, KvCache& cache, ExecRef exec, std::span<std::byte> areas, const PromptRange& range);

    void begin_layer(std::int64_t layer) override;
    void begin_prefill_chunk(std::int64_t /*first*/, std::int64_t /*end*/) override {}
    void end_prefill_chunk() override {}
    void end_layer() override;
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
    void load();

    PassStream* pass_;
    KvCache* cache_;
    ExecRef exec_;
    PromptRange range_;
    std::span<std::byte> areas_;
    std::size_t area_bytes_;
    std::vector<std::uint64_t> area_use_;  // [areas]: of flushed(), when the area's contents are on the host
    std::vector<std::byte*> table_;        // [end_chunk], of the layer
    std::int64_t layer_ = 0;
    std::unique_ptr<Event> computed_, loaded_;
    std::uint64_t last_flush_ = 0;
};

}  // namespace slipstream
