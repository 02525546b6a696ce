#include "runtime/text/tokenizer/character_bpe.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "runtime/text/utf8.h"

namespace slipstream {

std::array<TokenId, 256> byte_fallback_ids(const TokenVocabulary& vocabulary, const StringIndex& index) {
    std::array<TokenId, 256> ids{};
    for (std::size_t byte = 0; byte < 256; ++byte)
        ids[byte] = index.find(fmt::format("<0x{:02X}>", byte), [&](TokenId id) { return vocabulary.spelling(id); });
    return ids;
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
    if (options_.ignore_merges) {
        if (const TokenId whole = find(word); whole >= 0) {
            out.push_back(whole);
            return;
        }
    }
    std::vector<TokenId>& symbols = scratch.symbols;
    symbols.clear();
    bool fuses = false;  // the last symbol is the unknown token, which the next unknown character is part of
    for (std::size_t at = 0; at < word.size();) {
        const std::string_view character = word.substr(at, next_utf8(word.substr(at)).length);
        at += character.size();
        if (const TokenId id = find(character); id >= 0) {
            symbols.push_back(id);
            fuses = false;
            continue;
        }
        const auto byte_id = [this](char c) { return byte_ids_[static_cast<unsigned char>(c)]; };
        if (std::ranges::all_of(character, [&](char c) { return byte_id(c) >= 0; })) {
            for (const char c : character) symbols.push_back(byte_id(c));
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

}  // namespace slipstream
