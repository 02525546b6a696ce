// Words that were encoded before in the same call, and their ids: text repeats its words, merging is the dear part.
// Bounded in words and bytes; when it is full it begins anew. Not shared between threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/token_id.h"

namespace slipstream {

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

    std::vector<std::uint32_t> slots_;  // entry + 1; 0: free. A power of two, at most half full
    std::vector<Entry> entries_;
    std::string words_;
    std::vector<TokenId> ids_;
    std::uint64_t asked_hash_ = 0;
    std::size_t asked_slot_ = 0;
};

}  // namespace slipstream
