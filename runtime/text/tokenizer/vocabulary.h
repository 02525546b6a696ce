// Strings and ids: the index of strings, the tokens of a vocabulary, a vocabulary that is being read, and the words
// that were encoded before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/indexed.h"
#include "runtime/text/token_id.h"
#include "runtime/text/tokenizer/merging.h"
#include "runtime/text/tokenizer/tokenizer.h"

namespace slipstream {

// From strings to ids: an open-addressing hash table that keeps hashes and ids, while the strings stay with their
// owner. Built in one go for a known number of strings; a look-up costs one hash and, nearly always, one comparison.

/// A 64-bit hash of short strings.
[[nodiscard]] std::uint64_t hash_of(std::string_view text);

class StringIndex {
public:
    StringIndex() = default;
    explicit StringIndex(std::size_t n_strings);

    /// The id of `text`, or -1. `spelling(id)` gives the string of an id.
    template <typename Spelling>
    [[nodiscard]] TokenId find(std::string_view text, const Spelling& spelling) const {
        if (slots_.empty()) return -1;
        const std::uint64_t hash = hash_of(text);
        for (std::size_t at = hash & mask_; slots_[at].id >= 0; at = (at + 1) & mask_)
            if (slots_[at].tag == tag_of(hash) && spelling(slots_[at].id) == text) return slots_[at].id;
        return -1;
    }
    /// Adds a string, unless an equal one is there: its id is returned then, else -1. Not more strings than announced.
    template <typename Spelling>
    TokenId insert(std::string_view text, TokenId id, const Spelling& spelling) {
        const std::uint64_t hash = hash_of(text);
        std::size_t at = hash & mask_;
        for (; slots_[at].id >= 0; at = (at + 1) & mask_)
            if (slots_[at].tag == tag_of(hash) && spelling(slots_[at].id) == text) return slots_[at].id;
        slots_[at] = {tag_of(hash), id};
        return -1;
    }

private:
    struct Slot {
        std::uint32_t tag = 0;
        TokenId id = -1;
    };
    static std::uint32_t tag_of(std::uint64_t hash) { return static_cast<std::uint32_t>(hash >> 32); }

    std::vector<Slot> slots_;  // a power of two, at most half full
    std::size_t mask_ = 0;
};

// The tokens of a vocabulary by id: spelling, kind, and the bytes that each stands for in running text. Spellings and
// bytes lie in one arena; ids that nobody names are Unused with an empty spelling.

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
    void set_kind(TokenId id, TokenKind kind) { tokens_[id].kind = kind; }
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

    Indexed<Token> tokens_;
    std::int64_t n_set_ = 0;  // calls of set()
    std::string arena_;
};

// A vocabulary that is being read: tokens with what finds their spellings, and merges that name tokens by spelling.

/// A vocabulary with what finds its spellings.
struct IndexedVocabulary {
    std::unique_ptr<TokenVocabulary> tokens = std::make_unique<TokenVocabulary>();
    StringIndex index;

    [[nodiscard]] TokenId find(std::string_view spelling) const {
        return index.find(spelling, [this](TokenId id) { return tokens->spelling(id); });
    }
};

/// Merges by ascending rank: both halves and what they make are looked up in the vocabulary.
class MergeReader {
public:
    MergeReader(const IndexedVocabulary& vocabulary, std::size_t n_merges, std::string_view name)
        : vocabulary_(vocabulary), name_(name), table_(n_merges) {}
    /// Throws FormatError where one of the three is no token.
    void add(std::string_view left, std::string_view right);
    /// "left right"
    void add(std::string_view line);
    [[nodiscard]] MergeTable take() { return std::move(table_); }

private:
    [[nodiscard]] TokenId find(std::string_view spelling) const;

    const IndexedVocabulary& vocabulary_;
    std::string name_;
    MergeTable table_;
    std::uint32_t rank_ = 0;
    std::string joined_;
};

/// Sets the bytes of all tokens: those that their spellings stand for in the byte alphabet (of a token outside of it,
/// the spelling itself).
void set_bytes_by_alphabet(TokenVocabulary& vocabulary);

// Words that were encoded before in the same call, and their ids: text repeats its words, merging is the dear part.
// Bounded in words and bytes; when it is full it begins anew. Not shared between threads.

class WordCache {
public:
    static constexpr std::size_t kMaxWords = std::size_t{1} << 16;
    static constexpr std::size_t kMaxWordBytes = 64;  // longer ones hardly repeat

    /// The ids of `word`, if it is known; valid until the next remember().
    [[nodiscard]] std::optional<std::span<const TokenId>> find(std::string_view word);
    /// Of the word that find() did not find just now.
    void remember(std::string_view word, std::span<const TokenId> ids);

private:
    struct Entry {
        std::uint64_t hash;
        std::uint32_t word_at, ids_at;
        std::uint16_t word_length, n_ids;
    };
    [[nodiscard]] std::string_view word_of(const Entry& entry) const {
        return std::string_view(words_).substr(entry.word_at, entry.word_length);
    }
    void grow();

    static constexpr std::size_t kFirstSlots = 256;
    std::vector<std::uint32_t> slots_;  // entry + 1; 0: free. A power of two, at most half full
    std::vector<Entry> entries_;
    std::string words_;
    std::vector<TokenId> ids_;
    std::uint64_t asked_hash_ = 0;
    std::size_t asked_slot_ = 0;
};

}  // namespace slipstream
