#include "runtime/tokenizer/spelling_matcher.h"

#include <algorithm>
#include <utility>

namespace slipstream {

void SpellingMatcher::add(std::string spelling, TokenId id) {
    if (spelling.empty()) return;
    auto& entries = by_first_byte_[static_cast<unsigned char>(spelling.front())];
    // Behind those that are as long: of equal spellings the earlier one is met first.
    const auto place =
        std::ranges::find_if(entries, [&](const Entry& entry) { return entry.spelling.size() < spelling.size(); });
    entries.insert(place, {std::move(spelling), id});
    empty_ = false;
}

std::optional<SpellingMatcher::Match> SpellingMatcher::find(std::string_view text, std::size_t from) const {
    if (empty_) return std::nullopt;
    for (std::size_t begin = from; begin < text.size(); ++begin) {
        const std::string_view rest = text.substr(begin);
        for (const Entry& entry : by_first_byte_[static_cast<unsigned char>(rest.front())])
            if (rest.starts_with(entry.spelling)) return Match{begin, entry.spelling.size(), entry.id};
    }
    return std::nullopt;
}

}  // namespace slipstream
