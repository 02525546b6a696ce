#include "runtime/text/tokenizer/token_matchers.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "kernels/base/error.h"
#include "runtime/text/tokenizer/pattern_dialect.h"
#include "runtime/text/tokenizer/text_pattern.h"
#include "runtime/text/utf8.h"

namespace slipstream {

namespace {

unsigned char byte_at(const SpellingMatcher::Entry& entry, std::size_t index) {
    return static_cast<unsigned char>(entry.spelling[index]);
}

}  // namespace

SpellingMatcher::SpellingMatcher(std::vector<Entry> entries) : entries_(std::move(entries)) {
    std::erase_if(entries_, [](const Entry& entry) { return entry.spelling.empty(); });
    std::ranges::stable_sort(entries_, {}, &Entry::spelling);  // std::string compares bytes as unsigned
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
    // All spellings in [low, high) begin with the first `depth` bytes of the text.
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

namespace {

std::vector<SpellingMatcher::Entry> spellings_of(const std::vector<AddedToken>& tokens) {
    std::vector<SpellingMatcher::Entry> entries;
    entries.reserve(tokens.size());
    for (const AddedToken& token : tokens) entries.push_back({token.content, token.id});
    return entries;
}

// Limits the content of an added token in bytes, since a search costs up to that many steps at each position that
// begins like the token.
constexpr std::size_t kMaxTokenBytes = 1024;

}  // namespace

void check_added_token(const AddedToken& token, std::string_view name) {
    if (token.content.size() > kMaxTokenBytes)
        throw FormatError(
            fmt::format("{}: added token {} is {} bytes long, where {} are the most; this is not a tokenizer", name,
                        token.id, token.content.size(), kMaxTokenBytes));
}

AddedTokenMatcher::AddedTokenMatcher(std::vector<AddedToken> tokens) : matcher_(spellings_of(tokens)) {
    const bool any_single = std::ranges::any_of(tokens, [](const AddedToken& token) { return token.single_word; });
    if (any_single) word_character_.emplace(to_pcre2("\\A\\w", PatternDialect::Rust, "added tokens"), "added tokens");
    for (AddedToken& token : tokens) {
        const TokenId id = token.id;
        rules_.emplace(id, std::move(token));
    }
}

std::optional<SpellingMatcher::Match> AddedTokenMatcher::find(std::string_view text, std::size_t from,
                                                              SaidBytes said) const {
    std::optional<SpellingMatcher::Match> match = matcher_.find(text, from);
    while (match && said.any_in({match->begin, match->begin + match->length}) && rules_.at(match->id).trusted_only) {
        const std::size_t begin = match->begin;
        match = matcher_.match_at_begin(text.substr(begin, match->length - 1));  // a shorter token at the same position
        if (match)
            match->begin = begin;
        else
            match = matcher_.find(text, begin + 1);
    }
    return match;
}

bool AddedTokenMatcher::is_word_character(std::string_view text) const {
    TextPattern::Search search(*word_character_);
    const std::string older = with_older_characters(text.substr(0, next_utf8(text).length));
    search.begin(older);
    return search.next().has_value();
}

std::optional<AddedTokenMatcher::Place> AddedTokenMatcher::placed(std::string_view text,
                                                                  const SpellingMatcher::Match& match, std::size_t done,
                                                                  SpecialTokens special) const {
    const AddedToken& token = rules_.at(match.id);
    if (token.special && special == SpecialTokens::AsText) return std::nullopt;
    Place place{match.begin, match.begin + match.length};
    const std::string_view left = text.substr(0, match.begin);
    const std::string_view right = text.substr(place.end);
    if (token.single_word && ((!left.empty() && is_word_character(left.substr(last_character(left)))) ||
                              (!right.empty() && is_word_character(right))))
        return std::nullopt;
    if (token.lstrip) {  // white space that belongs to the token before is not taken
        place.begin = std::max(place.begin, done);
        while (place.begin > done) {
            const std::size_t character = last_character(text.substr(0, place.begin));
            if (!is_white_space(code_point(text.substr(character)))) break;
            place.begin = std::max(character, done);
        }
    }
    if (token.rstrip)
        while (place.end < text.size() && is_white_space(code_point(text.substr(place.end))))
            place.end += next_utf8(text.substr(place.end)).length;
    return place;
}

}  // namespace slipstream
