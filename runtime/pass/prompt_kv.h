// KV of a prompt that passes through the model layer by layer, if KV streams. It determines where the chunks of a layer
// are while the layer is computed, and flushes the chunks that the prompt fills to the host. There are two ways: all KV
// of a layer on the device at once (prompt_kv_areas.h), or, if that is too much, the earlier KV again for each prefill
// chunk (prompt_kv_by_chunk.h).
#pragma once

#include <cstdint>

#include "runtime/pass/pass_reads.h"

namespace slipstream {

/// A prompt: the positions [begin, end), fed in prefill chunks that end at multiples of `chunk_tokens`. `end` is a
/// multiple of `chunk_tokens`, and of 256 if anything streams.
struct PromptRange {
    std::int64_t begin = 0;
    std::int64_t end = 0;
    std::int64_t chunk_tokens = 0;
    /// Index of the model's last layer, if this device has it: the prompt's prefill chunks compute only its KV rows.
    /// -1: another device has it.
    std::int64_t last_layer = -1;
    /// First layer of this device that is computed. An earlier run computed the layers before it.
    std::int64_t first_layer = 0;
    /// Returns the number of prefill chunks, plus one for the pass after the prompt.
    [[nodiscard]] std::int64_t n_prefill_chunks() const { return end / chunk_tokens - begin / chunk_tokens + 1; }
    /// Returns the position at which a prefill chunk begins.
    [[nodiscard]] std::int64_t begin_of(std::int64_t prefill_chunk) const {
        return prefill_chunk == 0 ? begin : (begin / chunk_tokens + prefill_chunk) * chunk_tokens;
    }
    [[nodiscard]] std::int64_t first_chunk() const { return begin / kChunkTokens; }
    [[nodiscard]] std::int64_t end_chunk() const { return end / kChunkTokens; }
};

class PromptKv : public KvStream {
public:
    /// Begins a layer. Layers follow in order; the prefill chunks of a layer come between begin_layer() and
    /// end_layer(). The cache holds the rows of the layer at positions before `from`: the begin of the prompt, or, if
    /// an earlier run computed a part of the layer, the begin of one of its prefill chunks.
    virtual void begin_layer(std::int64_t layer, std::int64_t from) = 0;
    /// Call before the layer computes the rows of positions [first, end); first == end for the pass after the prompt,
    /// whose rows stay in scratch. Then the KV chunks that these rows fill can be written at chunks().
    virtual void begin_prefill_chunk(std::int64_t first, std::int64_t end) = 0;
    /// Call when the writes of the prefill chunk's rows to their KV chunks are enqueued.
    virtual void end_prefill_chunk() = 0;
    /// Call when the last prefill chunk of the layer has ended.
    virtual void end_layer() = 0;
    /// Call between two prefill chunks of a layer. Returns where in device memory a streamed KV chunk is that the layer
    /// has filled; null if it is being copied to the host.
    [[nodiscard]] virtual const std::byte* filled_chunk(std::int64_t layer, std::int64_t chunk) const = 0;
    /// Returns the use of HostKv::flushed() after which all KV chunks filled so far are on the host; 0: none was
    /// filled.
    [[nodiscard]] virtual std::uint64_t last_flush() const = 0;
    /// Drops all copies to the device that were not used, after waiting for them. Rethrows their errors.
    virtual void drop() = 0;
};

}  // namespace slipstream
