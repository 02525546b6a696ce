// Rows of tokens, all of one length, in lists by recency: what both levels of an LruTable are made of. A row belongs to
// an owner, a number of the caller's, and is found by owner and tokens. Rows lie in flat arrays, linked by number, with
// a list of those that are free. Every operation is O(1).
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
    /// A row; valid until it is removed.
    using Slot = SlotIndex::Slot;
    static constexpr Slot kNone = SlotIndex::kNone;

    struct List {
        Slot newest = kNone;
        Slot oldest = kNone;
        std::size_t n = 0;
    };

    /// Rows of `n_tokens` each.
    explicit RecencyRows(std::size_t n_tokens) : n_tokens_(n_tokens) {}

    [[nodiscard]] Slot find(Slot owner, std::span<const TokenId> tokens) const;
    /// A row that is not there yet, the newest of `list`.
    Slot add(List& list, Slot owner, std::span<const TokenId> tokens);
    /// The row is the newest of `list`, its own, now.
    void renew(List& list, Slot slot);
    void remove(List& list, Slot slot);
    /// Forgets all; lists are the caller's to forget.
    void clear();

    [[nodiscard]] std::span<const TokenId> tokens(Slot slot) const {
        return std::span(tokens_).subspan(slot * n_tokens_, n_tokens_);
    }
    /// The next older one of the row's list, or kNone.
    [[nodiscard]] Slot older(Slot slot) const { return rows_[slot].older; }
    [[nodiscard]] std::size_t size() const { return index_.size(); }
    [[nodiscard]] std::size_t memory_bytes() const;

private:
    struct Row {
        Slot newer = kNone;
        Slot older = kNone;  // of a free row: the next free one
        Slot owner = 0;
    };

    [[nodiscard]] static std::uint32_t hash_of(Slot owner, std::span<const TokenId> tokens);
    void link(List& list, Slot slot);
    void unlink(List& list, Slot slot);

    std::size_t n_tokens_;
    std::vector<Row> rows_;
    std::vector<TokenId> tokens_;  // [rows, n_tokens]
    Slot free_ = kNone;
    SlotIndex index_;
};

}  // namespace slipstream::draft
