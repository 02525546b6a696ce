// What a pass reads from host memory: weights and KV that are not resident; either may be missing. Forward acquires
// them in reading order from these interfaces. PassStream implements them for a pass, PromptStream and PromptKv for a
// prompt that passes through the model layer by layer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "kernels/device.h"
#include "runtime/cache/pass_kv.h"
#include "runtime/model/model.h"
#include "runtime/pass/expert_choices.h"

namespace slipstream {

/// The model and the KV that a pass reads. Together they determine what is copied for the pass.
struct PassReads {
    const Model* model = nullptr;
    PassKv* kv = nullptr;
    /// Returns whether weights or KV chunks stream.
    [[nodiscard]] bool streams() const { return model->streams_weights() || kv->host() != nullptr; }
    friend bool operator==(const PassReads&, const PassReads&) = default;
};

/// What the tokens of a pass chose in the running layer: `choices` has noted it at `nodes`, all of the pass. Null: it
/// is not to be counted.
struct PassChoices {
    const ExpertChoices* choices = nullptr;
    std::span<const NodeId> nodes{};
};

/// An item on demand that a layer reads next.
struct ItemNeed {
    std::int32_t item = 0;
    bool is_copied = true;  // set by need_items(); false: it is computed where it is in host memory
};

/// Copies items of weights to the device.
class WeightStream {
public:
    virtual ~WeightStream() = default;
    /// Returns whether an item on demand (Model::is_on_demand()) is on the device from an earlier pass. It is acquired
    /// without need_items() then, at any time in its layer, and not released. Ask before the layer's need_items().
    [[nodiscard]] virtual bool holds_item(std::int32_t item) const = 0;
    /// Announces the items on demand that a layer reads next and that are not held: those of all experts that tokens
    /// of the pass chose, ascending. Sets which of them are copied. These must then be acquired and released, and no
    /// others. Call at most once for each layer, before the first acquire_item() of such an item, when all work of
    /// earlier passes is enqueued on `compute`. Copied items of experts that tokens choose more often may take the
    /// places of held ones of the layer that the pass does not need; returns how many have lost theirs.
    virtual std::int64_t need_items(std::span<ItemNeed> items, const PassChoices& choices, Stream& compute) = 0;
    /// Returns the device address of an item, for work enqueued on `compute` from now on; valid until release_item().
    /// Items must be acquired in reading order; an item may be acquired again until it is released. Throws IoError if
    /// its copy failed.
    [[nodiscard]] virtual const std::byte* acquire_item(std::int32_t item, Stream& compute) = 0;
    /// Call when the last use of the item is enqueued on `compute`.
    virtual void release_item(std::int32_t item, Stream& compute) = 0;
};

/// KV chunks [first, end) of a layer.
struct ChunkRange {
    std::int64_t first = 0;
    std::int64_t end = 0;
    [[nodiscard]] bool empty() const { return first >= end; }
};

/// Consecutive committed KV chunks of a layer that are on the device together.
struct KvSegment {
    ChunkRange range;
    const std::byte* const* chunks = nullptr;  // addresses by number of the KV chunk; only those of `range` are valid
};

/// Copies KV from the host to the device, and has the addresses of the KV chunks of a layer that need no copy.
class KvStream {
public:
    virtual ~KvStream() = default;
    /// Returns the KV chunks of `layer` that arrive in segments, by acquire_kv(). Those wholly outside the layer's
    /// window may be left out. All other committed KV chunks are at chunks().
    [[nodiscard]] virtual ChunkRange streamed(std::int64_t layer) const = 0;
    /// Returns the device addresses of a layer's KV chunks, by their numbers; those of streamed(layer) are not valid.
    /// The KV chunks that a prefill chunk fills can be written there.
    [[nodiscard]] virtual std::byte* const* chunks(std::int64_t layer) const = 0;
    /// Returns the next segment of `layer`, in ascending order, for work enqueued on `compute` until release_kv();
    /// nullopt if there are no more. Throws IoError if its copy failed.
    [[nodiscard]] virtual std::optional<KvSegment> acquire_kv(std::int64_t layer, Stream& compute) = 0;
    /// Call when the last use of the acquired segment is enqueued on `compute`.
    virtual void release_kv(Stream& compute) = 0;
};

}  // namespace slipstream
