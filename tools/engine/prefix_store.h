// PrefixStore: decides which part of a new prompt needs no computing, because the KV cache holds it, or because it is
// kept from an earlier text in host memory (runtime/loop/prompt_cache.h). Of a text with recurrent layers, states are
// kept after the last positions where the live sequence has some, when another text takes its place. What is reused has
// the bits that computing the prompt would give, so no text depends on what is kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/loop/prompt_cache.h"
#include "runtime/loop/sequence.h"

namespace slipstream::tools {

/// How much of earlier texts is kept in host memory, and how often it was reused.
struct KeptFigures {
    std::size_t bytes = 0;             // KV, and states of recurrent layers
    std::size_t limit_bytes = 0;       // 0: nothing is kept
    std::size_t chunk_bytes = 0;       // bytes that a full KV chunk of all layers takes
    std::int64_t restored_texts = 0;   // prompts that reused more than the KV cache held
    std::int64_t restored_tokens = 0;  // positions that these prompts got from kept chunks
    std::int64_t dropped_chunks = 0;   // KV chunks that made room for others
    std::size_t states_bytes = 0;      // bytes that the states after one position take; 0: no layer is recurrent
    std::int64_t n_states = 0;         // positions whose states are kept
    std::int64_t dropped_states = 0;   // positions whose states made room
};

/// Finds what a new prompt can reuse of the live sequence and, with a limit of more than 0 bytes, of KV chunks of
/// earlier sequences, which it keeps in host memory.
class PrefixStore {
public:
    /// `sequence` must outlive this object. `limit_bytes`: most bytes of host memory for what is kept of earlier
    /// sequences. `on_shortage` is called once, with a line for the user, if the system has less memory.
    explicit PrefixStore(Sequence& sequence, std::size_t limit_bytes = 0,
                         std::function<void(std::string_view)> on_shortage = {});

    /// Fills the sequence's KV cache with the positions that `prompt` (not empty) can reuse, drops the others, and
    /// returns their number. It is less than the length of the prompt, since the logits of its last token are needed.
    /// The rest of the prompt gets the same bits as if it were computed from an empty cache. If layers with a sliding
    /// window have given up KV that the shared prefix needs, or recurrent layers have no states at its end, positions
    /// of it are lost: `on_loss` is called before, with their number. Call GenerationLoop::begin() with the prompt
    /// next. Throws what Target::restore() throws.
    std::int64_t reuse(std::span<const TokenId> prompt, const std::function<void(std::int64_t)>& on_loss = {});
    /// Copies the KV chunks of the sequence that have become full since the last call. Call as often as possible
    /// between passes: layers with a sliding window give up their KV. Does nothing while the target has nodes, since a
    /// pass may be running. Throws what the target throws if a chunk cannot be read.
    void keep();
    /// Returns whether earlier sequences are kept: there is a limit of more than 0 bytes.
    [[nodiscard]] bool keeps_texts() const { return cache_ != nullptr; }
    [[nodiscard]] KeptFigures figures() const;

private:
    struct Restorable {
        PromptCache::Path chunks;    // kept chunks with the tokens of the prompt, from its start
        std::int64_t n_matched = 0;  // positions of `chunks` whose tokens the prompt has
        std::int64_t first = 0;      // position from which on chunks are restored; the KV cache has those before it
        std::int64_t n_tokens = 0;   // positions that the KV cache has after restoring; 0: restoring does not pay
        const KeptStates* states = nullptr;  // of recurrent layers, after n_tokens positions
        PromptCache::Path restored{};        // kept chunks of these positions; the last one may not be of `chunks`
    };
    [[nodiscard]] std::int64_t prefill_end(std::int64_t n_prompt) const;
    [[nodiscard]] PromptCache::Match match(std::span<const TokenId> prompt) const;
    [[nodiscard]] Restorable find_restorable(std::span<const TokenId> prompt, std::int64_t n_live) const;
    void find_states(PromptCache::Match matched, std::int64_t n_live, Restorable& found) const;
    [[nodiscard]] std::optional<Phase> phase_of(std::int64_t begin, std::int64_t end) const;
    void follow_sequence();
    void keep_end(std::span<const TokenId> prompt, std::int64_t n_live);
    void keep_states(std::int64_t n_live, KeptChunk* end);
    [[nodiscard]] KeptChunk* keep_chunk(std::int64_t n_tokens);
    void report_shortage();
    void restore(std::span<const TokenId> prompt, const Restorable& found);

    Sequence* sequence_;
    std::unique_ptr<PromptCache> cache_;  // null: only the last sequence is reused
    std::function<void(std::string_view)> on_shortage_;
    // What a KV chunk of the target holds, or held before it was cut off.
    struct Place {
        std::uint64_t chunk_id = 0;  // KeptChunk::id() of the same content; 0: unknown
        std::uint64_t version = 0;   // Target::chunk_version() when it had this content
    };
    void note_place(std::int64_t chunk, const KeptChunk& kept);
    [[nodiscard]] bool is_in_place(std::int64_t chunk, const KeptChunk& kept) const;

    PromptCache::Path path_;     // full chunks at the start of the sequence that are kept
    std::vector<Place> places_;  // contents of the target's KV chunks in order; those past the end are unknown
    bool is_full_ = false;       // there is no memory for further chunks of the sequence
    std::int64_t restored_texts_ = 0;
    std::int64_t restored_tokens_ = 0;
};

}  // namespace slipstream::tools
