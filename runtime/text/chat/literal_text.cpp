#include "runtime/text/chat/literal_text.h"

#include <algorithm>
#include <utility>

#include "kernels/base/error.h"
#include "runtime/text/tokenizer/tokenizer_settings.h"
#include "runtime/text/utf8.h"

namespace slipstream {

namespace {

// Linear A: letters that print, that have no case, that no normalisation touches and that nobody writes.
constexpr char32_t kFirstMark = U'\U00010600';
constexpr char32_t kLastMark = U'\U00010736';

std::vector<SpellingMatcher::Entry> control_spellings(const Tokenizer& tokenizer) {
    std::vector<SpellingMatcher::Entry> entries;
    for (TokenId id = 0; id < tokenizer.vocab_size(); ++id)
        if (const TokenKind kind = tokenizer.token_kind(id);
            kind == TokenKind::Control || (kind == TokenKind::UserDefined && is_turn_mark(tokenizer.piece(id))))
            entries.push_back({std::string(tokenizer.piece(id)), id});
    return entries;
}

}  // namespace

LiteralMarker::LiteralMarker(const Tokenizer& tokenizer) : spellings_(control_spellings(tokenizer)) {}

std::optional<std::string_view> LiteralMarker::spelt_in_both(std::string_view text,
                                                             std::span<const std::string_view> messages) const {
    std::size_t from = 0;
    while (const auto match = spellings_.find(text, from)) {
        from = match->begin + 1;
        const std::string_view spelling = text.substr(match->begin, match->length);
        const auto holds = [&](std::string_view message) { return message.find(spelling) != message.npos; };
        if (std::ranges::any_of(messages, holds)) return spelling;
    }
    return std::nullopt;
}

std::string LiteralMarker::marked(std::string_view text, std::string_view mark) const {
    std::string result;
    std::size_t done = 0;
    while (const auto match = spellings_.find(text, done)) {
        result.append(text.substr(done, match->begin - done)).append(mark);
        result += text[match->begin];
        done = match->begin + 1;
    }
    return result.append(text.substr(done));
}

std::string unused_mark(std::span<const std::string_view> texts) {
    for (char32_t point = kFirstMark; point <= kLastMark; ++point) {
        std::string mark;
        append_utf8(point, mark);
        if (std::ranges::none_of(texts, [&](std::string_view text) { return text.find(mark) != text.npos; }))
            return mark;
    }
    throw RequestError(
        "the conversation spells control tokens and uses every letter of Linear A, one of which would have to mark "
        "them; leave out either");
}

PromptText without_marks(std::string_view text, std::string_view mark) {
    PromptText result;
    for (std::size_t found = text.find(mark); found != std::string_view::npos; found = text.find(mark)) {
        result.text.append(text.substr(0, found));
        text.remove_prefix(found + mark.size());
        result.literal_at.push_back(result.text.size());
    }
    result.text.append(text);
    return result;
}

}  // namespace slipstream
