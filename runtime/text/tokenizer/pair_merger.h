// Byte-pair merging by a table of ranked pairs (Sennrich et al. 2016, arXiv 1508.07909): of all neighbours that merge,
// the pair of the lowest rank does, the leftmost of equals, until none is left.
//
// Short words, nearly all, are searched linearly: their ranks fit a few cache lines. Longer ones keep a heap of (rank,
// place) over a linked list, O(n log n); an entry whose place has another rank by now is stale. Both give the same ids.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/text/tokenizer/merge_table.h"

namespace slipstream {

class PairMerger {
public:
    struct Scratch {
        std::vector<TokenId> ids;
        std::vector<std::uint32_t> ranks;           // of each symbol with the next one
        std::vector<TokenId> merged;                // what the two become
        std::vector<std::uint32_t> previous, next;  // long words
        std::vector<std::uint64_t> heap;            // rank << 32 | place
    };

    explicit PairMerger(MergeTable table) : table_(std::move(table)) {}

    /// Appends what `symbols` (less than 2^31) merge to.
    void merge(std::span<const TokenId> symbols, Scratch& scratch, std::vector<TokenId>& out) const;

    [[nodiscard]] const MergeTable& table() const { return table_; }

private:
    void merge_short(Scratch& scratch) const;
    void merge_long(Scratch& scratch, std::vector<TokenId>& out) const;

    MergeTable table_;
};

}  // namespace slipstream
