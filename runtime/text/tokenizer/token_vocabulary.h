// The tokens of a vocabulary by id: spelling, kind, and the bytes that each stands for in running text. Spellings and
// bytes lie in one arena; ids that nobody names are Unused with an empty spelling.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/token_id.h"
#include "runtime/text/tokenizer/tokenizer.h"

namespace slipstream {

class TokenVocabulary {
public:
    /// No more ids than this, and not more of them unnamed than kMaxGaps: a file of a few bytes must not ask for
    /// gigabytes.
    static constexpr std::int64_t kMaxTokens = std::int64_t{1} << 26;
    static constexpr std::int64_t kMaxGaps = std::int64_t{1} << 20;

    /// Sets or replaces a token. `name` is the file's; throws FormatError where the id is out of the bounds above.
    void set(std::int64_t id, std::string_view spelling, TokenKind kind, std::string_view name);
    /// What the token prints; the spelling itself where this is never called. `id` has been set.
    void set_bytes(TokenId id, std::string_view bytes);
    void set_kind(TokenId id, TokenKind kind) { tokens_[static_cast<std::size_t>(id)].kind = kind; }
    void reserve(std::size_t n_tokens, std::size_t n_bytes);

    [[nodiscard]] std::int64_t size() const { return std::ssize(tokens_); }
    [[nodiscard]] bool contains(TokenId id) const { return id >= 0 && id < size(); }
    // Of an id outside: empty, Unused.
    [[nodiscard]] std::string_view spelling(TokenId id) const;
    [[nodiscard]] std::string_view bytes(TokenId id) const;
    [[nodiscard]] TokenKind kind(TokenId id) const;

private:
    struct Token {
        std::size_t spelling_at = 0, bytes_at = 0;  // in arena_
        std::uint32_t spelling_length = 0, bytes_length = 0;
        TokenKind kind = TokenKind::Unused;
    };
    std::size_t keep(std::string_view text);

    std::vector<Token> tokens_;
    std::int64_t n_set_ = 0;  // calls of set()
    std::string arena_;
};

}  // namespace slipstream
