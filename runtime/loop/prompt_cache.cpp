#include "runtime/loop/prompt_cache.h"

#include <algorithm>
#include <utility>

#include "kernels/base/check.h"
#include "kernels/base/checked_math.h"
#include "kernels/base/error.h"
#include "offload/host_pages.h"

namespace slipstream {

namespace {

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
              .available_bytes = std::move(available_bytes)}) {}

std::size_t PromptCache::record_bytes(std::size_t n_tokens) const {
    constexpr std::size_t kListNode = 2 * sizeof(void*);
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
    if (!make_room(n_bytes)) return chunk;
    PinnedBuffer memory;
    try {
        memory = arena_.allocate(n_missing, "kept KV");
    } catch (const OutOfBudget&) {
        system_was_short_ = true;
        return chunk;
    }
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

// Drops what the text has not used until `bytes` more are within the limit. Returns whether they are.
bool PromptCache::make_room(std::size_t bytes) {
    if (bytes > limit_bytes()) return false;
    while (bytes_ > limit_bytes() - bytes) {
        if (by_use_.empty() || by_use_.back().text_ == text_) return false;
        drop(by_use_.back());
        ++n_dropped_;
    }
    return true;
}

void PromptCache::drop(KeptChunk& chunk) {
    CHECK(chunk.after_.empty(), "a chunk with {} chunks after it is dropped", chunk.after_.size());
    std::erase(after(chunk.before_), &chunk);
    bytes_ -= chunk.bytes_;
    by_use_.erase(chunk.at_);
}

// Drops KV chunks with the same predecessor and phase as `chunk` whose tokens are a proper prefix of its tokens (they
// are ends of texts), unless one has the part of a layer that `chunk` lacks.
void PromptCache::drop_ends_within(const KeptChunk& chunk) {
    const std::vector<KeptChunk*> others = after(chunk.before_);
    for (KeptChunk* other : others) {
        if (other->tokens_.size() >= chunk.tokens_.size() || other->phase_ != chunk.phase_ ||
            n_common(other->tokens_, chunk.tokens_) < std::ssize(other->tokens_))
            continue;
        bool has_all = true;
        for (std::size_t layer = 0; layer < layouts_.size(); ++layer)
            has_all = has_all && (other->parts_[layer] == nullptr || chunk.parts_[layer] != nullptr);
        if (has_all) drop(*other);
    }
}

}  // namespace slipstream
