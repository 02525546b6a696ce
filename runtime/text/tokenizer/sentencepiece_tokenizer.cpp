#include "runtime/text/tokenizer/sentencepiece_tokenizer.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "kernels/base/interrupted.h"
#include "runtime/text/tokenizer/word_models.h"
#include "runtime/text/utf8.h"

namespace slipstream {

namespace {

/// Returns the bytes that a piece stands for in running text. `unk_surface` is what an unknown token prints.
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

/// Returns the user-defined pieces that normalising would change or join with other text, so that they must be found
/// before: all of them if the model has rules, those with spaces if it removes extra spaces.
std::vector<SpellingMatcher::Entry> user_defined_as_spelt(const SentencePieceModel& model) {
    std::vector<SpellingMatcher::Entry> entries;
    for (std::size_t i = 0; i < model.pieces.size(); ++i) {
        const SentencePiece& piece = model.pieces[i];
        const bool has_blanks = model.remove_extra_whitespaces && piece.text.find(' ') != std::string::npos;
        if (piece.kind == TokenKind::UserDefined && (!model.rules.empty() || has_blanks))
            entries.push_back({piece.text, static_cast<TokenId>(i)});
    }
    return entries;
}

/// Returns the segmenter of a unigram model. Scores are computed in float, as in the original: an unknown character has
/// the lowest score of a normal piece minus 10; a user-defined piece has a score with which it always wins.
UnigramSegmenter make_segmenter(const SentencePieceModel& model) {
    constexpr float unknown_penalty = 10.0F;
    float lowest = std::numeric_limits<float>::max();
    float highest = std::numeric_limits<float>::min();
    for (const SentencePiece& piece : model.pieces) {
        if (piece.kind != TokenKind::Normal) continue;
        lowest = std::min(lowest, piece.score);
        highest = std::max(highest, piece.score);
    }
    std::vector<UnigramSegmenter::Piece> pieces;
    for (std::size_t i = 0; i < model.pieces.size(); ++i) {
        const SentencePiece& piece = model.pieces[i];
        UnigramSegmenter::Piece entry{.text = piece.text, .score = piece.score, .id = static_cast<TokenId>(i)};
        if (piece.kind == TokenKind::Unused) entry.use = UnigramSegmenter::Piece::Use::Never;
        if (piece.kind == TokenKind::UserDefined)
            entry.score = static_cast<double>(static_cast<float>(piece.text.size()) * highest) - 0.1;
        const bool is_text =
            piece.kind == TokenKind::Normal || piece.kind == TokenKind::Unused || piece.kind == TokenKind::UserDefined;
        if (is_text) pieces.push_back(entry);
    }
    return UnigramSegmenter(std::move(pieces), lowest - unknown_penalty, UnigramSegmenter::Sums::Float);
}

std::vector<AddedToken> tokens_of(const SentencePieceModel& model, TokenKind kind,
                                  const std::vector<bool>& trusted_only) {
    std::vector<AddedToken> tokens;
    for (std::size_t i = 0; i < model.pieces.size(); ++i)
        if (model.pieces[i].kind == kind)
            tokens.push_back({.content = model.pieces[i].text,
                              .id = static_cast<TokenId>(i),
                              .special = kind == TokenKind::Control,
                              .trusted_only = kind == TokenKind::Control || trusted_only[i]});
    return tokens;
}

/// Returns the end of the word that begins at `begin`: the position of the next "▁" that follows another character, or
/// the end of the text.
std::size_t word_end(std::string_view text, std::size_t begin) {
    while (text.substr(begin).starts_with(kSpaceMark)) begin += kSpaceMark.size();
    return std::min(text.find(kSpaceMark, begin), text.size());
}

/// Returns `text` with each run of spaces replaced by one space and without spaces at both ends.
std::string without_extra_spaces(std::string_view text) {
    std::string result;
    result.reserve(text.size());
    for (const char c : text)
        if (c != ' ' || (!result.empty() && result.back() != ' ')) result += c;
    if (!result.empty() && result.back() == ' ') result.pop_back();
    return result;
}

}  // namespace

SentencePieceTokenizer::SentencePieceTokenizer(SentencePieceModel model)
    : model_(std::move(model)),
      trusted_only_(trusted_only_ids(model_.unk_id)),
      control_(tokens_of(model_, TokenKind::Control, trusted_only_)),
      user_defined_(tokens_of(model_, TokenKind::UserDefined, trusted_only_)),
      protected_(user_defined_as_spelt(model_)) {
    if (model_.algorithm == SentencePieceModel::Algorithm::Bpe)
        merger_.emplace(model_);
    else
        segmenter_.emplace(make_segmenter(model_));
    byte_ids_.fill(-1);
    token_bytes_.reserve(model_.pieces.size());
    for (const SentencePiece& piece : model_.pieces) {
        if (piece.kind == TokenKind::Byte) {
            TokenId& id = byte_ids_[byte_of_piece(piece.text).value()];
            if (id < 0) id = static_cast<TokenId>(token_bytes_.size());
        }
        token_bytes_.push_back(surface(piece, model_.unk_surface));
    }
}

TokenKind SentencePieceTokenizer::token_kind(TokenId id) const {
    return in_range(id) ? model_.pieces[id].kind : TokenKind::Unused;
}

std::string_view SentencePieceTokenizer::piece(TokenId id) const {
    return in_range(id) ? std::string_view(model_.pieces[id].text) : std::string_view();
}

std::string_view SentencePieceTokenizer::token_bytes(TokenId id) const {
    return in_range(id) ? std::string_view(token_bytes_[id]) : std::string_view();
}

std::vector<TokenId> SentencePieceTokenizer::encode(std::string_view text, SpecialTokens special,
                                                    const std::atomic<bool>* cancel) const {
    return encode_all(text, special, SaidBytes(), cancel);
}

std::vector<TokenId> SentencePieceTokenizer::encode_marked(std::string_view text, SaidBytes said,
                                                           const std::atomic<bool>* cancel) const {
    return encode_all(text, SpecialTokens::Parse, said, cancel);
}

std::vector<TokenId> SentencePieceTokenizer::encode_all(std::string_view text, SpecialTokens special, SaidBytes said,
                                                        const std::atomic<bool>* cancel) const {
    check_size(text);
    std::vector<TokenId> ids;
    Scratch scratch(cancel);
    control_.split(text, special, said, [&](const AddedTokenMatcher::Part& part) {
        const auto at = static_cast<std::size_t>(part.text.data() - text.data());
        if (part.id)
            ids.push_back(*part.id);
        else
            encode_text(part.text, said.from(at), at == 0 ? PieceStart::OfText : PieceStart::OfPart, scratch, ids);
    });
    return ids;
}

MarkedText SentencePieceTokenizer::normalise(std::string_view text, SaidBytes said,
                                             const std::atomic<bool>* cancel) const {
    if (!model_.rules.empty() || !protected_.empty() || said.any_in({0, text.size()}))
        return normalise_by_rules(text, said, cancel);
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
    // "▁" that the text itself contained at its end is removed as well, as in the original.
    while (model_.remove_extra_whitespaces && normalised.ends_with(space))
        normalised.erase(normalised.size() - space.size());
    return {.bytes = std::move(normalised), .said = {}};
}

/// Normalises from left to right: a user-defined piece stays as it is, else the longest rule that matches applies, else
/// the character stays. Spaces that rules produce count as spaces.
MarkedText SentencePieceTokenizer::normalise_by_rules(std::string_view text, SaidBytes said,
                                                      const std::atomic<bool>* cancel) const {
    struct Step {
        std::string_view result;
        std::size_t length;
    };
    const std::size_t size = text.size();
    const auto next = [&]() -> Step {
        if (const auto match = protected_.match_at_begin(text)) return {text.substr(0, match->length), match->length};
        if (const auto rule = model_.rules.match(text, PrecompiledCharsmap::Rule::Longest))
            return {rule->replacement, rule->length};
        const Utf8Step step = next_utf8(text);
        const std::size_t length = step.kind == Utf8Kind::Complete ? step.length : 1;
        return {text.substr(0, length), length};
    };
    const std::string_view space = model_.escape_whitespaces ? kSpaceMark : " ";
    while (model_.remove_extra_whitespaces && !text.empty()) {
        const Step step = next();
        if (step.result != " ") break;
        text.remove_prefix(step.length);
    }
    if (text.empty()) return {};
    std::string normalised(model_.add_dummy_prefix ? space : std::string_view());
    MarkCarrier marks(said);
    marks.replace({0, size - text.size()}, {0, normalised.size()});
    bool is_behind_space = model_.remove_extra_whitespaces;
    const std::size_t max_bytes = max_normalised_bytes(text.size());
    while (!text.empty()) {
        throw_if_cancelled(cancel);
        Step step = next();
        const std::size_t at = size - text.size();
        text.remove_prefix(step.length);
        while (is_behind_space && step.result.starts_with(' ')) step.result.remove_prefix(1);
        if (!step.result.empty()) is_behind_space = model_.remove_extra_whitespaces && step.result.ends_with(' ');
        const std::size_t begin = normalised.size();
        append_replaced(step.result, " ", space, normalised);
        marks.replace({at, at + step.length}, {begin, normalised.size()});
        check_growth(normalised.size(), max_bytes);
    }
    while (model_.remove_extra_whitespaces && normalised.ends_with(space))
        normalised.erase(normalised.size() - space.size());
    const std::size_t normalised_size = normalised.size();
    return {.bytes = std::move(normalised), .said = marks.take(size, normalised_size)};
}

void SentencePieceTokenizer::encode_text(std::string_view text, SaidBytes said, PieceStart start, Scratch& scratch,
                                         std::vector<TokenId>& out) const {
    const MarkedText marked = normalise(text, said, scratch.merger.cancel);
    std::string_view normalised = marked.bytes;
    said = SaidBytes(marked.said);
    const std::string_view space = model_.escape_whitespaces ? kSpaceMark : " ";
    // If the text itself has a space after a control token, as with Mistral's templates, no second space is put there.
    const bool has_blank = start == PieceStart::OfPart && text.starts_with(' ') && !model_.remove_extra_whitespaces;
    if (has_blank && model_.add_dummy_prefix && normalised.starts_with(space)) {
        normalised.remove_prefix(space.size());
        said = said.from(space.size());
    }
    const auto first = static_cast<std::ptrdiff_t>(out.size());
    if (merger_)
        encode_by_merging(normalised, said, scratch, out);
    else
        encode_by_score(normalised, said, scratch, out);
    // Consecutive unknown tokens become one.
    const auto both_unknown = [this](TokenId a, TokenId b) { return a == b && model_.unk_id == a; };
    out.erase(std::unique(out.begin() + first, out.end(), both_unknown), out.end());
}

void SentencePieceTokenizer::append_unknown(std::string_view bytes, std::vector<TokenId>& out) const {
    // validate() made sure that there is an unknown token if a byte has no piece.
    if (!append_byte_tokens(byte_ids_, bytes, out)) out.push_back(model_.unk_id.value());
}

template <typename Encode>
void SentencePieceTokenizer::encode_between(const AddedTokenMatcher::Part& part, bool is_said, const Encode& encode,
                                            std::vector<TokenId>& out) const {
    if (part.id) {
        out.push_back(*part.id);
        return;
    }
    encode_refusing(
        part.text, encode, [&](unsigned char byte) { append_unknown(std::string(1, static_cast<char>(byte)), out); },
        [&](TokenId id) { return is_said && trusted_only_[id]; }, out);
}

void SentencePieceTokenizer::encode_by_merging(std::string_view normalised, SaidBytes said, Scratch& scratch,
                                               std::vector<TokenId>& out) const {
    user_defined_.split(normalised, SpecialTokens::Parse, said, [&](const AddedTokenMatcher::Part& part) {
        const auto at = static_cast<std::size_t>(part.text.data() - normalised.data());
        encode_between(
            part, said.any_in({at, at + part.text.size()}),
            [&](std::string_view text) { encode_words(text, scratch, out); }, out);
    });
}

/// Encodes each different word only once per call; its ids are kept in scratch.words. The result is exact, since no
/// merge crosses the beginning of a word; if merges can, the whole text is encoded at once.
void SentencePieceTokenizer::encode_words(std::string_view normalised, Scratch& scratch,
                                          std::vector<TokenId>& out) const {
    if (!merger_->words_are_independent()) {
        merger_->encode(normalised, scratch.merger, out);
        return;
    }
    for (std::size_t begin = 0; begin < normalised.size();) {
        const std::size_t end = word_end(normalised, begin);
        const std::string_view word = normalised.substr(begin, end - begin);
        begin = end;
        throw_if_cancelled(scratch.merger.cancel);
        if (const auto known = scratch.words.find(word)) {
            out.insert(out.end(), known->begin(), known->end());
            continue;
        }
        const std::size_t first = out.size();
        merger_->encode(word, scratch.merger, out);
        scratch.words.remember(word, std::span(out).subspan(first));
    }
}

void SentencePieceTokenizer::encode_by_score(std::string_view normalised, SaidBytes said, Scratch& scratch,
                                             std::vector<TokenId>& out) const {
    if (append_segments(normalised, said, scratch, out)) return;
    // User-defined pieces that the template wrote are cut out first, so that they stay whole.
    user_defined_.split(normalised, SpecialTokens::Parse, said, [&](const AddedTokenMatcher::Part& part) {
        const auto at = static_cast<std::size_t>(part.text.data() - normalised.data());
        encode_between(
            part, said.any_in({at, at + part.text.size()}),
            [&](std::string_view text) { static_cast<void>(append_segments(text, SaidBytes(), scratch, out)); }, out);
    });
}

bool SentencePieceTokenizer::append_segments(std::string_view normalised, SaidBytes said, Scratch& scratch,
                                             std::vector<TokenId>& out) const {
    scratch.segments.clear();
    segmenter_->segment(normalised, scratch.segmenter, scratch.segments);
    std::size_t at = 0;
    for (const UnigramSegmenter::Segment& segment : scratch.segments) {
        const TokenId id = segment.id != UnigramSegmenter::kUnknown ? segment.id : model_.unk_id.value_or(0);
        if (trusted_only_[id] && said.any_in({at, at + segment.length})) return false;
        at += segment.length;
    }
    at = 0;
    for (const UnigramSegmenter::Segment& segment : scratch.segments) {
        if (segment.id == UnigramSegmenter::kUnknown)
            append_unknown(normalised.substr(at, segment.length), out);
        else
            out.push_back(segment.id);
        at += segment.length;
    }
    return true;
}

}  // namespace slipstream
