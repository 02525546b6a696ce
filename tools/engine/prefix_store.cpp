#include "tools/engine/prefix_store.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "tools/base/amounts.h"

namespace slipstream::tools {

namespace {

// Least number of positions whose computing must be saved for copying KV to pay, of one KV chunk or of many at once.
constexpr std::int64_t kLeastTokens = 16;

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
    cache_->use(matched.chunks);
    Restorable found{.chunks = std::move(matched.chunks), .n_matched = matched.n_tokens};
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
    return found;
}

void PrefixStore::restore(std::span<const TokenId> prompt, const Restorable& found) {
    const std::span<const TokenId> tokens = prompt.first(found.n_tokens);
    const std::span<const KvLayout> layouts = sequence_->target().shape().kv;
    path_.clear();
    sequence_->restore({tokens.begin(), tokens.end()}, found.first,
                       std::min(found.n_tokens, Sequence::prefill_border(std::ssize(prompt))),
                       {.read =
                            [&](std::int64_t layer, std::int64_t chunk, std::byte* out) {
                                std::memcpy(out, found.chunks[chunk]->part(layer), layouts[layer].chunk_bytes());
                            },
                        .is_there = [&](std::int64_t chunk) { return is_in_place(chunk, *found.chunks[chunk]); }});
    for (std::int64_t chunk = found.first / kChunkTokens; chunk * kChunkTokens < found.n_tokens; ++chunk)
        note_place(chunk, *found.chunks[chunk]);
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
    if (cache_->system_was_short() && on_shortage_)
        std::exchange(on_shortage_, {})(
            fmt::format("the system has no more memory to keep texts: {} are kept of the {} of --kept-memory",
                        size_text(cache_->bytes()), size_text(cache_->limit_bytes())));
    if (kept != nullptr) note_place(chunk, *kept);
    return kept;
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
// `n_live`, which `prompt` can use in place. Before that, marks the kept chunks of `prompt` as used, so that they are
// not dropped to make room.
void PrefixStore::keep_end(std::span<const TokenId> prompt, std::int64_t n_live) {
    const std::int64_t n_computed = sequence_->n_computed();
    const std::int64_t begin = n_computed / kChunkTokens * kChunkTokens;
    if (n_computed - std::max(begin, n_live) < kLeastTokens) return;
    follow_sequence();
    if (std::ssize(path_) != begin / kChunkTokens) return;  // not all KV chunks before the last one are kept
    cache_->begin_text();
    cache_->use(match(prompt).chunks);
    static_cast<void>(keep_chunk(n_computed - begin));
}

KeptFigures PrefixStore::figures() const {
    if (!cache_) return {};
    return {.bytes = cache_->bytes(),
            .limit_bytes = cache_->limit_bytes(),
            .chunk_bytes = cache_->chunk_bytes(),
            .restored_texts = restored_texts_,
            .restored_tokens = restored_tokens_,
            .dropped_chunks = cache_->n_dropped()};
}

}  // namespace slipstream::tools
