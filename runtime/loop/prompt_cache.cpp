#include "runtime/loop/prompt_cache.h"

#include <algorithm>
#include <utility>

#include "kernels/base/check.h"
#include "kernels/base/checked_math.h"
#include "kernels/base/error.h"
#include "offload/host_pages.h"
#include "runtime/cache/recurrent_states.h"

namespace slipstream {

namespace {

constexpr std::size_t kListNode = 2 * sizeof(void*);
constexpr int kStatesOfPath = 2;  // positions of a path without a branch after which thin_states() leaves states

// Returns how many tokens two texts have in common from their start on.
std::int64_t n_common(std::span<const TokenId> a, std::span<const TokenId> b) {
    const std::size_t n_most = std::min(a.size(), b.size());
    return std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(n_most), b.begin()).first - a.begin();
}

}  // namespace

PromptCache::PromptCache(std::span<const KvLayout> layouts, std::size_t limit_bytes,
                         std::function<std::size_t()> available_bytes)
    : layouts_(layouts),
      arena_({.limit_bytes = limit_bytes,
              .page_lock = PageLock::Pageable,
              .available_bytes = std::move(available_bytes)}) {
    for (const KvLayout& layout : layouts_) {
        state_begin_.push_back(state_data_bytes_);
        state_data_bytes_ += RecurrentStates::state_bytes({&layout, 1});
    }
    if (state_data_bytes_ > 0)
        states_bytes_ =
            round_up(state_data_bytes_, HostPages::kPageBytes) + sizeof(KeptStates) + kListNode + sizeof(KeptStates*);
}

std::size_t PromptCache::record_bytes(std::size_t n_tokens) const {
    return sizeof(KeptChunk) + kListNode + n_tokens * sizeof(TokenId) + layouts_.size() * sizeof(std::byte*) +
           sizeof(PinnedBuffer) + sizeof(KeptChunk*);
}

std::size_t PromptCache::chunk_bytes() const {
    std::size_t bytes = 0;
    for (const KvLayout& layout : layouts_) bytes += layout.chunk_bytes();
    return round_up(bytes, HostPages::kPageBytes) + record_bytes(kChunkTokens);
}

PromptCache::Match PromptCache::match(std::span<const TokenId> tokens, std::int64_t n_prefill) const {
    CHECK(n_prefill % kChunkTokens == 0, "{} positions of a prompt", n_prefill);
    Match match;
    const KeptChunk* before = nullptr;
    while (match.n_tokens < std::ssize(tokens)) {
        const Phase phase = match.n_tokens < n_prefill ? Phase::Prefill : Phase::Decode;
        KeptChunk* best = nullptr;
        std::int64_t n_best = 0;
        for (KeptChunk* chunk : after(before)) {
            if (chunk->phase_ != phase) continue;
            const std::int64_t n = n_common(chunk->tokens_, tokens.subspan(match.n_tokens));
            for (KeptStates* states : chunk->states_) {
                if (states->n_tokens_ > n || match.n_tokens + states->n_tokens_ <= match.n_in_states) continue;
                match.states = states;
                match.n_in_states = match.n_tokens + states->n_tokens_;
                match.to_states = match.chunks;
                match.to_states.push_back(chunk);
            }
            if (n > n_best) {
                best = chunk;
                n_best = n;
            }
        }
        if (best == nullptr) break;
        match.chunks.push_back(best);
        match.n_tokens += n_best;
        if (n_best < kChunkTokens) break;
        before = best;
    }
    return match;
}

void PromptCache::use(KeptChunk& chunk) {
    chunk.text_ = text_;
    by_use_.splice(by_use_.begin(), by_use_, chunk.at_);
}

// Counts the KV chunks of `path` as used, from the last to the first, so that each is more recently used than those
// after it.
void PromptCache::use(const Path& path) {
    for (std::size_t i = path.size(); i-- > 0;) use(*path[i]);
}

void PromptCache::use(const Match& match) {
    use(match.chunks);
    use(match.to_states);
    if (match.states != nullptr) use(*match.states);
}

void PromptCache::use(KeptStates& states) {
    states.text_ = text_;
    states_by_use_.splice(states_by_use_.begin(), states_by_use_, states.at_);
}

