// KV of a prompt that goes through a model layer by layer, where it streams: where the layer's chunks lie while it is
// computed, and the way to the host of those that it fills. Two ways: all of a layer at once (prompt_kv_areas.h), or
// prefill chunk by prefill chunk where that is too much (prompt_kv_by_chunk.h).
#pragma once

#include <cstdint>

#include "runtime/pass/pass_reads.h"

namespace slipstream {

/// A prompt: positions [begin, end), fed in prefill chunks that end at multiples of `chunk_tokens`, as `end` does, a
/// multiple of 256.
struct PromptRange {
    std::int64_t begin = 0;
    std::int64_t end = 0;
    std::int64_t chunk_tokens = 0;
    std::int64_t last_layer = -1;  // of the model, where this device has it: only its KV rows are wanted; -1: it is not
    /// Its prefill chunks, and one for the pass behind it.
    [[nodiscard]] std::int64_t n_prefill_chunks() const { return end / chunk_tokens - begin / chunk_tokens + 1; }
    [[nodiscard]] std::int64_t first_chunk() const { return begin / kChunkTokens; }
    [[nodiscard]] std::int64_t end_chunk() const { return end / kChunkTokens; }
};

class PromptKv : public KvStream {
public:
    /// Layers in order, each from begin_layer() to end_layer(), its prefill chunks in between.
    virtual void begin_layer(std::int64_t layer) = 0;
    /// Rows of the layer at positions [first, end) follow; first == end for a pass, whose rows stay in scratch. From
    /// here on chunks() of what these rows fill can be written.
    virtual void begin_prefill_chunk(std::int64_t first, std::int64_t end) = 0;
    /// Those rows are in their chunks.
    virtual void end_prefill_chunk() = 0;
    virtual void end_layer() = 0;
    /// Use of HostKv::flushed() when all that was filled so far is on the host; 0: nothing was filled.
    [[nodiscard]] virtual std::uint64_t last_flush() const = 0;
    /// Gives up what is on its way to the device.
    virtual void drop() = 0;
};

}  // namespace slipstream
