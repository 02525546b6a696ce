#include "draft/papers/prompt_lookup.h"

#include <algorithm>

#include <fmt/format.h>

#include "draft/papers/chain_shape.h"
#include "draft/sources/match_length.h"
#include "kernels/base/check.h"
#include "kernels/base/error.h"

namespace slipstream::draft {

namespace {

constexpr std::int64_t kMaxNgram = 64;
constexpr std::uint16_t kDepthBuckets = 4;

// Fields of a cursor: position of the next token (32 bits), depth in the chain (8), n (8).
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

}  // namespace

PromptLookup::PromptLookup(PromptLookupOptions options) : max_ngram_(static_cast<std::size_t>(options.max_ngram)) {
    if (options.max_ngram < 1 || options.max_ngram > kMaxNgram)
        throw RequestError(fmt::format("prompt lookup cannot search for n-grams of {} tokens; use 1 to {}",
                                       options.max_ngram, kMaxNgram));
}

std::uint16_t PromptLookup::n_bins() const {
    return static_cast<std::uint16_t>(max_ngram_ * kDepthBuckets);
}

Cursor PromptLookup::root(std::span<const TokenId> text) {
    text_ = text;
    for (std::size_t n = std::min(max_ngram_, text.size()); n >= 1; --n) {
        const std::span<const TokenId> suffix = text.last(n);  // the search always finds it, if only at the end of
                                                               // `text`
        const auto found = std::search(text.begin(), text.end(), suffix.begin(), suffix.end());
        const auto next = static_cast<std::size_t>(found - text.begin()) + n;
        if (next + n < text.size() && next + kChainTokens <= text.size())
            return pack({static_cast<std::uint32_t>(next), 0, static_cast<std::uint32_t>(n)});
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
              .bin = static_cast<std::uint16_t>((place.n - 1) * kDepthBuckets + depth_bucket(place.depth))};
    return 1;
}

void PromptLookup::propose_shape(TokenTree& tree, const ShapeRequest& request) {
    propose_chain(tree, request, kChainTokens, *this);
}

}  // namespace slipstream::draft
