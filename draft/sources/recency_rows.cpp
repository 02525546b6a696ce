#include "draft/sources/recency_rows.h"

#include <algorithm>

#include "draft/sources/mix_bits.h"
#include "kernels/base/check.h"

namespace slipstream::draft {

std::uint32_t RecencyRows::hash_of(Slot owner, std::span<const TokenId> tokens) {
    std::uint64_t hash = owner;
    for (const TokenId token : tokens) hash = mix_bits(hash << 32 ^ hash >> 32 ^ static_cast<std::uint32_t>(token));
    return static_cast<std::uint32_t>(hash);
}

RecencyRows::Slot RecencyRows::find(Slot owner, std::span<const TokenId> tokens) const {
    DCHECK(tokens.size() == n_tokens_);
    return index_.find(hash_of(owner, tokens), [&](Slot slot) {
        return rows_[slot].owner == owner && std::ranges::equal(this->tokens(slot), tokens);
    });
}

RecencyRows::Slot RecencyRows::add(List& list, Slot owner, std::span<const TokenId> tokens) {
    Slot slot = free_;
    if (slot == kNone) {
        CHECK(rows_.size() < kNone, "{} rows", rows_.size());
        slot = static_cast<Slot>(rows_.size());
        rows_.emplace_back();
        tokens_.resize(tokens_.size() + n_tokens_);
    } else {
        free_ = rows_[slot].older;
    }
    rows_[slot].owner = owner;
    std::ranges::copy(tokens, tokens_.begin() + static_cast<std::ptrdiff_t>(slot * n_tokens_));
    link(list, slot);
    index_.insert(hash_of(owner, tokens), slot);
    return slot;
}

void RecencyRows::renew(List& list, Slot slot) {
    if (slot == list.newest) return;
    unlink(list, slot);
    link(list, slot);
}

void RecencyRows::remove(List& list, Slot slot) {
    index_.erase(hash_of(rows_[slot].owner, tokens(slot)), slot);
    unlink(list, slot);
    rows_[slot].older = free_;
    free_ = slot;
}

void RecencyRows::clear() {
    rows_.clear();
    tokens_.clear();
    free_ = kNone;
    index_.clear();
}

void RecencyRows::link(List& list, Slot slot) {
    rows_[slot].newer = kNone;
    rows_[slot].older = list.newest;
    (list.newest == kNone ? list.oldest : rows_[list.newest].newer) = slot;
    list.newest = slot;
    ++list.n;
}

void RecencyRows::unlink(List& list, Slot slot) {
    const auto [newer, older, owner] = rows_[slot];
    (newer == kNone ? list.newest : rows_[newer].older) = older;
    (older == kNone ? list.oldest : rows_[older].newer) = newer;
    --list.n;
}

std::size_t RecencyRows::memory_bytes() const {
    return rows_.capacity() * sizeof(Row) + tokens_.capacity() * sizeof(TokenId) + index_.memory_bytes();
}

}  // namespace slipstream::draft
