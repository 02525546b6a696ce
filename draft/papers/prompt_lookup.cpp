#include "draft/papers/prompt_lookup.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "draft/sources/match_length.h"
#include "draft/sources/mix_bits.h"
#include "kernels/base/check.h"
#include "kernels/base/error.h"

namespace slipstream::draft {

namespace {

constexpr std::int64_t kMaxNgram = 64;
constexpr std::size_t kFirstSlots = 256;
constexpr std::uint16_t kDepthBuckets = 4;

// Cursor: position of the next token (32 bits), depth in the chain (8), n (8).
struct Place {
    std::uint32_t next;
    std::uint32_t depth;
    std::uint32_t n;
};

Cursor pack(const Place& place) {
    return Cursor{place.next} | Cursor{place.depth} << 32 | Cursor{place.n} << 40;
}

Place unpack(Cursor cursor) {
    return {static_cast<std::uint32_t>(cursor), static_cast<std::uint32_t>(cursor >> 32) & 0xffU,
            static_cast<std::uint32_t>(cursor >> 40) & 0xffU};
}

std::uint16_t depth_bucket(std::uint32_t depth) {
    if (depth < 2) return static_cast<std::uint16_t>(depth);
    return depth < 4 ? 2 : 3;
}

std::uint64_t hash_step(std::uint64_t hash, TokenId token) {
    return mix_bits(hash + static_cast<std::uint32_t>(token) + 1);
}

}  // namespace

PromptLookup::PromptLookup(PromptLookupOptions options) {
    if (options.max_ngram < 1 || options.max_ngram > kMaxNgram)
        throw RequestError(fmt::format("n-grams of {} tokens were asked of prompt lookup; choose 1 to {}",
                                       options.max_ngram, kMaxNgram));
    ends_.resize(static_cast<std::size_t>(options.max_ngram));
    last_found_.resize(ends_.size());
    reset();
}

std::uint16_t PromptLookup::n_cells() const {
    return static_cast<std::uint16_t>(ends_.size() * kDepthBuckets);
}

void PromptLookup::reset() {
    text_.clear();
    for (FirstEnds& ends : ends_) {
        ends.slots.assign(kFirstSlots, 0);
        ends.n_used = 0;
    }
    std::ranges::fill(last_found_, 0);
    continuation_.reset();
}

void PromptLookup::observe(const Observation& observation) {
    auto added = continuation_.added(observation, text_, 0);
    if (!added) {
        reset();
        added = continuation_.added(observation, text_, 0);
    }
    for (const TokenId token : *added) append(token);
}

void PromptLookup::append(TokenId token) {
    CHECK(text_.size() < std::numeric_limits<std::uint32_t>::max(), "{} tokens", text_.size());
    text_.push_back(token);
    const auto end = static_cast<std::uint32_t>(text_.size());
    std::uint64_t hash = 0;
    for (std::size_t n = 1; n <= ends_.size() && n <= end; ++n) {
        hash = hash_step(hash, text_[end - n]);
        last_found_[n - 1] = first_end(n, hash, end);
    }
}

std::uint64_t PromptLookup::hash(std::size_t n, std::uint32_t end) const {
    std::uint64_t hash = 0;
    for (std::size_t i = 1; i <= n; ++i) hash = hash_step(hash, text_[end - i]);
    return hash;
}

std::uint32_t PromptLookup::first_end(std::size_t n, std::uint64_t hash, std::uint32_t end) {
    FirstEnds& ends = ends_[n - 1];
    if (2 * (ends.n_used + 1) > ends.slots.size()) grow(n);
    const std::size_t mask = ends.slots.size() - 1;
    const auto gram = text_.begin() + end;
    std::size_t slot = hash & mask;
    for (; ends.slots[slot] != 0; slot = (slot + 1) & mask) {
        const std::uint32_t earlier = ends.slots[slot];
        if (std::equal(gram - static_cast<std::ptrdiff_t>(n), gram,
                       text_.begin() + static_cast<std::ptrdiff_t>(earlier - n)))
            return earlier;
    }
    ends.slots[slot] = end;
    ++ends.n_used;
    return end;
}

void PromptLookup::grow(std::size_t n) {
    FirstEnds& ends = ends_[n - 1];
    const std::vector<std::uint32_t> old = std::exchange(ends.slots, std::vector<std::uint32_t>(2 * ends.slots.size()));
    const std::size_t mask = ends.slots.size() - 1;
    for (const std::uint32_t end : old) {
        if (end == 0) continue;
        std::size_t slot = hash(n, end) & mask;
        while (ends.slots[slot] != 0) slot = (slot + 1) & mask;
        ends.slots[slot] = end;
    }
}

Cursor PromptLookup::root(std::span<const TokenId> text) {
    CHECK(text.size() == text_.size(), "a text of {} tokens, {} were observed", text.size(), text_.size());
    const std::size_t length = text_.size();
    for (std::size_t n = std::min(ends_.size(), length); n >= 1; --n) {
        const std::uint32_t start = last_found_[n - 1];
        if (start + n < length && std::size_t{start} + kChainTokens <= length)
            return pack({.next = start, .depth = 0, .n = static_cast<std::uint32_t>(n)});
    }
    return kNowhere;
}

Cursor PromptLookup::advance(Cursor cursor, TokenId token) {
    const Place place = unpack(cursor);
    DCHECK(place.next < text_.size(), "place {} of {}", place.next, text_.size());
    if (text_[place.next] != token || place.depth + 1 >= kChainTokens) return kNowhere;
    return pack({.next = place.next + 1, .depth = place.depth + 1, .n = place.n});
}

std::size_t PromptLookup::propose(Cursor cursor, std::int64_t, const PathNoise&, std::span<Proposal> out) {
    if (out.empty()) return 0;
    const Place place = unpack(cursor);
    DCHECK(place.next < text_.size(), "place {} of {}", place.next, text_.size());
    out[0] = {.token = text_[place.next],
              .probability = match_prior(match_bucket(place.n + place.depth)),
              .cell = static_cast<std::uint16_t>((place.n - 1) * kDepthBuckets + depth_bucket(place.depth))};
    return 1;
}

void PromptLookup::propose_shape(TokenTree& tree, const ShapeRequest& request) {
    Cursor cursor = root(request.text);
    std::int32_t node = 0;
    while (cursor != kNowhere && tree.size() < request.budget && tree.depth(node) < request.max_depth) {
        const TokenId token = text_[unpack(cursor).next];
        node = tree.add(node, token);
        cursor = advance(cursor, token);
    }
}

std::size_t PromptLookup::memory_bytes() const {
    std::size_t bytes = text_.capacity() * sizeof(TokenId);
    for (const FirstEnds& ends : ends_) bytes += ends.slots.capacity() * sizeof(std::uint32_t);
    return bytes;
}

}  // namespace slipstream::draft