// Takes memory under the limit. Returns false if the system has no more.
bool PromptCache::allocate(PinnedBuffer& memory, std::size_t bytes, std::string_view what) {
    try {
        memory = arena_.allocate(bytes, what);
        return true;
    } catch (const OutOfBudget&) {
        system_was_short_ = true;
        return false;
    }
}

KeptChunk* PromptCache::keep(const Path& path, std::span<const TokenId> tokens, Phase phase,
                             const std::function<bool(std::int64_t)>& has,
                             const std::function<void(std::int64_t, std::byte*)>& read) {
    CHECK(!tokens.empty() && std::ssize(tokens) <= kChunkTokens && (path.empty() || path.back()->is_full()),
          "a chunk of {} tokens", tokens.size());
    KeptChunk* const before = path.empty() ? nullptr : path.back();
    const auto found = std::ranges::find_if(after(before), [&](const KeptChunk* chunk) {
        return chunk->phase_ == phase && std::ranges::equal(chunk->tokens_, tokens);
    });
    KeptChunk* chunk = found == after(before).end() ? nullptr : *found;
    if (chunk != nullptr) use(*chunk);
    use(path);

    std::size_t n_missing = 0;  // bytes
    for (std::int64_t layer = 0; layer < std::ssize(layouts_); ++layer)
        if ((chunk == nullptr || chunk->parts_[layer] == nullptr) && has(layer))
            n_missing += layouts_[layer].chunk_bytes();
    if (chunk != nullptr && n_missing == 0) return chunk;
    const std::size_t n_bytes = round_up(n_missing, HostPages::kPageBytes) +
                                (chunk == nullptr ? record_bytes(tokens.size()) : sizeof(PinnedBuffer));
    PinnedBuffer memory;
    if (!make_room(n_bytes, states_bytes_) || !allocate(memory, n_missing, "kept KV")) return chunk;
    std::vector<std::byte*> parts = chunk == nullptr ? std::vector<std::byte*>(layouts_.size()) : chunk->parts_;
    std::byte* out = memory.data();
    for (std::int64_t layer = 0; layer < std::ssize(layouts_); ++layer) {
        if (parts[layer] != nullptr || !has(layer)) continue;
        read(layer, out);
        parts[layer] = out;
        out += layouts_[layer].chunk_bytes();
    }
    if (chunk == nullptr) {
        KeptChunk made;
        made.before_ = before;
        made.tokens_.assign(tokens.begin(), tokens.end());
        made.phase_ = phase;
        made.text_ = text_;
        made.id_ = ++n_made_;
        made.memory_.reserve(1);
        after(before).reserve(after(before).size() + 1);
        by_use_.push_front(std::move(made));
        chunk = &by_use_.front();
        chunk->at_ = by_use_.begin();
        after(before).push_back(chunk);
        use(path);
    }
    if (n_missing > 0) chunk->memory_.push_back(std::move(memory));
    chunk->parts_ = std::move(parts);
    chunk->bytes_ += n_bytes;
    bytes_ += n_bytes;
    drop_ends_within(*chunk);
    return chunk;
}

bool PromptCache::keep_states(const Path& path, std::int64_t n_tokens,
                              const std::function<void(std::int64_t, std::byte*)>& read) {
    CHECK(states_bytes_ > 0 && !path.empty() && n_tokens >= 1 && n_tokens <= std::ssize(path.back()->tokens_),
          "states after {} tokens of a chunk", n_tokens);
    KeptChunk& chunk = *path.back();
    use(path);
    if (const auto found = std::ranges::find(chunk.states_, n_tokens, &KeptStates::n_tokens_);
        found != chunk.states_.end()) {
        use(**found);
        return true;
    }
    PinnedBuffer memory;
    if (!make_room(states_bytes_) || !allocate(memory, state_data_bytes_, "kept states")) return false;
    for (std::size_t layer = 0; layer < layouts_.size(); ++layer)
        if (!layouts_[layer].state.empty()) read(static_cast<std::int64_t>(layer), memory.data() + state_begin_[layer]);
    KeptStates made;
    made.chunk_ = &chunk;
    made.n_tokens_ = n_tokens;
    made.memory_ = std::move(memory);
    made.text_ = text_;
    chunk.states_.reserve(chunk.states_.size() + 1);
    states_by_use_.push_front(std::move(made));
    states_by_use_.front().at_ = states_by_use_.begin();
    chunk.states_.insert(std::ranges::lower_bound(chunk.states_, n_tokens, {}, &KeptStates::n_tokens_),
                         &states_by_use_.front());
    bytes_ += states_bytes_;
    return true;
}

