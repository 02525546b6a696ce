// Rows of tokens of one length in lists by recency: both levels of an LruTable are made of them. A row belongs to an
// owner, a number that the caller chooses, and is found by owner and tokens. Rows are in flat arrays and linked by
// their numbers; freed rows are reused. Every operation takes O(1) time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "draft/sources/slot_index.h"
#include "runtime/model/model_config.h"

namespace slipstream::draft {

class RecencyRows {
public:
    /// A row's number. Valid until the row is removed.
    using Slot = SlotIndex::Slot;
    static constexpr Slot kNone = SlotIndex::kNone;

    /// Rows by recency. The caller keeps it and passes it to every change of its rows.
    struct List {
        Slot newest = kNone;
        Slot oldest = kNone;
        std::size_t n = 0;
    };

    /// Makes an empty store for rows of `n_tokens` tokens each.
    explicit RecencyRows(std::size_t n_tokens) : n_tokens_(n_tokens) {}

    /// Returns the row of `owner` with these tokens [n_tokens], or kNone.
    [[nodiscard]] Slot find(Slot owner, std::span<const TokenId> tokens) const;
    /// Adds a row, which must not be present, as the newest of `list`. Returns it.
    Slot add(List& list, Slot owner, std::span<const TokenId> tokens);
    /// Makes the row the newest of `list`, the list that it is in.
    void renew(List& list, Slot slot);
    /// Removes the row from `list`, the list that it is in. Its number may be reused.
    void remove(List& list, Slot slot);
    /// Forgets all rows; the caller must reset its lists.
    void clear();

    [[nodiscard]] std::span<const TokenId> tokens(Slot slot) const {
        return std::span(tokens_).subspan(slot * n_tokens_, n_tokens_);
    }
    /// Returns the next older row of the row's list, or kNone.
    [[nodiscard]] Slot older(Slot slot) const { return rows_[slot].older; }
    [[nodiscard]] std::size_t size() const { return index_.size(); }
    [[nodiscard]] std::size_t memory_bytes() const;

private:
    struct Row {
        Slot newer = kNone;
        Slot older = kNone;  // in a free row: the next free row
        Slot owner = 0;
    };

    [[nodiscard]] static std::uint32_t hash_of(Slot owner, std::span<const TokenId> tokens);
    void link(List& list, Slot slot);
    void unlink(List& list, Slot slot);

    std::size_t n_tokens_;
    std::vector<Row> rows_;
    std::vector<TokenId> tokens_;  // [rows, n_tokens]
    Slot free_ = kNone;            // first free row; kNone: none
    SlotIndex index_;
};

}  // namespace slipstream::draft
