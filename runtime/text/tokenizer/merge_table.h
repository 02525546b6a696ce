// The merges of a byte-pair vocabulary: (left id, right id) -> rank and resulting id. Lower ranks merge first.
// Open addressing in one array of 16-byte entries, so that a look-up is one or two cache lines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/text/token_id.h"

namespace slipstream {

class MergeTable {
public:
    struct Merge {
        std::uint32_t rank;
        TokenId id;
    };
    static constexpr std::uint32_t kNoRank = UINT32_MAX;

    MergeTable() = default;
    explicit MergeTable(std::size_t n_merges);

    /// Sets the merge of a pair; a later one replaces an earlier one, as in the tokenizers package. Ids are not
    /// negative.
    void set(TokenId left, TokenId right, Merge merge);

    /// rank == kNoRank where the pair does not merge.
    [[nodiscard]] Merge find(TokenId left, TokenId right) const {
        const std::uint64_t key = key_of(left, right);
        for (std::size_t at = slot_of(key); entries_[at].key != kEmpty; at = (at + 1) & mask_)
            if (entries_[at].key == key) return entries_[at].merge;
        return {kNoRank, -1};
    }
    [[nodiscard]] std::size_t size() const { return n_merges_; }

private:
    static constexpr std::uint64_t kEmpty = UINT64_MAX;
    struct Entry {
        std::uint64_t key = kEmpty;
        Merge merge{kNoRank, -1};
    };
    static std::uint64_t key_of(TokenId left, TokenId right) {
        return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
    }
    [[nodiscard]] std::size_t slot_of(std::uint64_t key) const {
        const std::uint64_t mixed = key * 0x9e3779b97f4a7c15U;  // both ids reach the upper bits
        return static_cast<std::size_t>((mixed ^ mixed >> 32) * 0xbf58476d1ce4e5b9U >> shift_);
    }
    void grow();

    std::vector<Entry> entries_ = std::vector<Entry>(2);  // a power of two
    std::size_t mask_ = 1;
    int shift_ = 63;
    std::size_t n_merges_ = 0;
};

}  // namespace slipstream