void PromptCache::thin_states(const Path& path) {
    int n_after = 0;  // positions of the path after this one that have states, up to a branch
    for (std::size_t i = path.size(); i-- > 0;) {
        // A text whose phases change at another position is no branch: the one that was computed last takes its place.
        if (i + 1 < path.size() && std::ranges::count(path[i]->after_, path[i + 1]->phase_, &KeptChunk::phase_) > 1)
            n_after = 0;
        const std::vector<KeptStates*> states = path[i]->states_;
        for (std::size_t j = states.size(); j-- > 0;)
            if (++n_after > kStatesOfPath) drop(*states[j]);
    }
}

// Drops what the text has not used until `bytes` more are within the limit, with `left_bytes` to spare. Returns whether
// they are.
bool PromptCache::make_room(std::size_t bytes, std::size_t left_bytes) {
    if (left_bytes > limit_bytes() || bytes > limit_bytes() - left_bytes) return false;
    while (bytes_ > limit_bytes() - left_bytes - bytes) {
        if (by_use_.empty()) return false;
        if (!states_by_use_.empty() && states_by_use_.back().text_ <= by_use_.back().text_) {
            if (states_by_use_.back().text_ == text_) return false;
            drop(states_by_use_.back());
            ++n_dropped_states_;
        } else {
            if (by_use_.back().text_ == text_) return false;
            drop(by_use_.back());
            ++n_dropped_;
        }
    }
    return true;
}

void PromptCache::drop(KeptStates& states) {
    std::erase(states.chunk_->states_, &states);
    bytes_ -= states_bytes_;
    states_by_use_.erase(states.at_);
}

void PromptCache::drop(KeptChunk& chunk) {
    CHECK(chunk.after_.empty() && chunk.states_.empty(), "a chunk with {} chunks after it and {} states is dropped",
          chunk.after_.size(), chunk.states_.size());
    std::erase(after(chunk.before_), &chunk);
    bytes_ -= chunk.bytes_;
    by_use_.erase(chunk.at_);
}

// Drops KV chunks with the same predecessor and phase as `chunk` whose tokens are a proper prefix of its tokens (they
// are ends of texts), unless one has the part of a layer that `chunk` lacks. `chunk` gets their states.
void PromptCache::drop_ends_within(KeptChunk& chunk) {
    const std::vector<KeptChunk*> others = after(chunk.before_);
    for (KeptChunk* other : others) {
        if (other->tokens_.size() >= chunk.tokens_.size() || other->phase_ != chunk.phase_ ||
            n_common(other->tokens_, chunk.tokens_) < std::ssize(other->tokens_))
            continue;
        bool has_all = true;
        for (std::size_t layer = 0; layer < layouts_.size(); ++layer)
            has_all = has_all && (other->parts_[layer] == nullptr || chunk.parts_[layer] != nullptr);
        if (!has_all) continue;
        take_states(chunk, *other);
        drop(*other);
    }
}

// Moves the states of `from`, whose tokens `chunk` begins with, to `chunk`, which is used by the current text.
void PromptCache::take_states(KeptChunk& chunk, KeptChunk& from) {
    while (!from.states_.empty()) {
        KeptStates& states = *from.states_.back();
        const auto place = std::ranges::lower_bound(chunk.states_, states.n_tokens_, {}, &KeptStates::n_tokens_);
        if (place != chunk.states_.end() && (*place)->n_tokens_ == states.n_tokens_) {
            drop(states);
            continue;
        }
        chunk.states_.insert(place, &states);
        states.chunk_ = &chunk;
        from.states_.pop_back();
    }
}

}  // namespace slipstream
