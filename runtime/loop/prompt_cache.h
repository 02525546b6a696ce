// PromptCache: KV chunks of texts that were computed before, in host memory, so that a text that begins like one of
// them needs no computing there.
//
// KV chunks form trees. A KV chunk is found by the KV chunk before it, its token ids, which are compared, and the phase
// in which its positions were computed; so texts that begin alike share KV chunks. It has a part for each layer. Layers
// with a sliding window may lack theirs, since the KV cache of the text had given it up. A KV chunk that is not full,
// the end of a text, has no KV chunk after it.
//
// The memory is bounded. KV chunks without a KV chunk after them are dropped, the least recently used first. Each use
// of a KV chunk is one of all KV chunks before it, so the least recently used KV chunk of all never has a KV chunk
// after it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <span>
#include <utility>
#include <vector>

#include "kernels/attention.h"
#include "offload/pinned_arena.h"
#include "runtime/pass/pass_control.h"
#include "runtime/text/token_id.h"

namespace slipstream {

/// A KV chunk of a PromptCache, which owns it and may drop it (PromptCache::keep()).
class KeptChunk {
public:
    /// Returns the token ids of the KV chunk, 1 to kChunkTokens of them.
    [[nodiscard]] std::span<const TokenId> tokens() const { return tokens_; }
    [[nodiscard]] bool is_full() const { return std::ssize(tokens_) == kChunkTokens; }
    [[nodiscard]] Phase phase() const { return phase_; }
    /// Returns a number that no other KV chunk of the cache has or had.
    [[nodiscard]] std::uint64_t id() const { return id_; }
    /// Returns the KV of a layer as Target::read_chunk() gave it; null if it is missing. Owned by the cache.
    [[nodiscard]] const std::byte* part(std::int64_t layer) const { return parts_[layer]; }

private:
    friend class PromptCache;
    KeptChunk* before_ = nullptr;  // null: the KV chunk begins a text
    std::vector<KeptChunk*> after_;
    std::vector<TokenId> tokens_;
    Phase phase_ = Phase::Decode;
    std::uint64_t id_ = 0;
    std::vector<std::byte*> parts_;      // [n_layers], in memory_
    std::vector<PinnedBuffer> memory_;   // one for each call of keep() that added parts
    std::size_t bytes_ = 0;              // counted against the limit
    std::uint64_t text_ = 0;             // PromptCache::text_ at the last use
    std::list<KeptChunk>::iterator at_;  // in PromptCache::by_use_
};

class PromptCache {
public:
    /// KV chunks of a text in order, without a gap, from its start on. Valid until one of them may be dropped, see
    /// keep().
    using Path = std::vector<KeptChunk*>;

    /// `layouts` [n_layers] of the target, which must outlive this object. Everything that is kept takes at most
    /// `limit_bytes`. `available_bytes` returns the bytes of memory that the system has left; empty:
    /// available_host_bytes().
    PromptCache(std::span<const KvLayout> layouts, std::size_t limit_bytes,
                std::function<std::size_t()> available_bytes = {});
    PromptCache(const PromptCache&) = delete;
    PromptCache& operator=(const PromptCache&) = delete;

    struct Match {
        Path chunks;
        std::int64_t n_tokens = 0;  // positions in them that match: all but, perhaps, the end of the last KV chunk
    };
    /// Returns the longest path of KV chunks whose token ids are those at the start of `tokens`. Positions below
    /// `n_prefill` must have been computed as Phase::Prefill, the others as Phase::Decode; the path ends before a
    /// position that was computed in the other phase. `n_prefill` must be a multiple of kChunkTokens.
    [[nodiscard]] Match match(std::span<const TokenId> tokens, std::int64_t n_prefill) const;

    /// Begins another text: from now on keep() may drop KV chunks that the text before used.
    void begin_text() { ++text_; }
    /// Counts the KV chunks of `path` as used by the current text (begin_text()).
    void use(const Path& path);
    /// Keeps the KV chunk of `tokens` (1 to kChunkTokens) that follows `path`, whose KV chunks must be full. If the KV
    /// chunk of this phase is kept already, adds the parts (KV of a layer) that it lacks. A KV chunk without parts is
    /// kept too, since KV chunks after it have some. `has(layer)` returns whether the target has that part, and
    /// `read(layer, out)` must copy it to `out`, as Target::read_chunk() does. If memory is short, drops KV chunks that
    /// the current text has not used; also drops shorter KV chunks after `path` whose tokens and parts are all in this
    /// one. Returns the KV chunk, which the cache owns. If there is no memory, returns it as it was before; null if it
    /// was not kept. Throws what `read` throws; nothing is added then.
    KeptChunk* keep(const Path& path, std::span<const TokenId> tokens, Phase phase,
                    const std::function<bool(std::int64_t)>& has,
                    const std::function<void(std::int64_t, std::byte*)>& read);

    /// Returns the bytes that are kept: KV in whole pages, and what is remembered of each KV chunk.
    [[nodiscard]] std::size_t bytes() const { return bytes_; }
    [[nodiscard]] std::size_t limit_bytes() const { return arena_.limit_bytes(); }
    /// Returns the bytes of a full KV chunk that has the parts of all layers.
    [[nodiscard]] std::size_t chunk_bytes() const;
    [[nodiscard]] std::int64_t n_chunks() const { return std::ssize(by_use_); }
    /// Returns the number of KV chunks that were dropped because memory was short.
    [[nodiscard]] std::int64_t n_dropped() const { return n_dropped_; }
    /// Returns whether the system had less memory than the limit when a KV chunk was to be kept.
    [[nodiscard]] bool system_was_short() const { return system_was_short_; }

private:
    [[nodiscard]] const std::vector<KeptChunk*>& after(const KeptChunk* before) const {
        return before == nullptr ? roots_ : before->after_;
    }
    [[nodiscard]] std::vector<KeptChunk*>& after(const KeptChunk* before) {
        return const_cast<std::vector<KeptChunk*>&>(std::as_const(*this).after(before));
    }
    [[nodiscard]] std::size_t record_bytes(std::size_t n_tokens) const;
    void use(KeptChunk& chunk);
    [[nodiscard]] bool make_room(std::size_t bytes);
    void drop(KeptChunk& chunk);
    void drop_ends_within(const KeptChunk& chunk);

    std::span<const KvLayout> layouts_;
    PinnedArena arena_;
    std::list<KeptChunk> by_use_;    // the most recently used first; a KV chunk precedes those after it in a text
    std::vector<KeptChunk*> roots_;  // KV chunks that begin a text
    std::size_t bytes_ = 0;
    std::uint64_t text_ = 0;
    std::uint64_t n_made_ = 0;  // KV chunks
    std::int64_t n_dropped_ = 0;
    bool system_was_short_ = false;
};

}  // namespace slipstream
