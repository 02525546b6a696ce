#include "runtime/text/tokenizer/added_token_matcher.h"

#include <algorithm>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "runtime/text/tokenizer/newer_characters.h"
#include "runtime/text/tokenizer/pattern_dialect.h"
#include "runtime/text/utf8.h"

namespace slipstream {

namespace {

std::vector<SpellingMatcher::Entry> spellings_of(const std::vector<AddedToken>& tokens) {
    std::vector<SpellingMatcher::Entry> entries;
    entries.reserve(tokens.size());
    for (const AddedToken& token : tokens) entries.push_back({token.content, token.id});
    return entries;
}

/// Where the last character of `text`, not empty, begins.
std::size_t last_character(std::string_view text) {
    std::size_t begin = text.size() - 1;
    while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xc0U) == 0x80) --begin;
    return begin;
}

constexpr std::size_t kMaxTokenBytes = 1024;

}  // namespace

void check_added_token(const AddedToken& token, std::string_view name) {
    if (token.content.size() > kMaxTokenBytes)
        throw FormatError(
            fmt::format("{}: added token {} is {} bytes long, where {} are the most; this is no tokenizer", name,
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
    if (token.lstrip) {  // not what a token before has taken
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
