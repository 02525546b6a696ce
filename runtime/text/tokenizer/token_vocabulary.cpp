#include "runtime/text/tokenizer/token_vocabulary.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "kernels/base/check.h"
#include "kernels/base/error.h"
#include "runtime/text/printable.h"

namespace slipstream {

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
    Token& token = tokens_[static_cast<std::size_t>(id)];
    token.spelling_at = token.bytes_at = keep(spelling);
    token.spelling_length = token.bytes_length = static_cast<std::uint32_t>(spelling.size());
    token.kind = kind;
}

void TokenVocabulary::set_bytes(TokenId id, std::string_view bytes) {
    CHECK(contains(id), "id {} of {}", id, size());
    Token& token = tokens_[static_cast<std::size_t>(id)];
    if (bytes == this->bytes(id)) return;
    token.bytes_at = keep(bytes);
    token.bytes_length = static_cast<std::uint32_t>(bytes.size());
}

std::string_view TokenVocabulary::spelling(TokenId id) const {
    if (!contains(id)) return {};
    const Token& token = tokens_[static_cast<std::size_t>(id)];
    return std::string_view(arena_).substr(token.spelling_at, token.spelling_length);
}

std::string_view TokenVocabulary::bytes(TokenId id) const {
    if (!contains(id)) return {};
    const Token& token = tokens_[static_cast<std::size_t>(id)];
    return std::string_view(arena_).substr(token.bytes_at, token.bytes_length);
}

TokenKind TokenVocabulary::kind(TokenId id) const {
    return contains(id) ? tokens_[static_cast<std::size_t>(id)].kind : TokenKind::Unused;
}

}  // namespace slipstream
