#include "runtime/tokenizer/sentencepiece_bpe.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "kernels/base/error.h"

namespace slipstream {

namespace {

constexpr std::string_view kSpaceMark = "\xe2\x96\x81";      // "▁"
constexpr std::size_t kMaxTextBytes = std::size_t{1} << 29;  // normalised, three times as much still fits 31 bits

void append_replaced(std::string_view text, std::string_view from, std::string_view to, std::string& out) {
    for (std::size_t found = text.find(from); found != std::string_view::npos; found = text.find(from)) {
        out.append(text.substr(0, found)).append(to);
        text.remove_prefix(found + from.size());
    }
    out.append(text);
}

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
    std::string result;
    append_replaced(text, from, to, result);
    return result;
}

/// The bytes that a piece stands for in running text.
std::string surface(const SentencePiece& piece, const std::string& unk_surface) {
    switch (piece.kind) {
        case TokenKind::Control:
            return "";
        case TokenKind::Unknown:
            return unk_surface;
        case TokenKind::Byte:
            return std::string(1, static_cast<char>(byte_of_piece(piece.text).value()));
        case TokenKind::Normal:
        case TokenKind::UserDefined:
        case TokenKind::Unused:
            return replaced(piece.text, kSpaceMark, " ");
    }
    return "";
}

/// The pieces of `kind`, as they stand in the text where they are looked for.
std::vector<SpellingMatcher::Entry> spellings_of(const SentencePieceModel& model, TokenKind kind) {
    // Some writers spell the spaces of user-defined pieces as spaces, some as marks; normalised text has one kind.
    const bool marks = kind == TokenKind::UserDefined && model.escape_whitespaces;
    std::vector<SpellingMatcher::Entry> entries;
    for (std::size_t i = 0; i < model.pieces.size(); ++i) {
        const SentencePiece& piece = model.pieces[i];
        if (piece.kind == kind)
            entries.push_back({marks ? replaced(piece.text, " ", kSpaceMark) : piece.text, static_cast<TokenId>(i)});
    }
    return entries;
}

/// End of the word that begins at `begin`: the next space mark that follows another character.
std::size_t word_end(std::string_view text, std::size_t begin) {
    while (text.substr(begin).starts_with(kSpaceMark)) begin += kSpaceMark.size();
    return std::min(text.find(kSpaceMark, begin), text.size());
}

/// One space for a run of them, none at either end.
std::string without_extra_spaces(std::string_view text) {
    std::string result;
    result.reserve(text.size());
    for (const char c : text)
        if (c != ' ' || (!result.empty() && result.back() != ' ')) result += c;
    if (!result.empty() && result.back() == ' ') result.pop_back();
    return result;
}

}  // namespace

SentencePieceBpe::SentencePieceBpe(SentencePieceModel model)
    : model_(std::move(model)),
      merger_(model_),
      control_(spellings_of(model_, TokenKind::Control)),
      user_defined_(spellings_of(model_, TokenKind::UserDefined)) {
    token_bytes_.reserve(model_.pieces.size());
    for (const SentencePiece& piece : model_.pieces) token_bytes_.push_back(surface(piece, model_.unk_surface));
}

TokenKind SentencePieceBpe::token_kind(TokenId id) const {
    return in_range(id) ? model_.pieces[static_cast<std::size_t>(id)].kind : TokenKind::Unused;
}

std::string_view SentencePieceBpe::piece(TokenId id) const {
    return in_range(id) ? std::string_view(model_.pieces[static_cast<std::size_t>(id)].text) : std::string_view();
}

std::string_view SentencePieceBpe::token_bytes(TokenId id) const {
    return in_range(id) ? std::string_view(token_bytes_[static_cast<std::size_t>(id)]) : std::string_view();
}

std::vector<TokenId> SentencePieceBpe::encode(std::string_view text, SpecialTokens special) const {
    if (text.size() > kMaxTextBytes)
        throw RequestError(
            fmt::format("a text of {} bytes is to be tokenized at once; split it into parts of at most {} bytes",
                        text.size(), kMaxTextBytes));
    std::vector<TokenId> ids;
    std::size_t begin = 0;
    while (special == SpecialTokens::Parse) {
        const auto match = control_.find(text, begin);
        if (!match) break;
        encode_text(text.substr(begin, match->begin - begin), ids);
        ids.push_back(match->id);
        begin = match->begin + match->length;
    }
    encode_text(text.substr(begin), ids);
    return ids;
}

std::string SentencePieceBpe::normalise(std::string_view text) const {
    std::string tidy;
    if (model_.remove_extra_whitespaces) {
        tidy = without_extra_spaces(text);
        text = tidy;
    }
    if (text.empty()) return {};
    const std::string_view space = model_.escape_whitespaces ? kSpaceMark : " ";
    std::string normalised(model_.add_dummy_prefix ? space : std::string_view());
    normalised.reserve(text.size() + text.size() / 2);
    append_replaced(text, " ", space, normalised);
    // Space marks that the text itself held at its end go as well, as in the original.
    while (model_.remove_extra_whitespaces && normalised.ends_with(space))
        normalised.erase(normalised.size() - space.size());
    return normalised;
}

void SentencePieceBpe::encode_text(std::string_view text, std::vector<TokenId>& out) const {
    const std::string normalised = normalise(text);
    const auto first = static_cast<std::ptrdiff_t>(out.size());
    BpeMerger::Scratch scratch;
    std::size_t begin = 0;
    while (const auto match = user_defined_.find(normalised, begin)) {
        encode_words(std::string_view(normalised).substr(begin, match->begin - begin), scratch, out);
        out.push_back(match->id);
        begin = match->begin + match->length;
    }
    encode_words(std::string_view(normalised).substr(begin), scratch, out);
    // A run of unknown characters is one unknown token.
    const auto both_unknown = [this](TokenId a, TokenId b) { return a == b && model_.unk_id == a; };
    out.erase(std::unique(out.begin() + first, out.end(), both_unknown), out.end());
}

/// Words repeat: each is merged once a call, then copied. Exact, because no merge crosses the beginning of a word.
void SentencePieceBpe::encode_words(std::string_view normalised, BpeMerger::Scratch& scratch,
                                    std::vector<TokenId>& out) const {
    if (!merger_.words_are_independent()) {
        merger_.encode(normalised, scratch, out);
        return;
    }
    constexpr std::size_t max_cached_words = std::size_t{1} << 16;
    constexpr std::size_t max_cached_bytes = 64;  // longer words hardly repeat
    std::unordered_map<std::string_view, std::pair<std::size_t, std::size_t>>
        seen;  // word -> where its ids lie in `out`
    for (std::size_t begin = 0; begin < normalised.size();) {
        const std::size_t end = word_end(normalised, begin);
        const std::string_view word = normalised.substr(begin, end - begin);
        begin = end;
        if (word.size() > max_cached_bytes) {
            merger_.encode(word, scratch, out);
            continue;
        }
        const auto [entry, is_first] = seen.try_emplace(word, out.size(), 0);
        auto& [place, count] = entry->second;
        if (is_first) {
            merger_.encode(word, scratch, out);
            count = out.size() - place;
            if (seen.size() == max_cached_words) seen.clear();
            continue;
        }
        for (std::size_t i = 0; i < count; ++i) out.push_back(out[place + i]);
    }
}

}  // namespace slipstream
