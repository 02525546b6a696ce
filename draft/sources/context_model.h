// Counts of the tokens that followed each context of 1 to 4 tokens in the current sequence, and of all tokens (order
// 0). These are the counts of N-Grammys' context n-grams (Stewart et al. 2024, section 4.2), for all lengths at once.
// context_mixer.h merges them into one probability, as context-mixing compressors do.
//
// Contexts are in an open-addressing table, keyed by a 64-bit hash of their tokens. Two contexts with the same hash
// share their counts, which can only make proposals worse. The followers of a context are a list, most recent first, of
// at most kMaxFollowers; a further one replaces the least recent. Memory is bounded: when full() is true, the caller
// must clear() the table and count again from a later part of the sequence.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/model/model_config.h"

namespace slipstream::draft {

class ContextModel {
public:
    static constexpr int kMaxOrder = 4;                  // most tokens of a context
    static constexpr std::uint32_t kMaxFollowers = 128;  // most followers kept of a context
    static constexpr std::size_t kMaxFrequent = 64;      // most tokens that frequent() returns
    static constexpr std::uint32_t kNone = 0xffffffffU;

    /// A token that followed a context, and how often.
    struct Follower {
        TokenId token = 0;
        std::uint32_t count = 0;
        std::uint32_t older = kNone;  // index of the context's next less recent follower; kNone: none
    };
    /// An entry of the table of contexts.
    struct Context {
        std::uint64_t key = 0;          // hash of the context; 0: an empty place
        std::uint32_t total = 0;        // occurrences that a token followed
        std::uint32_t n_followers = 0;  // followers that are kept
        std::uint32_t newest = kNone;   // most recent follower
    };

    /// Token ids must be in [0, vocab). Holds at most `max_contexts` contexts (at least 4096, CHECKed): 48 to 96 bytes
    /// of the table for each, since half to three quarters of it is empty, and 12 bytes for each follower, up to twice
    /// that with the room to grow.
    ContextModel(std::int64_t vocab, std::size_t max_contexts);

    /// Forgets all counts; keeps the memory.
    void clear();
    /// Takes the memory for `n_contexts` contexts, at most max_contexts, with two followers each.
    void reserve(std::size_t n_contexts);
    /// Counts the last token of `text` as a follower of the contexts before it. `text` must not be empty, its last
    /// token must be in the vocabulary, and full() must be false (CHECKed).
    void add(std::span<const TokenId> text);
    /// Returns true if the next add() might exceed `max_contexts`.
    [[nodiscard]] bool full() const { return n_contexts_ + kMaxOrder > max_contexts_; }
    [[nodiscard]] std::size_t n_contexts() const { return n_contexts_; }

    /// Key of the empty context, from which extend() starts.
    static constexpr std::uint64_t kNoTokens = 0x2545f4914f6cdd1dU;
    /// Returns the key of the context that is one token longer than that of `key`, with `token` as its last token;
    /// never 0.
    [[nodiscard]] static constexpr std::uint64_t extend(std::uint64_t key, TokenId token) {
        key = (key ^ static_cast<std::uint32_t>(token)) * 0x9e3779b97f4a7c15U;
        key = (key ^ (key >> 32)) * 0xd6e8feb86659fd93U;
        return (key ^ (key >> 32)) | 1;  // never 0, which marks an empty place of the table
    }
    /// Keys of the contexts of the last 1, 2, ... tokens.
    using Keys = std::array<std::uint64_t, kMaxOrder>;
    /// Returns the keys of the contexts that `text` ends with; 0 for contexts longer than `text`.
    [[nodiscard]] static Keys keys_behind(std::span<const TokenId> text);
    /// Returns the index of the context with this key, for context(), valid until the next add() or clear(); kNone if
    /// it was not seen.
    [[nodiscard]] std::uint32_t find(std::uint64_t key) const {
        const std::size_t place = place_of(key);
        return table_[place].key == 0 ? kNone : static_cast<std::uint32_t>(place);
    }
    /// Returns the entry with an index from find().
    [[nodiscard]] const Context& context(std::uint32_t place) const { return table_[place]; }
    /// Returns the follower with an index from Context::newest or Follower::older.
    [[nodiscard]] const Follower& follower(std::uint32_t place) const { return pool_[place]; }
    /// Count of a token in any context (order 0).
    struct Seen {
        std::uint32_t count = 0;
        std::uint32_t last = 0;  // n_tokens() after it was last added; 0: never
    };
    [[nodiscard]] const Seen& seen(TokenId token) const { return seen_[token]; }
    /// Returns the number of tokens added since construction or clear().
    [[nodiscard]] std::uint32_t n_tokens() const { return n_tokens_; }
    /// Returns the tokens with the highest counts, at most kMaxFrequent, by falling count. Valid until the next add()
    /// or clear().
    [[nodiscard]] std::span<const TokenId> frequent() const { return {frequent_.data(), n_frequent_}; }

    [[nodiscard]] std::size_t memory_bytes() const;

private:
    [[nodiscard]] std::size_t first_place(std::uint64_t key) const {
        return static_cast<std::size_t>(key >> 8) & (table_.size() - 1);
    }
    // Returns the place of the key, or the empty place where it belongs.
    [[nodiscard]] std::size_t place_of(std::uint64_t key) const {
        const std::size_t mask = table_.size() - 1;
        std::size_t place = first_place(key);
        while (table_[place].key != 0 && table_[place].key != key) place = (place + 1) & mask;
        return place;
    }
    void grow_table(std::size_t n_places);
    void count_follower(Context& context, TokenId token);
    void count_unigram(TokenId token);

    std::size_t max_contexts_;
    std::size_t n_contexts_ = 0;
    std::vector<Context> table_;  // size is a power of two
    std::vector<Follower> pool_;  // followers of all contexts, in linked lists
    std::uint32_t n_tokens_ = 0;
    std::vector<Seen> seen_;                   // [vocab]
    std::vector<std::uint8_t> frequent_rank_;  // [vocab]: 1 + index into frequent_; 0: not in it
    std::array<TokenId, kMaxFrequent> frequent_{};
    std::size_t n_frequent_ = 0;
};

}  // namespace slipstream::draft
