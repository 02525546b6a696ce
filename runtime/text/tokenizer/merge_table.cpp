#include "runtime/text/tokenizer/merge_table.h"

#include <bit>
#include <utility>

namespace slipstream {

MergeTable::MergeTable(std::size_t n_merges) : entries_(std::bit_ceil(n_merges + n_merges / 2 + 2)) {
    mask_ = entries_.size() - 1;
    shift_ = 64 - std::countr_zero(entries_.size());
}

void MergeTable::set(TokenId left, TokenId right, Merge merge) {
    if (n_merges_ + n_merges_ / 4 + 1 >= entries_.size()) grow();
    const std::uint64_t key = key_of(left, right);
    std::size_t at = slot_of(key);
    while (entries_[at].key != kEmpty && entries_[at].key != key) at = (at + 1) & mask_;
    if (entries_[at].key == kEmpty) ++n_merges_;
    entries_[at] = {key, merge};
}

void MergeTable::grow() {
    const std::vector<Entry> old = std::exchange(entries_, std::vector<Entry>(2 * entries_.size()));
    mask_ = entries_.size() - 1;
    --shift_;
    n_merges_ = 0;
    for (const Entry& entry : old)
        if (entry.key != kEmpty)
            set(static_cast<TokenId>(entry.key >> 32), static_cast<TokenId>(entry.key & UINT32_MAX), entry.merge);
}

}  // namespace slipstream
