// Token strings and ids: the index from strings to ids, the tokens of a vocabulary, a vocabulary while it is read, and
// a cache of words that have been encoded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/token_id.h"
#include "runtime/text/tokenizer/merging.h"
#include "runtime/text/tokenizer/tokenizer.h"

namespace slipstream {

// From strings to ids: an open-addressing hash table that stores hashes and ids; the strings themselves stay with their
// owner. It is built once for a known number of strings. A look-up costs one hash and, nearly always, one comparison of
// strings.

/// Returns a 64-bit hash of `text`. Fast for short strings.
[[nodiscard]] std::uint64_t hash_of(std::string_view text);

class StringIndex {
public:
    StringIndex() = default;
    explicit StringIndex(std::size_t n_strings);

    /// Returns the id of `text`, or -1 if it is not in the index. `spelling`(id) must return the string of an id.
    template <typename Spelling>
    [[nodiscard]] TokenId find(std::string_view text, const Spelling& spelling) const {
        if (slots_.empty()) return -1;
        const std::uint64_t hash = hash_of(text);
        for (std::size_t at = hash & mask_; slots_[at].id >= 0; at = (at + 1) & mask_)
            if (slots_[at].tag == tag_of(hash) && spelling(slots_[at].id) == text) return slots_[at].id;
        return -1;
    }
    /// Adds `text` with `id` and returns -1. If an equal string is in the index already, returns its id and changes
    /// nothing. The caller must not add more strings than it announced to the constructor.
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

    std::vector<Slot> slots_;  // the size is a power of two; at most half of the slots are used
    std::size_t mask_ = 0;
};

// The tokens of a vocabulary by id: the spelling, the kind, and the bytes that each token stands for in running text.
// All spellings and bytes are stored in one string. An id that was never set is Unused and has an empty spelling.

class TokenVocabulary {
public:
    /// Bounds on the ids of a file, so that a file of a few bytes cannot ask for gigabytes: an id must be below
    /// kMaxTokens (67 million), and below the number of calls of set() so far plus kMaxGaps (1 million).
    static constexpr std::int64_t kMaxTokens = std::int64_t{1} << 26;
    static constexpr std::int64_t kMaxGaps = std::int64_t{1} << 20;

    /// Sets or replaces a token. Throws FormatError if the id is outside of the bounds kMaxTokens and kMaxGaps, or the
    /// spelling has 4 GiB or more; `name` is the name of the file, for the message.
    void set(std::int64_t id, std::string_view spelling, TokenKind kind, std::string_view name);
    /// Sets the bytes that the token prints. A token for which set_bytes() is not called prints its spelling. set()
    /// must have been called for `id` or a higher id (CHECKed).
    void set_bytes(TokenId id, std::string_view bytes);
    void set_kind(TokenId id, TokenKind kind) { tokens_[id].kind = kind; }
    void reserve(std::size_t n_tokens, std::size_t n_bytes);

    [[nodiscard]] std::int64_t size() const { return std::ssize(tokens_); }
    [[nodiscard]] bool contains(TokenId id) const { return id >= 0 && id < size(); }
    // spelling() and bytes() return an empty string, and kind() returns TokenKind::Unused, for an id that is not in [0,
    // size()). The views are valid until the next set() or set_bytes().
    [[nodiscard]] std::string_view spelling(TokenId id) const;
    [[nodiscard]] std::string_view bytes(TokenId id) const;
    [[nodiscard]] TokenKind kind(TokenId id) const;

private:
    struct Token {
        std::size_t spelling_at = 0, bytes_at = 0;  // positions in arena_, bytes
        std::uint32_t spelling_length = 0, bytes_length = 0;
        TokenKind kind = TokenKind::Unused;
    };
    std::size_t keep(std::string_view text);

    std::vector<Token> tokens_;
    std::int64_t n_set_ = 0;  // number of calls of set()
    std::string arena_;
};

// A vocabulary while it is read: its tokens with an index of their spellings, and a reader of merges that name tokens
// by spelling.

/// Tokens with an index that finds an id by its spelling. Code that sets a token must also insert its spelling into
/// `index`.
struct IndexedVocabulary {
    std::unique_ptr<TokenVocabulary> tokens = std::make_unique<TokenVocabulary>();
    StringIndex index;

    [[nodiscard]] TokenId find(std::string_view spelling) const {
        return index.find(spelling, [this](TokenId id) { return tokens->spelling(id); });
    }
};

/// Collects merges in the order of their ranks. Both halves of a merge and the token that they form are looked up in
/// the vocabulary.
class MergeReader {
public:
    MergeReader(const IndexedVocabulary& vocabulary, std::size_t n_merges, std::string_view name)
        : vocabulary_(vocabulary), name_(name), table_(n_merges) {}
    /// Adds the merge of next higher rank. Throws FormatError if `left`, `right` or their concatenation is no token.
    void add(std::string_view left, std::string_view right);
    /// Adds a merge that is written "left right", with one space. A line that begins with "#version" is ignored. Throws
    /// FormatError if the line has another form or one of the three tokens is missing.
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

/// Sets the bytes of all tokens to those that their spellings stand for in the byte alphabet (byte_spellings.h). A
/// token whose spelling contains other characters keeps its bytes: by default, the spelling itself.
void set_bytes_by_alphabet(TokenVocabulary& vocabulary);

// Cache of the words that were encoded before in the same call, with their ids: texts repeat their words, and merging
// is the expensive part. Bounded in words and in bytes; when it is full, it is emptied. Must not be shared between
// threads.

class WordCache {
public:
    static constexpr std::size_t kMaxWords = std::size_t{1} << 16;
    // Limits a cached word, in bytes: longer words are not cached, since they hardly ever repeat.
    static constexpr std::size_t kMaxWordBytes = 64;

    /// Returns the ids of `word` if it is in the cache, else nullopt. The ids are valid until the next remember().
    [[nodiscard]] std::optional<std::span<const TokenId>> find(std::string_view word);
    /// Adds `word` with `ids`. The last call of find() must have been for `word` and must have returned nullopt. A word
    /// of more than kMaxWordBytes is ignored.
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
    // A slot holds an index in entries_ plus 1, or 0 if it is free. The size is a power of two; at most half of the
    // slots are used.
    std::vector<std::uint32_t> slots_;
    std::vector<Entry> entries_;
    std::string words_;
    std::vector<TokenId> ids_;
    std::uint64_t asked_hash_ = 0;
    std::size_t asked_slot_ = 0;
};

}  // namespace slipstream
