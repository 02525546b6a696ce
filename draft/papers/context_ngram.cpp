#include "draft/papers/context_ngram.h"

#include <algorithm>
#include <bit>

#include "kernels/base/check.h"

namespace slipstream::draft {

namespace {

constexpr std::int32_t kEmptySlot = -1;

// Mixes one more token into a digest (multiply by an odd constant, fold the high bits down).
constexpr std::uint64_t mixed(std::uint64_t digest, TokenId token) {
    digest = (digest ^ static_cast<std::uint32_t>(token)) * 0x9E3779B97F4A7C15U;
    return digest ^ (digest >> 29);
}

}  // namespace

ContextNgramIndex::ContextNgramIndex(const ContextNgramOptions& options) : options_(options) {
    CHECK(options.query_tokens >= 1 && options.max_places >= 1, "{} tokens asked for, {} places", options.query_tokens,
          options.max_places);
    const auto max_places = static_cast<std::size_t>(options.max_places);
    found_.reserve(max_places);
    slots_.resize(std::bit_ceil(2 * max_places));
}

void ContextNgramIndex::reset() {
    text_.clear();
    earlier_.clear();
    latest_.clear();
    next_ = Next::AnyText;
}

std::uint64_t ContextNgramIndex::query_at(std::size_t last) const {
    const auto q = static_cast<std::size_t>(options_.query_tokens);
    std::uint64_t digest = 0;
    for (std::size_t i = last + 1 - q; i <= last; ++i) digest = mixed(digest, text_[i]);
    return digest;
}

bool ContextNgramIndex::same_query(std::size_t a, std::size_t b) const {
    for (std::size_t back = 0; back < static_cast<std::size_t>(options_.query_tokens); ++back)
        if (text_[a - back] != text_[b - back]) return false;
    return true;
}

void ContextNgramIndex::push(TokenId token) {
    const std::size_t place = text_.size();
    text_.push_back(token);
    earlier_.push_back(kNoPlace);
    if (place + 1 < static_cast<std::size_t>(options_.query_tokens)) return;
    const auto [entry, is_first] = latest_.try_emplace(query_at(place), kNoPlace);
    earlier_.back() = entry->second;
    entry->second = static_cast<std::int32_t>(place);
}

void ContextNgramIndex::pop() {
    const std::size_t place = text_.size() - 1;
    if (place + 1 >= static_cast<std::size_t>(options_.query_tokens)) {
        const auto entry = latest_.find(query_at(place));
        if (earlier_.back() == kNoPlace) {
            latest_.erase(entry);
        } else {
            entry->second = earlier_.back();
        }
    }
    text_.pop_back();
    earlier_.pop_back();
}

void ContextNgramIndex::observe(const Observation& observation) {
    const std::span<const TokenId> text = observation.text;
    const bool whole = observation.n_new == std::ssize(text);
    if (next_ == Next::AnyText || observation.n_new == 0 || whole) {
        const auto [mine, theirs] = std::ranges::mismatch(text_, text);
        const auto n_common = static_cast<std::size_t>(mine - text_.begin());
        while (text_.size() > n_common) pop();
    }
    const auto n_new = static_cast<std::int64_t>(text.size() - text_.size());
    CHECK(text.size() >= text_.size() && (next_ == Next::AnyText || whole || n_new == observation.n_new),
          "a text of {} tokens behind one of {}, {} new", text.size(), text_.size(), observation.n_new);
    for (const TokenId token : text.subspan(text_.size())) push(token);
    next_ = observation.n_new == 0 ? Next::AnyText : Next::Appended;
}

ContextDrafts ContextNgramIndex::drafts(std::int64_t k, std::int64_t w) {
    CHECK(k >= 1 && w >= 1, "{} drafts of {} tokens", k, w);
    drafts_.clear();
    found_.clear();
    const auto n_tokens = static_cast<std::size_t>(w);
    if (text_.empty()) return {};
    std::ranges::fill(slots_, kEmptySlot);
    const std::size_t last = text_.size() - 1;
    const std::size_t mask = slots_.size() - 1;
    std::int64_t n_places = 0;
    std::int64_t n_seen = 0;
    for (std::int32_t place = earlier_[last]; place != kNoPlace && n_seen < options_.max_places;
         place = earlier_[static_cast<std::size_t>(place)]) {
        const auto at = static_cast<std::size_t>(place);
        if (!same_query(at, last)) continue;  // another query of the same digest
        ++n_seen;
        if (at + n_tokens > last) continue;
        ++n_places;
        const std::span<const TokenId> tokens(text_.data() + at + 1, n_tokens);
        std::uint64_t digest = 0;
        for (const TokenId token : tokens) digest = mixed(digest, token);
        std::size_t slot = digest & mask;
        for (; slots_[slot] != kEmptySlot; slot = (slot + 1) & mask) {
            const Found& found = found_[static_cast<std::size_t>(slots_[slot])];
            if (found.digest == digest &&
                std::ranges::equal(tokens, std::span(text_).subspan(static_cast<std::size_t>(found.begin), n_tokens)))
                break;
        }
        if (slots_[slot] == kEmptySlot) {
            slots_[slot] = static_cast<std::int32_t>(found_.size());
            found_.push_back({.digest = digest, .begin = place + 1, .count = 0});
        }
        ++found_[static_cast<std::size_t>(slots_[slot])].count;
    }
    // A later place begins further on, so that equal counts go to the most recent.
    const std::size_t n = std::min(found_.size(), static_cast<std::size_t>(k));
    std::ranges::partial_sort(
        found_, found_.begin() + static_cast<std::ptrdiff_t>(n),
        [](const Found& a, const Found& b) { return a.count != b.count ? a.count > b.count : a.begin > b.begin; });
    for (const Found& found : std::span(found_).first(n))
        drafts_.push_back({.tokens = {text_.data() + found.begin, n_tokens}, .count = found.count});
    return {.best = drafts_, .n_places = n_places};
}

std::size_t ContextNgramIndex::memory_bytes() const {
    // A node of the map: key, value, link, and its bucket.
    constexpr std::size_t entry_bytes = sizeof(std::uint64_t) + sizeof(std::int32_t) + 3 * sizeof(void*);
    return text_.capacity() * sizeof(TokenId) + earlier_.capacity() * sizeof(std::int32_t) +
           latest_.size() * entry_bytes + slots_.size() * sizeof(std::int32_t) + found_.capacity() * sizeof(Found);
}

}  // namespace slipstream::draft
