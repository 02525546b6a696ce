// What followed what in the running text: counts of the tokens seen behind every context of 1 to 4 tokens, and of all
// tokens (order 0). The counts of N-Grammys' context n-grams (Stewart et al. 2024, section 4.2) for all lengths at
// once; context_mixer.h makes one probability of them, in the way of context-mixing compressors.
//
// Contexts lie in an open-addressing table keyed by a 64-bit hash of order and tokens (two contexts with one hash would
// share their counts: guesses may be anything). Followers of a context are a list, most recent first, of at most
// kMaxFollowers; the least recent one gives way. Memory is bounded: when the table would outgrow max_contexts, the
// caller is told to begin again from the text's later part.
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
    static constexpr int kMaxOrder = 4;
    static constexpr std::uint32_t kMaxFollowers = 128;
    static constexpr std::size_t kMaxFrequent = 64;
    static constexpr std::uint32_t kNone = 0xffffffffU;

    struct Follower {
        TokenId token = 0;
        std::uint32_t count = 0;
        std::uint32_t older = kNone;  // the next less recent one of its context
    };
    struct Context {
        std::uint64_t key = 0;          // 0: an empty place
        std::uint32_t total = 0;        // occurrences with something behind them
        std::uint32_t n_followers = 0;  // that are kept
        std::uint32_t newest = kNone;   // of them
    };

    /// Token ids are in [0, vocab). At most `max_contexts` contexts: 48 to 96 bytes each in the table, half to three
    /// quarters of it empty, and 12 bytes a follower and as much to grow.
    ContextModel(std::int64_t vocab, std::size_t max_contexts);

    void clear();
    /// Counts the last token of `text` as what followed the tokens before it.
    void add(std::span<const TokenId> text);
    /// Whether the next add() might exceed the bound.
    [[nodiscard]] bool full() const { return n_contexts_ + kMaxOrder > max_contexts_; }

    /// Key of the context that is one token longer, `token` standing behind all of it; kNoTokens is the empty one's.
    static constexpr std::uint64_t kNoTokens = 0x2545f4914f6cdd1dU;
    [[nodiscard]] static constexpr std::uint64_t extend(std::uint64_t key, TokenId token) {
        key = (key ^ static_cast<std::uint32_t>(token)) * 0x9e3779b97f4a7c15U;
        key = (key ^ (key >> 32)) * 0xd6e8feb86659fd93U;
        return (key ^ (key >> 32)) | 1;  // 0 marks an empty place
    }
    /// Keys of the last 1, 2, ... tokens.
    using Keys = std::array<std::uint64_t, kMaxOrder>;
    /// Of the contexts that `text` ends with, as far as it has as many tokens; 0 beyond.
    [[nodiscard]] static Keys keys_behind(std::span<const TokenId> text);
    /// The context of this key: an index for context(), valid until the next add(), or kNone.
    [[nodiscard]] std::uint32_t find(std::uint64_t key) const {
        const std::size_t place = place_of(key);
        return table_[place].key == 0 ? kNone : static_cast<std::uint32_t>(place);
    }
    [[nodiscard]] const Context& context(std::uint32_t place) const { return table_[place]; }
    /// Context::newest, or older ones.
    [[nodiscard]] const Follower& follower(std::uint32_t place) const { return pool_[place]; }
    /// Order 0.
    struct Seen {
        std::uint32_t count = 0;
        std::uint32_t last = 0;  // n_tokens() when it was added last
    };
    [[nodiscard]] const Seen& seen(TokenId token) const { return seen_[token]; }
    [[nodiscard]] std::uint32_t n_tokens() const { return n_tokens_; }
    /// The tokens with the highest counts, at most kMaxFrequent, falling.
    [[nodiscard]] std::span<const TokenId> frequent() const { return {frequent_.data(), n_frequent_}; }

    [[nodiscard]] std::size_t memory_bytes() const;

private:
    [[nodiscard]] std::size_t first_place(std::uint64_t key) const {
        return static_cast<std::size_t>(key >> 8) & (table_.size() - 1);
    }
    // Of the key, or the empty place where it belongs.
    [[nodiscard]] std::size_t place_of(std::uint64_t key) const {
        const std::size_t mask = table_.size() - 1;
        std::size_t place = first_place(key);
        while (table_[place].key != 0 && table_[place].key != key) place = (place + 1) & mask;
        return place;
    }
    void grow_table();
    void count_follower(Context& context, TokenId token);
    void count_unigram(TokenId token);

    std::size_t max_contexts_;
    std::size_t n_contexts_ = 0;
    std::vector<Context> table_;  // [a power of two]
    std::vector<Follower> pool_;  // of all contexts, linked
    std::uint32_t n_tokens_ = 0;
    std::vector<Seen> seen_;                   // [vocab]
    std::vector<std::uint8_t> frequent_rank_;  // [vocab]: 1 + place in frequent_; 0: not there
    std::array<TokenId, kMaxFrequent> frequent_{};
    std::size_t n_frequent_ = 0;
};

}  // namespace slipstream::draft
