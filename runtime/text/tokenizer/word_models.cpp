#include "runtime/text/tokenizer/word_models.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "kernels/base/error.h"
#include "runtime/text/utf8.h"

namespace slipstream {

ByteBpe::ByteBpe(const TokenVocabulary& vocabulary, MergeTable merges, WholeWords whole_words,
                 std::optional<TokenId> unk)
    : vocabulary_(vocabulary), merger_(std::move(merges)), unk_(unk) {
    byte_ids_.fill(-1);
    const auto bytes_of = [&vocabulary](TokenId id) { return vocabulary.bytes(id); };
    if (whole_words == WholeWords::TakeFromVocabulary)
        words_ = StringIndex(static_cast<std::size_t>(vocabulary.size()));
    for (TokenId id = 0; id < vocabulary.size(); ++id) {
        const std::string_view bytes = vocabulary.bytes(id);
        if (vocabulary.kind(id) != TokenKind::Normal || bytes.empty()) continue;
        if (bytes.size() == 1) {
            TokenId& byte_id = byte_ids_[static_cast<unsigned char>(bytes.front())];
            if (byte_id < 0) byte_id = id;
        }
        if (whole_words == WholeWords::TakeFromVocabulary) words_.insert(bytes, id, bytes_of);
    }
}

void ByteBpe::encode(std::string_view word, WordScratch& scratch, std::vector<TokenId>& out) const {
    const TokenId whole = words_.find(word, [this](TokenId id) { return vocabulary_.bytes(id); });
    if (whole >= 0) {
        out.push_back(whole);
        return;
    }
    scratch.symbols.resize(word.size());
    TokenId all = 0;  // bitwise or of all ids: negative if any byte has no token
    for (std::size_t i = 0; i < word.size(); ++i)
        all |= scratch.symbols[i] = byte_ids_[static_cast<unsigned char>(word[i])];
    if (all < 0) {
        scratch.symbols.clear();
        for (const char c : word) encode_byte(static_cast<unsigned char>(c), scratch.symbols);
    }
    merger_.merge(scratch.symbols, scratch.merger, out);
}

void ByteBpe::encode_byte(unsigned char byte, std::vector<TokenId>& out) const {
    const TokenId id = byte_ids_[byte];
    if (id >= 0)
        out.push_back(id);
    else if (unk_ && vocabulary_.kind(*unk_) != TokenKind::Control)
        out.push_back(*unk_);
}

std::array<TokenId, 256> byte_fallback_ids(const TokenVocabulary& vocabulary, const StringIndex& index) {
    std::array<TokenId, 256> ids{};
    for (std::size_t byte = 0; byte < 256; ++byte)
        ids[byte] = index.find(fmt::format("<0x{:02X}>", byte), [&](TokenId id) { return vocabulary.spelling(id); });
    return ids;
}

bool append_byte_tokens(const std::array<TokenId, 256>& byte_ids, std::string_view text, std::vector<TokenId>& out) {
    const auto id = [&](char c) { return byte_ids[static_cast<unsigned char>(c)]; };
    if (std::ranges::any_of(text, [&](char c) { return id(c) < 0; })) return false;
    for (const char c : text) out.push_back(id(c));
    return true;
}

CharacterBpe::CharacterBpe(const TokenVocabulary& vocabulary, StringIndex index, MergeTable merges,
                           const Options& options, std::string_view name)
    : vocabulary_(vocabulary), index_(std::move(index)), merger_(std::move(merges)), options_(options) {
    byte_ids_.fill(-1);
    if (options_.byte_fallback) byte_ids_ = byte_fallback_ids(vocabulary_, index_);
    if (!options_.unk && std::ranges::find(byte_ids_, -1) != byte_ids_.end())
        throw FormatError(
            fmt::format("{}: neither an unknown token nor one for every byte; some texts have no ids", name));
}

bool CharacterBpe::merges_across(const TokenVocabulary& vocabulary, std::string_view mark) {
    for (TokenId id = 0; id < vocabulary.size(); ++id) {
        std::string_view spelling = vocabulary.spelling(id);
        if (vocabulary.kind(id) != TokenKind::Normal) continue;
        while (spelling.starts_with(mark)) spelling.remove_prefix(mark.size());
        if (spelling.find(mark) != std::string_view::npos) return true;
    }
    return false;
}

void CharacterBpe::encode(std::string_view word, WordScratch& scratch, std::vector<TokenId>& out) const {
    if (options_.ignore_merges || (options_.whole_newlines && word.find_first_not_of('\n') == std::string_view::npos)) {
        if (const TokenId whole = find(word); whole >= 0) {
            out.push_back(whole);
            return;
        }
    }
    std::vector<TokenId>& symbols = scratch.symbols;
    symbols.clear();
    // True if the last symbol is an unknown token that also stands for the next character if that one is unknown.
    bool fuses = false;
    for (std::size_t at = 0; at < word.size();) {
        const std::string_view character = word.substr(at, next_utf8(word.substr(at)).length);
        at += character.size();
        if (const TokenId id = find(character); id >= 0) {
            symbols.push_back(id);
            fuses = false;
            continue;
        }
        if (append_byte_tokens(byte_ids_, character, symbols)) {
            fuses = false;
        } else if (!fuses) {
            symbols.push_back(options_.unk.value());
            fuses = options_.fuse_unk;
        }
    }
    merger_.merge(symbols, scratch.merger, out);
}

void CharacterBpe::encode_byte(unsigned char byte, std::vector<TokenId>& out) const {
    out.push_back(byte_ids_[byte] >= 0 ? byte_ids_[byte] : options_.unk.value());
}

namespace {

// An unknown character scores this much (a difference of natural logarithms) less than the worst piece, as in the
// original program.
constexpr double kUnknownPenalty = 10.0;

std::vector<UnigramSegmenter::Piece> pieces_of(const TokenVocabulary& vocabulary, const std::vector<double>& scores) {
    std::vector<UnigramSegmenter::Piece> pieces;
    pieces.reserve(scores.size());
    for (std::size_t id = 0; id < scores.size(); ++id) {
        const std::string_view text = vocabulary.spelling(static_cast<TokenId>(id));
        if (!text.empty()) pieces.push_back({.text = text, .score = scores[id], .id = static_cast<TokenId>(id)});
    }
    return pieces;
}

double lowest(const std::vector<double>& scores) {
    return scores.empty() ? 0.0 : *std::ranges::min_element(scores);
}

}  // namespace

UnigramWords::UnigramWords(const TokenVocabulary& vocabulary, StringIndex index, const std::vector<double>& scores,
                           const Options& options, std::string_view name)
    : vocabulary_(vocabulary),
      index_(std::move(index)),
      segmenter_(pieces_of(vocabulary, scores), lowest(scores) - kUnknownPenalty, UnigramSegmenter::Sums::Double),
      options_(options) {
    byte_ids_.fill(-1);
    if (options_.byte_fallback) byte_ids_ = byte_fallback_ids(vocabulary_, index_);
    if (!options_.unk)
        throw FormatError(fmt::format("{}: the unigram model has no unknown token; some texts have no ids", name));
}

void UnigramWords::encode(std::string_view word, WordScratch& scratch, std::vector<TokenId>& out) const {
    scratch.segments.clear();
    segmenter_.segment(word, scratch.segmenter, scratch.segments);
    std::size_t at = 0, unknown_begin = 0;
    for (const UnigramSegmenter::Segment& segment : scratch.segments) {
        // The unknown token's own spelling counts as unknown, as in the original program.
        if (segment.id != UnigramSegmenter::kUnknown && segment.id != options_.unk) {
            encode_unknown(word.substr(unknown_begin, at - unknown_begin), out);
            out.push_back(segment.id);
            unknown_begin = at + segment.length;
        }
        at += segment.length;
    }
    encode_unknown(word.substr(unknown_begin), out);
}

void UnigramWords::encode_unknown(std::string_view run, std::vector<TokenId>& out) const {
    if (run.empty()) return;
    if (const TokenId id = index_.find(run, [this](TokenId other) { return vocabulary_.spelling(other); }); id >= 0) {
        out.push_back(id);
        return;
    }
    if (!append_byte_tokens(byte_ids_, run, out)) out.push_back(*options_.unk);
}

void UnigramWords::encode_byte(unsigned char byte, std::vector<TokenId>& out) const {
    out.push_back(byte_ids_[byte] >= 0 ? byte_ids_[byte] : *options_.unk);
}

}  // namespace slipstream
