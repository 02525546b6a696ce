// What a pass reads from host memory: weights that are not resident, KV that is not, either alone or both. Forward asks
// for them in reading order, whoever brings them: the stream of a pass, or that of a prompt that goes layer by layer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "kernels/device.h"
#include "runtime/cache/pass_kv.h"
#include "runtime/model/model.h"

namespace slipstream {

/// The two that a pass reads. Nothing else of a pass decides what is copied for it.
struct PassReads {
    const Model* model = nullptr;
    PassKv* kv = nullptr;
    /// Whether anything of them has to be brought over.
    [[nodiscard]] bool streams() const { return model->streams_weights() || kv->host() != nullptr; }
    friend bool operator==(const PassReads&, const PassReads&) = default;
};

/// Brings items of weights to the device.
class WeightStream {
public:
    virtual ~WeightStream() = default;
    /// The item on the device, for work enqueued on `compute` from now on. Items in reading order; one may be asked for
    /// again until it is released.
    [[nodiscard]] virtual const std::byte* acquire_item(std::int32_t item, Stream& compute) = 0;
    /// Its last use so far is enqueued.
    virtual void release_item(std::int32_t item, Stream& compute) = 0;
};

/// Chunks of a layer, [first, end).
struct ChunkRange {
    std::int64_t first = 0;
    std::int64_t end = 0;
    [[nodiscard]] bool empty() const { return first >= end; }
};

/// Committed chunks of a layer that lie on the device now.
struct KvSegment {
    ChunkRange range;
    const std::byte* const* chunks = nullptr;  // by number; those of `range` are looked at
};

/// Brings KV of the host to the device, and says where the rest of a layer lies meanwhile.
class KvStream {
public:
    virtual ~KvStream() = default;
    /// Chunks of `layer` that come prefill chunk by prefill chunk. All others of its committed ones lie at chunks().
    [[nodiscard]] virtual ChunkRange streamed(std::int64_t layer) const = 0;
    /// By number; what a prompt's prefill chunk fills can be written there.
    [[nodiscard]] virtual std::byte* const* chunks(std::int64_t layer) const = 0;
    /// The next of them, ascending, until release_kv(). Nothing when there are no more.
    [[nodiscard]] virtual std::optional<KvSegment> acquire_kv(std::int64_t layer, Stream& compute) = 0;
    virtual void release_kv(Stream& compute) = 0;
};

}  // namespace slipstream
