#include "tools/engine/prefix_store.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "runtime/cache/recurrent_states.h"
#include "tools/base/amounts.h"

namespace slipstream::tools {

namespace {

// Least number of positions whose computing must be saved for copying KV to pay, of one KV chunk or of many at once.
constexpr std::int64_t kLeastTokens = 16;
// With recurrent layers, all KV of a text is copied, since the states are those of one position. On a fast GPU, copying
// so many positions takes about as long as computing one in a long prompt: of a model of 27 B weights, 4 MiB of KV, and
// 54 billion operations.
constexpr std::int64_t kCopiedPerComputed = 64;
// States are kept so far after others of their text, or after its beginning: a pass over fewer positions is short, and
// states take as much memory as the KV of a few thousand.
constexpr std::int64_t kLeastTokensOfStates = kChunkTokens;

}  // namespace

PrefixStore::PrefixStore(Sequence& sequence, std::size_t limit_bytes, std::function<void(std::string_view)> on_shortage)
    : sequence_(&sequence), on_shortage_(std::move(on_shortage)) {
    if (limit_bytes > 0) cache_ = std::make_unique<PromptCache>(sequence.target().shape().kv, limit_bytes);
}

std::int64_t PrefixStore::reuse(std::span<const TokenId> prompt, const std::function<void(std::int64_t)>& on_loss) {
    keep();
    const std::vector<TokenId>& held = sequence_->tokens();
    const std::int64_t n_computed = sequence_->n_computed();
    const std::int64_t most = std::min({n_computed, std::ssize(held), std::ssize(prompt) - 1});
    const auto differ = std::mismatch(prompt.begin(), prompt.begin() + most, held.begin());
    const std::int64_t n_shared = sequence_->n_reusable(differ.first - prompt.begin(), std::ssize(prompt));
    const std::int64_t n_live = n_shared == n_computed ? n_shared : sequence_->target().positions_after_cut(n_shared);
    Restorable found;
    if (cache_) {
        keep_end(prompt, n_live);
        found = find_restorable(prompt, n_live);
    }
    const std::int64_t n_kept = std::max(n_live, found.n_tokens);
    if (on_loss && n_kept < n_shared) on_loss(n_shared - n_kept);
    if (found.n_tokens > 0) {
        restore(prompt, found);
    } else if (n_live < n_computed) {
        sequence_->keep_computed(n_live);
    }
    if (cache_) {
        found.chunks.resize(std::min(found.n_matched, sequence_->n_computed()) / kChunkTokens);
        path_ = std::move(found.chunks);
        is_full_ = false;
    }
    return sequence_->n_computed();
}

// Returns how many positions a prompt of `n_prompt` tokens computes as Phase::Prefill, as the cache counts phases: if
// the target has no prompt kernels, phases give the same bits, and all count as Phase::Decode.
std::int64_t PrefixStore::prefill_end(std::int64_t n_prompt) const {
    return sequence_->target().shape().has_prompt_kernels ? Sequence::prefill_border(n_prompt) : 0;
}

PromptCache::Match PrefixStore::match(std::span<const TokenId> prompt) const {
    return cache_->match(prompt.first(prompt.size() - 1), prefill_end(std::ssize(prompt)));
}

// Returns which kept chunks match `prompt`, and how many positions the KV cache has if they are restored. Its first
// `n_live` positions can stay as they are.
PrefixStore::Restorable PrefixStore::find_restorable(std::span<const TokenId> prompt, std::int64_t n_live) const {
    const Target& target = sequence_->target();
    PromptCache::Match matched = match(prompt);
    cache_->begin_text();
    cache_->use(matched);
    Restorable found{.chunks = matched.chunks, .n_matched = matched.n_tokens};
    if (cache_->states_bytes() > 0) {
        find_states(std::move(matched), n_live, found);
        return found;
    }
    // Whole KV chunks are restored, so the positions of a chunk that is not full are restored, too.
    found.first = n_live / kChunkTokens * kChunkTokens;
    if (found.first < sequence_->n_computed()) found.first = target.positions_after_cut(found.first);
    // [layers]: the first KV chunk from which on all parts of the layer are kept.
    std::vector<std::int64_t> first_kept(target.shape().n_layers, 0);
    for (std::int64_t chunk = found.first / kChunkTokens; chunk < std::ssize(found.chunks); ++chunk) {
        const std::int64_t n_tokens = std::min((chunk + 1) * kChunkTokens, matched.n_tokens);
        bool has_all = true;
        for (std::int64_t layer = 0; layer < std::ssize(first_kept); ++layer) {
            if (found.chunks[chunk]->part(layer) == nullptr) first_kept[layer] = chunk + 1;
            has_all = has_all && first_kept[layer] <=
                                     std::max(found.first / kChunkTokens, target.first_restored_chunk(layer, n_tokens));
        }
        if (has_all) found.n_tokens = n_tokens;
    }
    if (found.n_tokens < n_live + kLeastTokens) found.n_tokens = 0;
    found.restored = found.chunks;
    return found;
}

// Like find_restorable(), if layers are recurrent.
void PrefixStore::find_states(PromptCache::Match matched, std::int64_t n_live, Restorable& found) const {
    if (matched.states == nullptr ||
        matched.n_in_states < n_live + kLeastTokens + matched.n_in_states / kCopiedPerComputed)
        return;
    const Target& target = sequence_->target();
    for (std::int64_t layer = 0; layer < target.shape().n_layers; ++layer)
        for (std::int64_t chunk = target.first_restored_chunk(layer, matched.n_in_states);
             chunk < std::ssize(matched.to_states); ++chunk)
            if (matched.to_states[chunk]->part(layer) == nullptr) return;
    found.n_tokens = matched.n_in_states;
    found.states = matched.states;
    found.restored = std::move(matched.to_states);
}

void PrefixStore::restore(std::span<const TokenId> prompt, const Restorable& found) {
    const std::span<const TokenId> tokens = prompt.first(found.n_tokens);
    const std::span<const KvLayout> layouts = sequence_->target().shape().kv;
    path_.clear();
    Sequence::StoredKv stored{
        .read =
            [&](std::int64_t layer, std::int64_t chunk, std::byte* out) {
                std::memcpy(out, found.restored[chunk]->part(layer), layouts[layer].chunk_bytes());
            },
        .is_there = [&](std::int64_t chunk) { return is_in_place(chunk, *found.restored[chunk]); }};
    if (found.states != nullptr)
        stored.read_state = [&](std::int64_t layer, std::byte* out) {
            std::memcpy(out, cache_->part(*found.states, layer), RecurrentStates::state_bytes({&layouts[layer], 1}));
        };
    sequence_->restore({tokens.begin(), tokens.end()}, found.first,
                       std::min(found.n_tokens, Sequence::prefill_border(std::ssize(prompt))), stored);
    for (std::int64_t chunk = found.first / kChunkTokens; chunk * kChunkTokens < found.n_tokens; ++chunk)
        note_place(chunk, *found.restored[chunk]);
    ++restored_texts_;
    restored_tokens_ += found.n_tokens - found.first;
}

// Returns the phase of the positions [begin, end) of the sequence, as the cache counts phases; no value if they have
// both.
std::optional<Phase> PrefixStore::phase_of(std::int64_t begin, std::int64_t end) const {
    const std::int64_t n_prefilled = sequence_->target().shape().has_prompt_kernels ? sequence_->n_prefilled() : 0;
    if (begin >= n_prefilled) return Phase::Decode;
    return end <= n_prefilled ? std::optional(Phase::Prefill) : std::nullopt;
}

// Drops the chunks from path_ that the sequence does not have any more: it may have been cut, and have gone on with
// other tokens.
void PrefixStore::follow_sequence() {
    const std::span<const TokenId> tokens =
        std::span(sequence_->tokens()).first(std::min(sequence_->n_computed(), std::ssize(sequence_->tokens())));
    std::int64_t n_same = 0;
    for (; n_same < std::min(std::ssize(path_), std::ssize(tokens) / kChunkTokens); ++n_same) {
        const std::int64_t begin = n_same * kChunkTokens;
        if (path_[n_same]->phase() != phase_of(begin, begin + kChunkTokens) ||
            !std::ranges::equal(path_[n_same]->tokens(), tokens.subspan(begin, kChunkTokens)))
            break;
    }
    path_.resize(n_same);
}

void PrefixStore::keep() {
    if (!cache_ || is_full_ || sequence_->target().n_nodes() > 0) return;
    const std::int64_t n_full = std::min(sequence_->n_computed(), std::ssize(sequence_->tokens())) / kChunkTokens;
    if (std::ssize(path_) == n_full) return;
    follow_sequence();
    while (!is_full_ && std::ssize(path_) < n_full) {
        KeptChunk* const chunk = keep_chunk(kChunkTokens);
        if (chunk == nullptr) {
            is_full_ = true;
        } else {
            path_.push_back(chunk);
        }
    }
}

// Copies the chunk of the sequence after path_, which has `n_tokens` positions, into the cache, which owns the result.
// Returns null if there is no room for it, or if its positions were computed in both phases.
KeptChunk* PrefixStore::keep_chunk(std::int64_t n_tokens) {
    Target& target = sequence_->target();
    const std::int64_t chunk = std::ssize(path_);
    const std::int64_t begin = chunk * kChunkTokens;
    const std::optional<Phase> phase = phase_of(begin, begin + n_tokens);
    if (!phase) return nullptr;
    KeptChunk* const kept = cache_->keep(
        path_, std::span(sequence_->tokens()).subspan(begin, n_tokens), *phase,
        [&](std::int64_t layer) { return chunk >= target.first_kept_chunk(layer); },
        [&](std::int64_t layer, std::byte* out) { target.read_chunk(layer, chunk, out); });
    report_shortage();
    if (kept != nullptr) note_place(chunk, *kept);
    return kept;
}

void PrefixStore::report_shortage() {
    if (!cache_->system_was_short() || !on_shortage_) return;
    std::exchange(on_shortage_,
                  {})(fmt::format("the system has no more memory to keep texts: {} are kept of the {} of --kept-memory",
                                  size_text(cache_->bytes()), size_text(cache_->limit_bytes())));
}

void PrefixStore::note_place(std::int64_t chunk, const KeptChunk& kept) {
    if (std::ssize(places_) <= chunk) places_.resize(chunk + 1);
    places_[chunk] = {.chunk_id = kept.id(), .version = sequence_->target().chunk_version(chunk)};
}

// Returns whether the target's KV chunk number `chunk` still holds the content of `kept`, although the sequence was cut
// before it.
bool PrefixStore::is_in_place(std::int64_t chunk, const KeptChunk& kept) const {
    if (std::ssize(places_) <= chunk || places_[chunk].chunk_id != kept.id() || places_[chunk].version == 0)
        return false;
    return places_[chunk].version == sequence_->target().chunk_version(chunk);
}

// Keeps the last chunk of the sequence, which is not full, if it has at least kLeastTokens positions past the first
// `n_live`, which `prompt` can use in place; then states of recurrent layers. Before that, marks what is kept of
// `prompt` as used, so that it is not dropped to make room.
void PrefixStore::keep_end(std::span<const TokenId> prompt, std::int64_t n_live) {
    const std::int64_t n_computed = sequence_->n_computed();
    const std::int64_t begin = n_computed / kChunkTokens * kChunkTokens;
    const bool has_end = n_computed - std::max(begin, n_live) >= kLeastTokens;
    const bool has_states = cache_->states_bytes() > 0 && n_live < n_computed;
    if (!has_end && !has_states) return;
    follow_sequence();
    const bool has_all = std::ssize(path_) == begin / kChunkTokens;  // all KV chunks before the last one are kept
    if (!has_all && !has_states) return;
    cache_->begin_text();
    cache_->use(match(prompt));
    KeptChunk* const end = has_end && has_all ? keep_chunk(n_computed - begin) : nullptr;
    if (has_states) keep_states(n_live, end);
}

// Keeps states of the sequence, of which the next prompt uses the first `n_live` positions in place, unless it goes on
// with this text: then all that it needs is there, and what is dropped is an answer. `end`: its last KV chunk if it is
// not full and kept; null: it is not. Keeps the states from which the text goes on if a prompt repeats all of its
// prompt, or all of it, and those at `n_live`, where it branches.
void PrefixStore::keep_states(std::int64_t n_live, KeptChunk* end) {
    Target& target = sequence_->target();
    PromptCache::Path path = path_;
    std::int64_t n_kept = std::ssize(path) * kChunkTokens;
    if (end != nullptr) {
        n_kept += std::ssize(end->tokens());
        path.push_back(end);
    }
    const std::int64_t in_prompt = target.last_state(std::min(n_kept, sequence_->n_prompt() - 1), 1);
    if (n_live >= in_prompt) return;
    const auto keep_at = [&](std::int64_t position) {
        const std::int64_t before = (position - 1) / kChunkTokens;  // KV chunks before that with the last position
        const bool is_kept =
            cache_->keep_states({path.begin(), path.begin() + before + 1}, position - before * kChunkTokens,
                                [&](std::int64_t layer, std::byte* out) { target.read_state(layer, position, out); });
        report_shortage();
        return is_kept;
    };
    // With prompt kernels, what is computed after the last whole prefill chunk is computed again in a longer prompt.
    const bool has_prompt_kernels = target.shape().has_prompt_kernels;
    const std::int64_t first =
        has_prompt_kernels ? target.last_state(std::min(n_kept, sequence_->n_prefilled()), 1) : in_prompt;
    const std::int64_t second = has_prompt_kernels ? in_prompt : target.last_state(n_kept, 1);
    const std::int64_t branch = target.last_state(n_live, 1);
    std::int64_t lowest = 0;  // of the kept positions; 0: none
    for (const std::int64_t position : {first, second})
        if (position >= lowest + kLeastTokensOfStates && keep_at(position) && lowest == 0) lowest = position;
    cache_->thin_states(path);
    if (branch >= kLeastTokensOfStates && lowest - branch >= kLeastTokensOfStates) static_cast<void>(keep_at(branch));
}

KeptFigures PrefixStore::figures() const {
    if (!cache_) return {};
    return {.bytes = cache_->bytes(),
            .limit_bytes = cache_->limit_bytes(),
            .chunk_bytes = cache_->chunk_bytes(),
            .restored_texts = restored_texts_,
            .restored_tokens = restored_tokens_,
            .dropped_chunks = cache_->n_dropped(),
            .states_bytes = cache_->states_bytes(),
            .n_states = cache_->n_states(),
            .dropped_states = cache_->n_dropped_states()};
}

}  // namespace slipstream::tools
