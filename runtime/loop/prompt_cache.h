// PromptCache: KV chunks of texts that were computed before, in host memory, so that a text that begins like one of
// them needs no computing there.
//
// KV chunks form trees. A KV chunk is found by the KV chunk before it, its token ids, which are compared, and the phase
// in which its positions were computed; so texts that begin alike share KV chunks. It has a part for each layer. Layers
// with a sliding window may lack theirs, since the KV cache of the text had given it up. A KV chunk that is not full,
// the end of a text, has no KV chunk after it.
//
// A text with recurrent layers goes on only from a position after which their states are kept, too. A KV chunk may have
// such states after some of its positions. They take as much memory as the KV of a few thousand positions. So as texts
// grow, of a path of KV chunks without a branch the states after its last two such positions stay (thin_states()): a
// conversation goes on from there, and other texts branch off where other texts did.
//
// The memory is bounded. What was used least recently is dropped first: states, and KV chunks that no kept KV chunk
// follows. Of one text, states are dropped before KV chunks: they free more memory, and the KV chunks become useful
// again as soon as the text has states at another position. To use a KV chunk is to use all KV chunks before it, and to
// use states is to use their KV chunk. So the least recently used KV chunk has no KV chunk after it, and no states.
// While a text grows, memory for one of its states is left free, since its KV chunks are useless without any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/attention.h"
#include "offload/pinned_arena.h"
#include "runtime/pass/pass_control.h"
#include "runtime/text/token_id.h"

namespace slipstream {

class KeptChunk;

/// States of recurrent layers after a position, of a PromptCache, which owns them and may drop them.
class KeptStates {
public:
    /// Returns how many positions of their KV chunk are in the states, 1 to kChunkTokens.
    [[nodiscard]] std::int64_t n_tokens() const { return n_tokens_; }

private:
    friend class PromptCache;
    KeptChunk* chunk_ = nullptr;
    std::int64_t n_tokens_ = 0;
    PinnedBuffer memory_;                 // of all recurrent layers, one after the other
    std::uint64_t text_ = 0;              // PromptCache::text_ at the last use
    std::list<KeptStates>::iterator at_;  // in PromptCache::states_by_use_
};

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
    std::vector<KeptStates*> states_;    // by ascending position
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
        /// States after the last position whose tokens match; null: none. `to_states`: the KV chunks up to theirs,
        /// which may be another one than that in `chunks`; `n_in_states`: positions that are in them.
        KeptStates* states = nullptr;
        Path to_states{};
        std::int64_t n_in_states = 0;
    };
    /// Returns the longest path of KV chunks whose token ids are those at the start of `tokens`. Positions below
    /// `n_prefill` must have been computed as Phase::Prefill, the others as Phase::Decode; the path ends before a
    /// position that was computed in the other phase. `n_prefill` must be a multiple of kChunkTokens.
    [[nodiscard]] Match match(std::span<const TokenId> tokens, std::int64_t n_prefill) const;

    /// Begins another text: from now on keep() may drop KV chunks that the text before used.
    void begin_text() { ++text_; }
    /// Counts the KV chunks of `path` as used by the current text (begin_text()).
    void use(const Path& path);
    /// Counts all of a match as used by the current text.
    void use(const Match& match);
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

    /// Keeps the states of recurrent layers after the first `n_tokens` positions of the last KV chunk of `path` (1 to
    /// all of them, CHECKed), if they are not kept. `read(layer, out)` must copy those of a recurrent layer to `out`,
    /// as Target::read_state() does. Makes room as keep() does. Returns whether they are kept. Throws what `read`
    /// throws; nothing is added then.
    bool keep_states(const Path& path, std::int64_t n_tokens,
                     const std::function<void(std::int64_t, std::byte*)>& read);
    /// Of states with KV chunks of `path`, drops those that are followed by two others of the path without a branch in
    /// between.
    void thin_states(const Path& path);
    /// Returns the states of a recurrent layer. Owned by the cache.
    [[nodiscard]] const std::byte* part(const KeptStates& states, std::int64_t layer) const {
        return states.memory_.data() + state_begin_[layer];
    }

    /// Returns the bytes that are kept: KV and states in whole pages, and what is remembered of each of them.
    [[nodiscard]] std::size_t bytes() const { return bytes_; }
    [[nodiscard]] std::size_t limit_bytes() const { return arena_.limit_bytes(); }
    /// Returns the bytes of a full KV chunk that has the parts of all layers.
    [[nodiscard]] std::size_t chunk_bytes() const;
    /// Returns the bytes that the states of recurrent layers after one position take; 0: there are no such layers.
    [[nodiscard]] std::size_t states_bytes() const { return states_bytes_; }
    [[nodiscard]] std::int64_t n_chunks() const { return std::ssize(by_use_); }
    /// Returns the number of positions after which states are kept.
    [[nodiscard]] std::int64_t n_states() const { return std::ssize(states_by_use_); }
    /// Returns the number of KV chunks that were dropped because memory was short.
    [[nodiscard]] std::int64_t n_dropped() const { return n_dropped_; }
    /// Returns the number of positions whose states were dropped because memory was short.
    [[nodiscard]] std::int64_t n_dropped_states() const { return n_dropped_states_; }
    /// Returns whether the system had less memory than the limit when a KV chunk or states were to be kept.
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
    void use(KeptStates& states);
    [[nodiscard]] bool make_room(std::size_t bytes, std::size_t left_bytes = 0);
    [[nodiscard]] bool allocate(PinnedBuffer& memory, std::size_t bytes, std::string_view what);
    void drop(KeptChunk& chunk);
    void drop(KeptStates& states);
    void drop_ends_within(KeptChunk& chunk);
    void take_states(KeptChunk& chunk, KeptChunk& from);

    std::span<const KvLayout> layouts_;
    std::vector<std::size_t> state_begin_;  // [n_layers]: bytes of states before those of a layer
    std::size_t state_data_bytes_ = 0;      // of all recurrent layers
    std::size_t states_bytes_ = 0;          // with what is remembered, counted against the limit
    PinnedArena arena_;
    std::list<KeptStates> states_by_use_;  // the most recently used first
    std::list<KeptChunk> by_use_;          // the most recently used first; a KV chunk precedes those after it in a text
    std::vector<KeptChunk*> roots_;        // KV chunks that begin a text
    std::size_t bytes_ = 0;
    std::uint64_t text_ = 0;
    std::uint64_t n_made_ = 0;  // KV chunks
    std::int64_t n_dropped_ = 0;
    std::int64_t n_dropped_states_ = 0;
    bool system_was_short_ = false;
};

}  // namespace slipstream
