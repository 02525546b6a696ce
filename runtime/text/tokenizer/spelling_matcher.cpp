#include "runtime/text/tokenizer/spelling_matcher.h"

#include <algorithm>
#include <utility>

namespace slipstream {

namespace {

unsigned char byte_at(const SpellingMatcher::Entry& entry, std::size_t index) {
    return static_cast<unsigned char>(entry.spelling[index]);
}

}  // namespace

SpellingMatcher::SpellingMatcher(std::vector<Entry> entries) : entries_(std::move(entries)) {
    std::erase_if(entries_, [](const Entry& entry) { return entry.spelling.empty(); });
    std::ranges::stable_sort(entries_, {}, &Entry::spelling);  // bytes compare as unsigned
    const auto same = [](const Entry& a, const Entry& b) { return a.spelling == b.spelling; };
    entries_.erase(std::unique(entries_.begin(), entries_.end(), same), entries_.end());
    for (const Entry& entry : entries_) ++first_byte_[byte_at(entry, 0) + 1U];
    for (std::size_t b = 0; b < 256; ++b) first_byte_[b + 1] += first_byte_[b];
}

const SpellingMatcher::Entry* SpellingMatcher::longest(std::string_view text) const {
    const auto first = static_cast<unsigned char>(text.front());
    const Entry* low = entries_.data() + first_byte_[first];
    const Entry* high = entries_.data() + first_byte_[first + 1U];
    const Entry* match = nullptr;
    // All of [low, high) begin with the first `depth` bytes of the text.
    for (std::size_t depth = 1; low != high; ++depth) {
        if (low->spelling.size() == depth) match = low++;
        if (depth == text.size()) break;
        const auto next = static_cast<unsigned char>(text[depth]);
        const auto byte = [depth](const Entry& entry) { return byte_at(entry, depth); };
        low = std::ranges::lower_bound(low, high, next, {}, byte);
        high = std::ranges::upper_bound(low, high, next, {}, byte);
    }
    return match;
}

std::optional<SpellingMatcher::Match> SpellingMatcher::match_at_begin(std::string_view text) const {
    if (empty() || text.empty()) return std::nullopt;
    const Entry* entry = longest(text);
    return entry == nullptr ? std::nullopt : std::optional(Match{0, entry->spelling.size(), entry->id});
}

std::optional<SpellingMatcher::Match> SpellingMatcher::find(std::string_view text, std::size_t from) const {
    if (empty()) return std::nullopt;
    for (std::size_t begin = from; begin < text.size(); ++begin)
        if (const Entry* entry = longest(text.substr(begin))) return Match{begin, entry->spelling.size(), entry->id};
    return std::nullopt;
}

}  // namespace slipstream
