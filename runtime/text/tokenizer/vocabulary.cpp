#define XXH_INLINE_ALL
#include "runtime/text/tokenizer/vocabulary.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <limits>

#include "kernels/base/check.h"
#include "kernels/base/error.h"
#include "runtime/text/printable.h"
#include "runtime/text/tokenizer/byte_spellings.h"

namespace slipstream {

std::uint64_t hash_of(std::string_view text) {
    return XXH3_64bits(text.data(), text.size());
}

StringIndex::StringIndex(std::size_t n_strings) : slots_(std::bit_ceil(2 * n_strings + 2)), mask_(slots_.size() - 1) {}

std::size_t TokenVocabulary::keep(std::string_view text) {
    const std::size_t at = arena_.size();
    arena_ += text;
    return at;
}

void TokenVocabulary::reserve(std::size_t n_tokens, std::size_t n_bytes) {
    tokens_.reserve(std::min(n_tokens, static_cast<std::size_t>(kMaxTokens)));
    arena_.reserve(n_bytes);
}

void TokenVocabulary::set(std::int64_t id, std::string_view spelling, TokenKind kind, std::string_view name) {
    if (id < 0 || id >= std::min(kMaxTokens, n_set_ + kMaxGaps))
        throw FormatError(fmt::format("{}: token '{}' has id {}, where there are {} others; the file is broken", name,
                                      printable(spelling), id, n_set_));
    if (spelling.size() > std::numeric_limits<std::uint32_t>::max())
        throw FormatError(fmt::format("{}: token {} has {} bytes", name, id, spelling.size()));
    if (id >= size()) tokens_.resize(static_cast<std::size_t>(id) + 1);
    ++n_set_;
    Token& token = tokens_[id];
    token.spelling_at = token.bytes_at = keep(spelling);
    token.spelling_length = token.bytes_length = static_cast<std::uint32_t>(spelling.size());
    token.kind = kind;
}

void TokenVocabulary::set_bytes(TokenId id, std::string_view bytes) {
    CHECK(contains(id), "id {} of {}", id, size());
    Token& token = tokens_[id];
    if (bytes == this->bytes(id)) return;
    token.bytes_at = keep(bytes);
    token.bytes_length = static_cast<std::uint32_t>(bytes.size());
}

std::string_view TokenVocabulary::spelling(TokenId id) const {
    if (!contains(id)) return {};
    const Token& token = tokens_[id];
    return std::string_view(arena_).substr(token.spelling_at, token.spelling_length);
}

std::string_view TokenVocabulary::bytes(TokenId id) const {
    if (!contains(id)) return {};
    const Token& token = tokens_[id];
    return std::string_view(arena_).substr(token.bytes_at, token.bytes_length);
}

TokenKind TokenVocabulary::kind(TokenId id) const {
    return contains(id) ? tokens_[id].kind : TokenKind::Unused;
}

TokenId MergeReader::find(std::string_view spelling) const {
    const TokenId id = vocabulary_.find(spelling);
    if (id < 0)
        throw FormatError(
            fmt::format("{}: merge {} names '{}', which is not a token", name_, rank_, printable(spelling)));
    return id;
}

void MergeReader::add(std::string_view left, std::string_view right) {
    joined_.assign(left).append(right);
    table_.set(find(left), find(right), {rank_, find(joined_)});
    ++rank_;
}

void MergeReader::add(std::string_view line) {
    if (line.starts_with("#version")) return;
    const std::size_t space = line.find(' ');
    if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos)
        throw FormatError(fmt::format("{}: merge {} is '{}' and not two tokens", name_, rank_, printable(line)));
    add(line.substr(0, space), line.substr(space + 1));
}

void set_bytes_by_alphabet(TokenVocabulary& vocabulary) {
    std::string bytes;
    for (TokenId id = 0; id < vocabulary.size(); ++id) {
        bytes.clear();
        if (append_from_alphabet(vocabulary.spelling(id), bytes)) vocabulary.set_bytes(id, bytes);
    }
}

std::optional<std::span<const TokenId>> WordCache::find(std::string_view word) {
    if (word.size() > kMaxWordBytes) return std::nullopt;
    if (slots_.empty()) slots_.resize(kFirstSlots);
    asked_hash_ = hash_of(word);
    std::size_t at = asked_hash_ & (slots_.size() - 1);
    for (; slots_[at] != 0; at = (at + 1) & (slots_.size() - 1)) {
        const Entry& entry = entries_[slots_[at] - 1];
        if (entry.hash == asked_hash_ && word_of(entry) == word)
            return std::span(ids_).subspan(entry.ids_at, entry.n_ids);
    }
    asked_slot_ = at;
    return std::nullopt;
}

void WordCache::remember(std::string_view word, std::span<const TokenId> ids) {
    if (word.size() > kMaxWordBytes) return;
    entries_.push_back({asked_hash_, static_cast<std::uint32_t>(words_.size()), static_cast<std::uint32_t>(ids_.size()),
                        static_cast<std::uint16_t>(word.size()), static_cast<std::uint16_t>(ids.size())});
    words_ += word;
    ids_.insert(ids_.end(), ids.begin(), ids.end());
    slots_[asked_slot_] = static_cast<std::uint32_t>(entries_.size());
    if (entries_.size() >= kMaxWords) {
        entries_.clear();
        words_.clear();
        ids_.clear();
        slots_.assign(slots_.size(), 0);
    } else if (2 * entries_.size() >= slots_.size()) {
        grow();
    }
}

void WordCache::grow() {
    slots_.assign(4 * slots_.size(), 0);
    for (std::size_t i = 0; i < entries_.size(); ++i) {
        std::size_t at = entries_[i].hash & (slots_.size() - 1);
        while (slots_[at] != 0) at = (at + 1) & (slots_.size() - 1);
        slots_[at] = static_cast<std::uint32_t>(i + 1);
    }
}

}  // namespace slipstream
